// The sending half of a stream: chunk orders become frames, frames become few large system calls.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "layout/view.h"
#include "protocol/data_frame.h"
#include "transport/chunk_cursor.h"
#include "transport/mover.h"

namespace kvferry::transport {

// A resource of one data thread, which alone calls it. Transfers take turns by the frame, so that a huge room does not
// delay small ones; chunks of one transfer go in order.
class SendFrames {
 public:
  SendFrames(const layout::View& view, SessionId session, MoverSink& sink)
      : view_(view), session_(session), sink_(sink), headers_(frames_a_batch_max) {}
  SendFrames(const SendFrames&) = delete;
  SendFrames& operator=(const SendFrames&) = delete;

  void add(ChunkOrder order);
  // No page of the transfer is read after this. A frame that is half written goes on from zeros, so that the stream
  // stays in step; its end never follows.
  void stop(TransferId transfer);
  // Drops everything; nothing is read any more.
  void clear();
  bool idle() const { return frame_next_ == frames_.size() && ring_.empty(); }

  struct Written {
    std::int64_t bytes = 0;
    bool blocked = false;  // the socket takes no more for now
    int error = 0;         // errno where the stream is broken
  };
  Written write(int fd, std::int64_t budget_bytes);

 private:
  static constexpr std::size_t frames_a_batch_max = 512;
  static constexpr std::size_t pieces_a_frame_max = 1000;  // a frame and its header fit one system call

  struct Job {
    Job(const layout::View& view, ChunkOrder its_order) : order(std::move(its_order)), cursor(view, order) {}
    ChunkOrder order;
    ChunkCursor cursor;
  };
  struct Transfer {
    std::deque<std::unique_ptr<Job>> jobs;  // the cursor points into its job, so jobs stay where they are
    std::uint64_t unreported_bytes = 0;
  };
  // A frame of the batch that is being written.
  struct Frame {
    TransferId transfer;
    std::uint32_t number = 0;
    bool end = false;
    std::uint64_t chunk_bytes = 0;     // of the whole chunk; reported with its end
    std::uint64_t progress_bytes = 0;  // to report when the frame has left
    std::uint64_t bytes = 0;           // header included
    std::uint64_t left = 0;
    std::size_t iovecs = 0;
  };

  void fill();
  void add_frame(TransferId id, Transfer& transfer);
  void add_payload(const Job& job, const Part& part);
  void stage();
  std::size_t gather(std::int64_t bytes_max, std::size_t& wanted_bytes, std::size_t& cut_bytes);
  void sent(std::size_t bytes);
  void finish(const Frame& frame);

  const layout::View& view_;
  const SessionId session_;
  MoverSink& sink_;

  std::unordered_map<std::uint64_t, Transfer> transfers_;  // those with jobs
  std::deque<std::uint64_t> ring_;                         // the same, in the order of their turns

  // The batch: whole frames, at most 1 MiB and one frame.
  std::vector<std::array<std::byte, protocol::data_header_bytes>> headers_;
  std::vector<Frame> frames_;
  std::size_t frame_next_ = 0;
  std::vector<iovec> iovecs_;
  std::size_t iovec_next_ = 0;
  std::vector<layout::Piece> pieces_;
  std::vector<std::byte> stage_;  // small pieces of the batch, gathered; allocated once there are some
  std::size_t stage_used_ = 0;
};

}  // namespace kvferry::transport
