#include "transport/samehost/peer_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "os/log.h"

namespace kvferry::transport {

Mapping::Mapping(Mapping&& other) noexcept
    : data(std::exchange(other.data, nullptr)), bytes(std::exchange(other.bytes, 0)) {}

Mapping::~Mapping() {
  if (data != nullptr) ::munmap(data, bytes);
}

bool ReadablePeer::gone() const { return process_gone(pid_fd_); }

const std::vector<PeerRegion>& ReadablePeer::regions(std::uint32_t component) const {
  static const std::vector<PeerRegion> none;
  return component < components_.size() ? components_[component] : none;
}

ReadablePeer::~ReadablePeer() {
  if (mappings_.empty() || !elsewhere_) return;
  // Shared, because a std::function can be copied.
  elsewhere_([mappings = std::make_shared<std::vector<Mapping>>(std::move(mappings_))] { mappings->clear(); });
}

bool ReadablePeer::memory_gone() const {
  if (!any(false)) return false;
  // The kernel looks for the memory of the process before it looks at the address, which no page is behind.
  std::byte byte{};
  const iovec here{&byte, 1};
  const iovec there{nullptr, 1};
  return ::process_vm_readv(pid_, &here, 1, &there, 1, 0) < 0 && errno == ESRCH;
}

bool ReadablePeer::any(bool mapped) const {
  return std::ranges::any_of(memory_, [mapped](const std::vector<Whole>& component) {
    return std::ranges::find(component, mapped, &Whole::mapped) != component.end();
  });
}

std::string ReadablePeer::method() const {
  const bool mapped = any(true);
  if (mapped && any(false)) return "shared memory and process_vm_readv";
  return mapped ? "shared memory" : "process_vm_readv";
}

void ReadablePeer::see_whole(std::size_t component) {
  auto& seen = components_.emplace_back();
  if (component >= memory_.size()) return;
  for (const Whole& one : memory_[component]) seen.push_back({layout::ViewRegion::of(one.region), one.mapped});
}

void ReadablePeer::see_whole() {
  components_.clear();
  for (std::size_t component = 0; component < memory_.size(); ++component) see_whole(component);
}

Result<void> ReadablePeer::see(const std::vector<layout::RegionCut>& kv, const std::vector<std::uint32_t>& state) {
  components_.clear();
  auto& seen = components_.emplace_back();
  const std::size_t there = memory_.empty() ? 0 : memory_[layout::component_kv].size();
  for (const layout::RegionCut& cut : kv) {
    if (cut.region >= there || cut.reach() > memory_[layout::component_kv][cut.region].region.item_bytes) {
      return Error{Code::mismatch, fmt::format("the peer has {} kv regions, and items of region {} are shorter than it "
                                               "said: {} bytes of them are needed",
                                               there, cut.region, cut.reach())};
    }
    const Whole& one = memory_[layout::component_kv][cut.region];
    seen.push_back({layout::ViewRegion::of(one.region, cut), one.mapped});
  }
  see_whole(layout::component_aux);
  for (const std::uint32_t number : state) {
    if (layout::component_state + std::size_t{number} >= memory_.size()) {
      return Error{Code::mismatch, fmt::format("the peer said that it has state component {}, and it has not", number)};
    }
    see_whole(layout::component_state + std::size_t{number});
  }
  return {};
}

// Builds a ReadablePeer from what the peer says of itself, believing none of it unseen.
class PeerOpener {
 public:
  static Result<std::unique_ptr<PeerMemory>> open(const protocol::SameHost& peer, const std::string& memory_socket,
                                                  const std::vector<protocol::RemoteRegion>& regions,
                                                  const Bits128& secret, int timeout_ms, Elsewhere unmap) {
    const bool any_shared = std::any_of(regions.begin(), regions.end(), [](auto& r) { return r.shared >= 0; });
    const bool all_shared = std::all_of(regions.begin(), regions.end(), [](auto& r) { return r.shared >= 0; });
    auto verified = verify_process(peer);
    if (!verified && (!all_shared || !any_shared || memory_socket.empty())) return std::move(verified.error());
    os::Fd pid_fd = verified ? std::move(*verified) : open_pid(peer.pid);
    if (!pid_fd) return std::move(verified.error());
    auto made = std::make_unique<ReadablePeer>(static_cast<pid_t>(peer.pid), std::move(pid_fd), std::move(unmap));
    if (any_shared && !memory_socket.empty()) {
      auto mappings = fetch_mappings(made->pid_, memory_socket, secret, timeout_ms);
      if (mappings) {
        made->mappings_ = std::move(*mappings);
      } else if (!verified) {
        return Error{Code::unsupported, verified.error().text + "; and its shared memory: " + mappings.error().text};
      } else {
        os::log().warn("shared memory of process {} is read by process_vm_readv: {}", peer.pid, mappings.error().text);
      }
    }
    KVF_CHECK(place(*made, regions, verified.has_value()));
    made->see_whole();
    if (made->gone()) {
      return Error{Code::unsupported, fmt::format("process {} exited while its memory was opened", peer.pid)};
    }
    return std::unique_ptr<PeerMemory>(std::move(made));
  }

 private:
  // Without process_vm_readv the memory socket proves the process: the kernel names its owner.
  static os::Fd open_pid(std::uint64_t pid) {
    if (pid == 0 || pid > INT_MAX) return {};
    return os::Fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  }

  static Result<void> place(ReadablePeer& peer, const std::vector<protocol::RemoteRegion>& regions, bool readable) {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const protocol::RemoteRegion& from = regions[i];
      if (from.item_bytes == 0 || from.length % from.item_bytes != 0 || from.base > UINT64_MAX - from.length ||
          from.component > regions.size() + 2) {
        return Error{Code::protocol, fmt::format("region {} of the peer cannot be: component {}, {} bytes at {:#x} in "
                                                 "items of {}",
                                                 i, from.component, from.length, from.base, from.item_bytes)};
      }
      if (peer.memory_.size() <= from.component) peer.memory_.resize(from.component + 1);
      ReadablePeer::Whole to;
      to.region.length = from.length;
      to.region.item_bytes = from.item_bytes;
      to.region.base = reinterpret_cast<void*>(from.base);
      if (from.shared >= 0 && !peer.mappings_.empty()) {
        const auto number = static_cast<std::size_t>(from.shared);
        if (number >= peer.mappings_.size() || from.shared_offset > peer.mappings_[number].bytes ||
            from.length > peer.mappings_[number].bytes - from.shared_offset) {
          return Error{Code::protocol,
                       fmt::format("region {} of the peer, {} bytes at {} of shared memory {}, does not "
                                   "lie in the memory it handed over",
                                   i, from.length, from.shared_offset, from.shared)};
        }
        to.region.base = peer.mappings_[number].data + from.shared_offset;
        to.mapped = true;
      } else if (!readable) {
        return Error{Code::unsupported, fmt::format("region {} of the peer is neither shared nor readable", i)};
      }
      peer.memory_[from.component].push_back(to);
    }
    return {};
  }
};

Result<std::unique_ptr<PeerMemory>> open_peer_memory(const protocol::SameHost& peer, const std::string& memory_socket,
                                                     const std::vector<protocol::RemoteRegion>& regions,
                                                     const Bits128& secret, int timeout_ms, Elsewhere unmap) {
  return PeerOpener::open(peer, memory_socket, regions, secret, timeout_ms, std::move(unmap));
}

}  // namespace kvferry::transport
