#include "transport/samehost/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/samehost/streaming_copy.h"

namespace kvferry::transport {
namespace {

constexpr std::size_t iovecs_a_call_max = 1024;  // the kernel's IOV_MAX
constexpr std::size_t call_bytes_max = 1u << 20;

Error failure(const ReadablePeer& peer, int error) {
  const auto pid = peer.pid();
  if (error == ESRCH) return Error{Code::peer_lost, fmt::format("process {} of the peer is gone", pid)};
  if (error == EFAULT || error == 0) {
    return Error{Code::out_of_range,
                 fmt::format("memory of the chunk is not mapped in process {} of the peer: its engine has unmapped or "
                             "never mapped a registered region",
                             pid)};
  }
  return Error{Code::unsupported,
               fmt::format("reading the memory of process {} of the peer failed: {}", pid, std::strerror(error))};
}

// Whether the process has given up its memory, which it does before its pidfd says that it has exited. What was read
// from then on may be zeros: where a page is not served (userfaultfd), its end is what lets a reader go on.
bool memory_gone(pid_t pid) {
  std::byte byte{};
  const iovec here{&byte, 1};
  const iovec nowhere{nullptr, 1};
  return ::process_vm_readv(pid, &here, 1, &nowhere, 1, 0) < 0 && errno == ESRCH;
}

// A place in a list of pieces.
struct Reader {
  std::span<const layout::Piece> pieces;
  std::size_t next = 0;
  std::size_t offset = 0;

  bool done() const { return next == pieces.size(); }
  std::byte* data() const { return pieces[next].data + offset; }
  std::size_t left() const { return pieces[next].bytes - offset; }
  void advance(std::size_t bytes) {
    while (bytes > 0) {
      const std::size_t step = std::min(bytes, left());
      offset += step;
      bytes -= step;
      if (left() == 0) {
        ++next;
        offset = 0;
      }
    }
  }
  // Appends at most `bytes_max` bytes from here on; returns how many.
  std::size_t gather(std::size_t bytes_max, std::vector<iovec>& out) const {
    Reader at = *this;
    std::size_t bytes = 0;
    out.clear();
    while (!at.done() && bytes < bytes_max && out.size() < iovecs_a_call_max) {
      const std::size_t step = std::min(at.left(), bytes_max - bytes);
      out.push_back({at.data(), step});
      bytes += step;
      at.advance(step);
    }
    return bytes;
  }
};

}  // namespace

void copy_pieces(std::span<const layout::Piece> source, std::span<const layout::Piece> target) {
  Reader from{source};
  Reader to{target};
  while (!from.done() && !to.done()) {
    const std::size_t step = std::min(from.left(), to.left());
    const std::byte* source_bytes = from.data();
    from.advance(step);
    streaming_copy(to.data(), source_bytes, step, from.done() ? source_bytes : from.data());
    to.advance(step);
  }
  streaming_fence();
}

Result<void> Puller::run(const ReadablePeer& peer, std::span<const Pull> pulls, const std::atomic<bool>& cancelled) {
  source_.clear();
  target_.clear();
  mapped_source_.clear();
  mapped_target_.clear();
  for (const Pull& pull : pulls) {
    for (std::size_t r = 0; r < pull.source.size(); ++r) {
      const bool mapped = pull.source[r].mapped;
      layout::append_pieces(pull.source[r].region, pull.source_items, mapped ? mapped_source_ : source_);
      layout::append_pieces(pull.target[r], pull.target_items, mapped ? mapped_target_ : target_);
    }
  }
  copy_pieces(mapped_source_, mapped_target_);
  return read_process(peer, cancelled);
}

Result<void> Puller::read_process(const ReadablePeer& peer, const std::atomic<bool>& cancelled) {
  if (source_.empty()) return {};
  Reader from{source_};
  Reader to{target_};
  while (!to.done() && !cancelled.load(std::memory_order_relaxed)) {
    const std::size_t wanted = to.gather(call_bytes_max, local_);
    from.gather(wanted, remote_);
    const ssize_t n = ::process_vm_readv(peer.pid(), local_.data(), local_.size(), remote_.data(), remote_.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failure(peer, n < 0 ? errno : 0);
    // What is short of `wanted` was limited by the number of pieces, or ended at memory that is not there: the next
    // call begins at that place and says so.
    from.advance(static_cast<std::size_t>(n));
    to.advance(static_cast<std::size_t>(n));
  }
  if (memory_gone(peer.pid())) return failure(peer, ESRCH);
  return {};
}

}  // namespace kvferry::transport
