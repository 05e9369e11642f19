#include "transport/tcp/send_frames.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/fair_queue.h"

namespace kvferry::transport {
namespace {
constexpr std::size_t iovecs_a_call_max = 1024;  // the kernel's IOV_MAX
constexpr std::size_t zeros_bytes = 65'536;
alignas(64) std::byte zeros[zeros_bytes];  // never written
// Below this, a copy of a piece costs less than what the kernel does for an iovec.
constexpr std::uint64_t small_piece_bytes = 1024;
constexpr std::size_t stage_bytes = 1u << 20;
}  // namespace

void SendFrames::add(ChunkOrder order) {
  if (auto settled = settle_order(view_, order); !settled) {
    sink_.post(Rejected{session_, order.transfer, std::move(settled.error())});
    return;
  }
  for (const ItemList& list : order.lists) {
    for (const layout::ViewRegion& region : view_.regions(list.component)) {
      if (auto fits = layout::check_items(list.items, region.unit_count, "source item"); !fits) {
        sink_.post(Rejected{session_, order.transfer, std::move(fits.error())});
        return;
      }
      if (list.component == layout::component_kv) break;  // every kv region has the same number of items
    }
  }
  const std::uint64_t key = order.transfer.value;
  Transfer& transfer = transfers_[key];
  if (transfer.jobs.empty()) ring_.push_back(key);
  transfer.jobs.push_back(std::make_unique<Job>(view_, std::move(order)));
}

void SendFrames::clear() {
  transfers_.clear();
  ring_.clear();
  frames_.clear();
  iovecs_.clear();
  frame_next_ = iovec_next_ = 0;
}

void SendFrames::stop(TransferId stopped) {
  transfers_.erase(stopped.value);
  std::erase(ring_, stopped.value);
  std::vector<Frame> frames;
  std::vector<iovec> iovecs;
  std::size_t at = iovec_next_;
  for (std::size_t i = frame_next_; i < frames_.size(); ++i) {
    Frame frame = frames_[i];
    const std::size_t count = frame.iovecs;
    const bool untouched = frame.left == frame.bytes;
    if (frame.transfer == stopped && untouched) {
      at += count;
      continue;
    }
    if (frame.transfer != stopped) {
      iovecs.insert(iovecs.end(), iovecs_.begin() + static_cast<std::ptrdiff_t>(at),
                    iovecs_.begin() + static_cast<std::ptrdiff_t>(at + count));
    } else {
      std::uint64_t left = frame.left;
      frame.progress_bytes = 0;
      frame.end = false;
      const std::uint64_t payload = frame.bytes - protocol::data_header_bytes;
      if (left > payload) {  // the rest of the header stands in front
        iovecs.push_back(iovecs_[at]);
        left = payload;
      }
      for (; left > 0; left -= iovecs.back().iov_len) {
        iovecs.push_back({zeros, std::min<std::size_t>(left, zeros_bytes)});
      }
      frame.iovecs = iovecs.size();  // only the first frame of the batch can be half written
    }
    at += count;
    frames.push_back(frame);
  }
  frames_ = std::move(frames);
  iovecs_ = std::move(iovecs);
  frame_next_ = iovec_next_ = 0;
}

void SendFrames::fill() {
  stage_used_ = 0;
  frames_.clear();
  iovecs_.clear();
  frame_next_ = iovec_next_ = 0;
  std::uint64_t bytes = 0;
  while (!ring_.empty() && frames_.size() < frames_a_batch_max && iovecs_.size() < iovecs_a_call_max &&
         bytes < static_cast<std::uint64_t>(quantum_bytes)) {
    const std::uint64_t key = ring_.front();
    ring_.pop_front();
    const auto found = transfers_.find(key);
    add_frame(TransferId{key}, found->second);
    bytes += frames_.back().bytes;
    if (found->second.jobs.empty()) {
      transfers_.erase(found);
    } else {
      ring_.push_back(key);
    }
  }
}

void SendFrames::add_frame(TransferId id, Transfer& transfer) {
  Job& job = *transfer.jobs.front();
  const protocol::ChunkSpan& span = job.order.span;
  std::array<std::byte, protocol::data_header_bytes>& space = headers_[frames_.size()];
  const std::size_t iovecs_before = iovecs_.size();
  iovecs_.push_back({space.data(), space.size()});
  protocol::DataHeader header{.last = span.last, .transfer = id, .number = span.number};
  Frame frame{.transfer = id, .number = span.number, .bytes = protocol::data_header_bytes};
  if (job.cursor.done()) {
    header.kind = protocol::DataKind::end;
    header.position_begin = span.position_begin;
    header.position_end = span.position_end;
    header.region_begin = span.region_begin;
    header.region_end = span.region_end;
    frame.end = true;
    frame.chunk_bytes = job.cursor.bytes();
    transfer.jobs.pop_front();
  } else {
    const Part part = job.cursor.next(protocol::data_payload_bytes_max, pieces_a_frame_max);
    const std::uint64_t first = part.component == layout::component_kv ? span.position_begin : 0;
    header.component = part.component;
    header.position_begin = first + part.item_begin;
    header.position_end = first + part.item_end;
    header.region_begin = part.region_begin;
    header.region_end = part.region_end;
    header.payload_bytes = part.bytes;
    frame.bytes += part.bytes;
    transfer.unreported_bytes += part.bytes;
    if (transfer.unreported_bytes >= (1u << 20)) frame.progress_bytes = std::exchange(transfer.unreported_bytes, 0);
    add_payload(job, part);
  }
  protocol::write_data_header(header, space);
  frame.left = frame.bytes;
  frame.iovecs = iovecs_.size() - iovecs_before;
  frames_.push_back(frame);
}

void SendFrames::add_payload(const Job& job, const Part& part) {
  const auto regions = view_.regions(part.component);
  const auto items =
      std::span(job.order.lists[part.list].items).subspan(part.item_begin, part.item_end - part.item_begin);
  pieces_.clear();
  for (std::uint32_t r = part.region_begin; r < part.region_end; ++r) layout::append_pieces(regions[r], items, pieces_);
  if (part.bytes < pieces_.size() * small_piece_bytes && part.bytes <= stage_bytes - stage_used_) return stage();
  for (const layout::Piece& piece : pieces_) iovecs_.push_back({piece.data, piece.bytes});
}

// Gathers the small pieces of a frame, which then leave as one.
void SendFrames::stage() {
  stage_.resize(stage_bytes);  // once a session
  const std::size_t first = stage_used_;
  for (const layout::Piece& piece : pieces_) {
    std::memcpy(&stage_[stage_used_], piece.data, piece.bytes);
    stage_used_ += piece.bytes;
  }
  iovecs_.push_back({&stage_[first], stage_used_ - first});
}

// How many iovecs the next call takes. The last one is cut by `cut_bytes` so that a call stays below `bytes_max`.
std::size_t SendFrames::gather(std::int64_t bytes_max, std::size_t& wanted_bytes, std::size_t& cut_bytes) {
  const auto most = static_cast<std::size_t>(bytes_max);
  const std::size_t count_max = std::min(iovecs_.size() - iovec_next_, iovecs_a_call_max);
  std::size_t count = 0;
  wanted_bytes = 0;
  cut_bytes = 0;
  while (count < count_max && wanted_bytes < most) wanted_bytes += iovecs_[iovec_next_ + count++].iov_len;
  if (wanted_bytes > most) {
    cut_bytes = wanted_bytes - most;
    wanted_bytes = most;
  }
  return count;
}

SendFrames::Written SendFrames::write(int fd, std::int64_t budget_bytes) {
  Written written;
  while (written.bytes < budget_bytes) {
    if (frame_next_ == frames_.size()) fill();
    if (frames_.empty()) return written;
    std::size_t wanted = 0;
    std::size_t cut = 0;
    // The frames of a batch and their headers may exceed a quantum by a little; cutting there would cost a call.
    const std::size_t count = gather(quantum_bytes + (quantum_bytes >> 4), wanted, cut);
    msghdr message{};
    message.msg_iov = &iovecs_[iovec_next_];
    message.msg_iovlen = count;
    iovec& tail = iovecs_[iovec_next_ + count - 1];
    tail.iov_len -= cut;
    const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    tail.iov_len += cut;
    if (n < 0) {
      if (errno == EINTR) continue;
      written.blocked = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!written.blocked) written.error = errno;
      return written;
    }
    written.bytes += n;
    sent(static_cast<std::size_t>(n));
  }
  return written;
}

void SendFrames::sent(std::size_t bytes) {
  std::size_t left = bytes;
  while (left > 0) {
    iovec& front = iovecs_[iovec_next_];
    const std::size_t step = std::min(left, front.iov_len);
    front.iov_base = static_cast<std::byte*>(front.iov_base) + step;
    front.iov_len -= step;
    left -= step;
    Frame& frame = frames_[frame_next_];
    frame.left -= step;
    if (front.iov_len > 0) continue;
    ++iovec_next_;
    --frame.iovecs;
    if (frame.left == 0) {
      ++frame_next_;
      finish(frame);
    }
  }
}

void SendFrames::finish(const Frame& frame) {
  if (frame.progress_bytes > 0) sink_.post(Progress{session_, frame.transfer, frame.progress_bytes});
  if (frame.end) sink_.post(Pushed{session_, frame.transfer, frame.number, frame.chunk_bytes});
}

}  // namespace kvferry::transport
