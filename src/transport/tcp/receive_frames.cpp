#include "transport/tcp/receive_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/fair_queue.h"

namespace kvferry::transport {
namespace {
constexpr std::size_t iovecs_a_call_max = 1024;  // the kernel's IOV_MAX
// From this payload on, only the next header is read along: bytes that are staged are copied twice.
constexpr std::uint64_t large_payload_bytes = 131'072;
}  // namespace

ReceiveFrames::ReceiveFrames(const layout::View& view, SessionId session, MoverSink& sink, std::span<std::byte> scratch,
                             std::function<void()> fetch_opened)
    : view_(view),
      session_(session),
      sink_(sink),
      scratch_(scratch),
      fetch_opened_(std::move(fetch_opened)),
      windows_(view),
      stage_(stage_bytes_max) {
  for (std::uint32_t c = 0; c < view_.component_count(); ++c) {
    for (const layout::ViewRegion& region : view_.regions(c)) {
      payload_bytes_max_ = std::max(payload_bytes_max_, region.unit_bytes);
    }
  }
}

void ReceiveFrames::open(Window window) {
  const TransferId transfer = window.transfer;
  if (auto opened = windows_.open(std::move(window)); !opened) {
    sink_.post(Rejected{session_, transfer, std::move(opened.error())});
  }
}

void ReceiveFrames::close(TransferId transfer) {
  windows_.close(transfer);
  if (in_frame_ && transfer_ == transfer) dropping_ = true;
}

ReceiveFrames::Taken ReceiveFrames::read(int fd, std::int64_t budget_bytes) {
  Taken taken;
  while (taken.bytes < budget_bytes) {
    if (in_frame_ && left_bytes_ == 0) {
      end_frame();
      continue;
    }
    const std::size_t staged = stage_end_ - stage_begin_;
    if (in_frame_ && staged > 0) {
      take_staged();
      continue;
    }
    if (!in_frame_ && staged >= protocol::data_header_bytes) {
      taken.lost = begin_frame();
      if (taken.lost) return taken;
      continue;
    }
    const ssize_t n = read_more(fd);
    if (n > 0) {
      taken.bytes += n;
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    taken.blocked = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (taken.blocked) return taken;
    const std::string where = in_frame_ ? fmt::format(" with {} bytes of a frame missing", left_bytes_) : "";
    taken.lost = n == 0 ? Error{Code::peer_lost, "the peer closed the data stream" + where}
                        : Error{Code::peer_lost,
                                fmt::format("reading the data stream failed{}: {}", where, std::strerror(errno))};
    return taken;
  }
  // A frame whose last byte is here is complete now, not with the next byte of the stream.
  if (in_frame_ && left_bytes_ == 0) end_frame();
  return taken;
}

std::optional<Error> ReceiveFrames::begin_frame() {
  const auto bytes =
      std::span<const std::byte, protocol::data_header_bytes>(&stage_[stage_begin_], protocol::data_header_bytes);
  auto header = protocol::read_data_header(bytes);
  if (!header) return std::move(header.error());
  if (header->payload_bytes > payload_bytes_max_) {
    return Error{Code::protocol, fmt::format("a data frame says it carries {} bytes, at most {} can be",
                                             header->payload_bytes, payload_bytes_max_)};
  }
  stage_begin_ += protocol::data_header_bytes;
  if (!windows_.is_open(header->transfer)) fetch_opened_();
  if (header->kind == protocol::DataKind::end) {
    conclude_chunk(*header);
  } else {
    place_frame(*header);
  }
  return {};
}

void ReceiveFrames::place_frame(const protocol::DataHeader& header) {
  in_frame_ = true;
  transfer_ = header.transfer;
  payload_bytes_ = left_bytes_ = header.payload_bytes;
  pieces_.clear();
  piece_next_ = 0;
  auto target = windows_.on_bytes(header);
  dropping_ = !target || !*target;
  if (!target) sink_.post(Rejected{session_, header.transfer, std::move(target.error())});
  if (dropping_) return;
  for (const layout::ViewRegion& region : (*target)->regions) layout::append_pieces(region, (*target)->items, pieces_);
}

void ReceiveFrames::conclude_chunk(const protocol::DataHeader& header) {
  auto placed = windows_.on_end(header);
  if (!placed) {
    sink_.post(Rejected{session_, header.transfer, std::move(placed.error())});
  } else if (*placed) {
    sink_.post(std::move(**placed));
  }
}

void ReceiveFrames::end_frame() {
  in_frame_ = false;
  if (dropping_) return;
  if (const std::uint64_t bytes = windows_.landed(transfer_, payload_bytes_); bytes > 0) {
    sink_.post(Progress{session_, transfer_, bytes});
  }
}

// Moves payload that was read along with an earlier frame.
void ReceiveFrames::take_staged() {
  std::size_t staged = std::min<std::uint64_t>(stage_end_ - stage_begin_, left_bytes_);
  if (dropping_) {
    stage_begin_ += staged;
    left_bytes_ -= staged;
    return;
  }
  while (staged > 0) {
    const layout::Piece piece = pieces_[piece_next_];
    const std::size_t step = std::min(staged, piece.bytes);
    std::memcpy(piece.data, &stage_[stage_begin_], step);
    stage_begin_ += step;
    staged -= step;
    advance(step);
  }
}

// `bytes` of the payload are in place.
void ReceiveFrames::advance(std::size_t bytes) {
  left_bytes_ -= bytes;
  while (!dropping_ && bytes > 0) {
    layout::Piece& piece = pieces_[piece_next_];
    const std::size_t step = std::min(bytes, piece.bytes);
    piece.data += step;
    piece.bytes -= step;
    bytes -= step;
    if (piece.bytes == 0) ++piece_next_;
  }
}

// Collects where the rest of the payload goes, as far as one call takes it. Returns its bytes.
std::size_t ReceiveFrames::gather() {
  std::size_t payload = 0;
  const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(left_bytes_, quantum_bytes));
  if (dropping_) {
    payload = std::min(most, scratch_.size());
    iovecs_.push_back({scratch_.data(), payload});
    return payload;
  }
  for (std::size_t i = piece_next_; payload < most && iovecs_.size() < iovecs_a_call_max - 1; ++i) {
    const std::size_t step = std::min(pieces_[i].bytes, most - payload);
    iovecs_.push_back({pieces_[i].data, step});
    payload += step;
  }
  return payload;
}

ssize_t ReceiveFrames::read_more(int fd) {
  // What is staged is less than a header here, and nothing at all within a frame.
  const std::size_t staged = stage_end_ - stage_begin_;
  if (stage_begin_ > 0 && staged > 0) std::memmove(stage_.data(), &stage_[stage_begin_], staged);
  stage_begin_ = 0;
  stage_end_ = staged;
  iovecs_.clear();
  const std::size_t payload = in_frame_ ? gather() : 0;
  if (!in_frame_ || payload == left_bytes_) {
    const std::size_t ahead = payload_bytes_ >= large_payload_bytes ? protocol::data_header_bytes : stage_bytes_max;
    iovecs_.push_back({&stage_[staged], ahead - staged});
  }
  const ssize_t n = ::readv(fd, iovecs_.data(), static_cast<int>(iovecs_.size()));
  if (n <= 0) return n;
  const std::size_t placed = std::min(static_cast<std::size_t>(n), payload);
  if (placed > 0) advance(placed);
  stage_end_ += static_cast<std::size_t>(n) - placed;
  return n;
}

}  // namespace kvferry::transport
