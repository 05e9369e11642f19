// The receiving half of a stream: every frame is checked against its window, its payload goes straight into the pages.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvferry/result.h"
#include "layout/view.h"
#include "protocol/data_frame.h"
#include "transport/mover.h"
#include "transport/window_table.h"

namespace kvferry::transport {

// A resource of one data thread, which alone calls it.
class ReceiveFrames {
 public:
  // `fetch_opened` hands over windows that were opened since the thread last looked (by calling `open`).
  // `scratch` takes what is dropped; sessions of one thread share it.
  ReceiveFrames(const layout::View& view, SessionId session, MoverSink& sink, std::span<std::byte> scratch,
                std::function<void()> fetch_opened);
  ReceiveFrames(const ReceiveFrames&) = delete;
  ReceiveFrames& operator=(const ReceiveFrames&) = delete;

  void open(Window window);
  // No byte of the transfer is placed after this; what is left of its frame goes to the scratch memory.
  void close(TransferId transfer);

  struct Taken {
    std::int64_t bytes = 0;
    bool blocked = false;         // nothing more to read for now
    std::optional<Error> lost{};  // the stream has ended, or cannot be understood
  };
  Taken read(int fd, std::int64_t budget_bytes);

 private:
  static constexpr std::size_t stage_bytes_max = 65'536;

  std::optional<Error> begin_frame();
  void place_frame(const protocol::DataHeader& header);
  void conclude_chunk(const protocol::DataHeader& header);
  void end_frame();
  void take_staged();
  void advance(std::size_t bytes);
  std::size_t gather();
  ssize_t read_more(int fd);

  const layout::View& view_;
  const SessionId session_;
  MoverSink& sink_;
  const std::span<std::byte> scratch_;
  const std::function<void()> fetch_opened_;
  WindowTable windows_;
  std::uint64_t payload_bytes_max_ = protocol::data_payload_bytes_max;

  // The frame under way.
  bool in_frame_ = false;
  bool dropping_ = false;  // its payload goes to the scratch memory
  TransferId transfer_;
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t left_bytes_ = 0;
  std::vector<layout::Piece> pieces_;  // where its payload goes
  std::size_t piece_next_ = 0;

  // What was read beyond the frame: the next header, and where frames are small, many of them.
  std::vector<std::byte> stage_;
  std::size_t stage_begin_ = 0;
  std::size_t stage_end_ = 0;
  std::vector<iovec> iovecs_;
};

}  // namespace kvferry::transport
