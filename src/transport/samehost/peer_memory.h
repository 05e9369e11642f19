// What the same-host mover reads a peer with: the peer's regions, by process_vm_readv or from a mapping of its memfds.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "os/fd.h"
#include "transport/samehost/samehost_mover.h"

namespace kvferry::transport {

// A peer's memfd as it is mapped here, read-only. Not movable once mapped; unmapped on destruction.
struct Mapping {
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// A region of the peer. Its base is an address in the peer, or in this process where it is mapped.
struct PeerRegion {
  layout::ViewRegion region;
  bool mapped = false;
};

class ReadablePeer final : public PeerMemory {
 public:
  ReadablePeer(pid_t pid, os::Fd pid_fd, Elsewhere elsewhere)
      : pid_(pid), pid_fd_(std::move(pid_fd)), elsewhere_(std::move(elsewhere)) {}
  ~ReadablePeer() override;
  const os::Fd& pid_fd() const override { return pid_fd_; }
  std::string method() const override;
  Result<void> see(const std::vector<layout::RegionCut>& kv, const std::vector<std::uint32_t>& state) override;
  pid_t pid() const { return pid_; }
  // True once the process has exited: nothing read since may be believed.
  bool gone() const;
  // Whether the process has given up its memory, which it does before its pidfd says that it has exited. What was read
  // of its private regions from then on may be zeros: where a page is not served (userfaultfd), the end of the process
  // is what lets a reader go on. False where all regions are mapped: those stay.
  bool memory_gone() const;
  // What is seen of one component; empty where the peer has none.
  const std::vector<PeerRegion>& regions(std::uint32_t component) const;

 private:
  friend class PeerOpener;
  pid_t pid_;
  os::Fd pid_fd_;
  struct Whole {
    Region region;
    bool mapped = false;
  };
  void see_whole();
  void see_whole(std::size_t component);
  bool any(bool mapped) const;
  Elsewhere elsewhere_;
  std::vector<Mapping> mappings_;
  std::vector<std::vector<Whole>> memory_;           // by component
  std::vector<std::vector<PeerRegion>> components_;  // what is seen of it
};

// The memfds of the process behind an abstract socket (memory_client.cpp). `peer` must be the process at the other end.
Result<std::vector<Mapping>> fetch_mappings(pid_t peer, const std::string& memory_socket, const Bits128& secret,
                                            int timeout_ms);

// Whether a pidfd says that its process has exited.
bool process_gone(const os::Fd& pid_fd);

}  // namespace kvferry::transport
