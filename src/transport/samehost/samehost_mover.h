// Moves chunks inside one host: the receiver pulls, by process_vm_readv or from the sender's mapped memfds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kvferry/result.h"
#include "layout/view.h"
#include "os/fd.h"
#include "protocol/messages.h"
#include "transport/mover.h"

namespace kvferry::transport {

// Runs work on a thread that nobody waits for; the mover and the control thread must not run it.
using Elsewhere = std::function<void(std::function<void()>)>;

// A peer process on this host, as a receiver reads from it. Closes the pidfd on destruction and has its mappings undone
// elsewhere.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // Readable once the process has exited.
  virtual const os::Fd& pid_fd() const = 0;
  // How regions are read, for people: "process_vm_readv", "shared memory" or "shared memory and process_vm_readv".
  virtual std::string method() const = 0;
  // From now on the peer's kv regions are read under these cuts, and of its state components those with these numbers,
  // in this order; everything was read whole before. `mismatch` where that reaches past what the peer has.
  virtual Result<void> see(const std::vector<layout::RegionCut>& kv, const std::vector<std::uint32_t>& state) = 0;
};

// This process as peers may find it: the nonce lies at a fixed address for the life of the process.
protocol::SameHost own_same_host();

// Opens the process and reads its nonce: proves that pid and nonce mean one process that may be read from here.
// `unsupported` with the reason (another host or pid namespace, no ptrace rights, a seccomp filter, no such process).
// The result is the pidfd.
Result<os::Fd> verify_process(const protocol::SameHost& peer);

// Verifies the peer and maps its shared regions. Where process_vm_readv is forbidden but every region is shared, that
// is enough (the process is then proven by the peer credentials of its memory socket). `unsupported` with the reason
// otherwise. May take milliseconds; never waits longer than `timeout_ms` for the peer's memory socket. Undoing the
// mappings of many gigabytes takes the kernel a second: `unmap` runs it, at once where there is none.
Result<std::unique_ptr<PeerMemory>> open_peer_memory(const protocol::SameHost& peer, const std::string& memory_socket,
                                                     const std::vector<protocol::RemoteRegion>& regions,
                                                     const Bits128& secret, int timeout_ms, Elsewhere unmap = {});

// Hands the memfds behind this process's shared regions to peers that know the secret of a session: an abstract Unix
// socket with a thread of its own that sleeps in accept. Nothing lies in a shared folder.
class MemoryServer {
 public:
  virtual ~MemoryServer() = default;
  // nullptr where no region of `memory` was allocated through kvferry::SharedMemory.
  static std::unique_ptr<MemoryServer> start(const Memory& memory);
  virtual const std::string& socket_name() const = 0;
  // A peer that connects must present one of these; it is used once. Any thread.
  virtual void expect(const Bits128& secret) = 0;
  virtual void forget(const Bits128& secret) = 0;
};
// What a Welcome says of this process's memory, with the memfds numbered as MemoryServer hands them out.
std::vector<protocol::RemoteRegion> describe_regions(const Memory& memory);

class SameHostMover : public Mover {
 public:
  // `sink` outlives the mover. At least two data threads; a session occupies all but one of them at most,
  // one call copies at most 1 MiB, sessions are served fairly by bytes. Threads start with the first session. A thread
  // whose call does not come back, since the kernel does not serve the peer's memory, is stood in for by a new one.
  // Destruction waits for calls under way, since they write; one that is never served ends with the peer's process.
  static std::unique_ptr<SameHostMover> create(std::uint32_t data_threads, MoverSink& sink);
  // Receiver side. After each chunk the mover checks that the peer's pidfd is not readable before it reports Placed.
  // `view` is of this side; the memory behind it outlives the session.
  virtual void open_session(SessionId session, std::unique_ptr<PeerMemory> peer, layout::View view) = 0;
};

}  // namespace kvferry::transport
