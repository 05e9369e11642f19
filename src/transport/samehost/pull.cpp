#include "transport/samehost/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/try.h"
#include "transport/samehost/streaming_copy.h"

namespace kvferry::transport {
namespace {

constexpr std::size_t iovecs_a_call_max = 1024;  // the kernel's IOV_MAX
constexpr std::size_t call_bytes_max = 1u << 20;
// A piece of the peer's memory costs the kernel a look at its page tables, which takes as long as copying a few KiB. So
// pieces below that are read in one stretch with what lies between them, which goes to memory that stays in the cache:
// small ones all into a block, from where they are copied, others straight into place with the gaps beside.
constexpr std::size_t bridged_piece_bytes = 4096;
constexpr std::size_t small_piece_bytes = 512;
constexpr std::size_t gap_bytes_max = 4095;  // no page that is not mapped lies in between
constexpr std::size_t block_bytes = 256u << 10;

bool in_pieces_below(std::size_t bytes, const layout::ViewRegion& region) {
  return !region.whole &&
         std::ranges::any_of(region.cut.strips, [bytes](const layout::Strip& strip) { return strip.bytes < bytes; });
}

// Where a piece at `data` begins after the end of the last one: 0 where nothing lies between that can be read along.
std::size_t gap_before(const std::byte* data, const std::byte* end) {
  if (end == nullptr || data <= end || data - end > static_cast<std::ptrdiff_t>(gap_bytes_max)) return 0;
  return static_cast<std::size_t>(data - end);
}

Error failure(const ReadablePeer& peer, int error) {
  const auto pid = peer.pid();
  if (error == ESRCH) return Error{Code::peer_lost, fmt::format("process {} of the peer is gone", pid)};
  if (error == EFAULT || error == 0) {
    return Error{Code::out_of_range,
                 fmt::format("memory of the chunk is not mapped in process {} of the peer: its engine has unmapped or "
                             "never mapped a registered region",
                             pid)};
  }
  const bool forbidden = error == EPERM || error == EACCES || error == ENOSYS;
  return Error{forbidden ? Code::unsupported : Code::internal,
               fmt::format("reading the memory of process {} of the peer failed: {}{}", pid, std::strerror(error),
                           forbidden ? "; the right to read it was there when the two linked" : "")};
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
  cut_source_.clear();
  cut_target_.clear();
  for (const Pull& pull : pulls) {
    for (std::size_t r = 0; r < pull.source.size(); ++r) {
      const PeerRegion& source = pull.source[r];
      const bool cut = !source.mapped && (in_pieces_below(small_piece_bytes, source.region) ||
                                          in_pieces_below(small_piece_bytes, pull.target[r]));
      if (!source.mapped && !cut && in_pieces_below(bridged_piece_bytes, source.region)) {
        bridge(source.region, pull.source_items, pull.target[r], pull.target_items);
        continue;
      }
      layout::append_pieces(source.region, pull.source_items,
                            source.mapped ? mapped_source_ : (cut ? cut_source_ : source_));
      layout::append_pieces(pull.target[r], pull.target_items,
                            source.mapped ? mapped_target_ : (cut ? cut_target_ : target_));
    }
  }
  copy_pieces(mapped_source_, mapped_target_);
  KVF_CHECK(read_process(peer, cancelled));
  return read_cut(peer, cancelled);
}

// Appends to `source_` and `target_` stretches that include what lies between the pieces, which goes to the block.
void Puller::bridge(const layout::ViewRegion& source, std::span<const std::int32_t> source_items,
                    const layout::ViewRegion& target, std::span<const std::int32_t> target_items) {
  block_.resize(block_bytes);
  bridged_source_.clear();
  bridged_target_.clear();
  layout::append_pieces(source, source_items, bridged_source_);
  layout::append_pieces(target, target_items, bridged_target_);
  Reader to{bridged_target_};
  const std::byte* end = nullptr;
  for (const layout::Piece& piece : bridged_source_) {
    if (const std::size_t gap = gap_before(piece.data, end); gap != 0) {
      source_.back().bytes += gap + piece.bytes;
      target_.push_back({block_.data(), gap});
    } else {
      source_.push_back(piece);
    }
    for (std::size_t left = piece.bytes; left > 0;) {
      const std::size_t step = std::min(left, to.left());
      target_.push_back({to.data(), step});
      to.advance(step);
      left -= step;
    }
    end = piece.data + piece.bytes;
  }
}

// Collects what the next block takes, from byte `offset` of piece `next` on: `remote_` is what is read, gaps included,
// `wanted_` where the pieces stand in the block. Returns the bytes to read.
std::size_t Puller::plan_block(std::size_t& next, std::size_t& offset) {
  remote_.clear();
  wanted_.clear();
  std::size_t used = 0;
  const std::byte* end = nullptr;
  while (next < cut_source_.size() && used < block_bytes) {
    const layout::Piece& piece = cut_source_[next];
    std::byte* const from = piece.data + offset;
    const std::size_t gap = gap_before(from, end);
    const bool bridged = gap != 0 || from == end;
    if (gap >= block_bytes - used || (!bridged && remote_.size() == iovecs_a_call_max)) break;
    const std::size_t step = std::min(piece.bytes - offset, block_bytes - used - gap);
    if (bridged) {
      remote_.back().iov_len += gap + step;
    } else {
      remote_.push_back({from, step});
    }
    wanted_.push_back({block_.data() + used + gap, step});
    used += gap + step;
    end = from + step;
    offset += step;
    if (offset < piece.bytes) break;  // the block is full
    ++next;
    offset = 0;
  }
  return used;
}

Result<void> Puller::read_cut(const ReadablePeer& peer, const std::atomic<bool>& cancelled) {
  if (cut_source_.empty()) return {};
  block_.resize(block_bytes);
  Reader to{cut_target_};
  std::size_t next = 0;
  std::size_t offset = 0;
  while (next < cut_source_.size() && !cancelled.load(std::memory_order_relaxed)) {
    const std::size_t wanted = plan_block(next, offset);
    Reader from{.pieces = {}, .next = 0, .offset = 0};
    std::vector<layout::Piece>& spans = source_;  // done with by now
    spans.clear();
    for (const iovec& one : remote_) spans.push_back({static_cast<std::byte*>(one.iov_base), one.iov_len});
    from.pieces = spans;
    for (std::size_t read = 0; read < wanted;) {
      from.gather(wanted - read, remote_);
      const iovec here{block_.data() + read, wanted - read};
      const ssize_t n = ::process_vm_readv(peer.pid(), &here, 1, remote_.data(), remote_.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return failure(peer, n < 0 ? errno : 0);
      from.advance(static_cast<std::size_t>(n));
      read += static_cast<std::size_t>(n);
    }
    for (const layout::Piece& piece : wanted_) {
      for (std::size_t done = 0; done < piece.bytes;) {
        const std::size_t step = std::min(piece.bytes - done, to.left());
        std::memcpy(to.data(), piece.data + done, step);
        to.advance(step);
        done += step;
      }
    }
  }
  return {};
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
  return {};
}

}  // namespace kvferry::transport
