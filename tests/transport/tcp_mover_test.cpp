#include "transport/tcp/tcp_mover.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "support.h"

namespace kvferry::transport {
namespace {

using protocol::DataHeader;
using protocol::DataKind;

// A sender and a receiver in one process, one session between them.
struct Ends {
  TestSink at_source;
  TestSink at_target;
  std::unique_ptr<TcpMover> source;
  std::unique_ptr<TcpMover> target;
  Ends(const Memory& from, const Memory& to)
      : source(TcpMover::create(2, at_source)), target(TcpMover::create(2, at_target)) {
    auto [left, right] = tcp_pair();
    source->open_session(session_1, std::move(left), layout::View::of(from));
    target->open_session(session_1, std::move(right), layout::View::of(to));
  }
};

// A receiver whose peer is the test's own socket.
struct RawPeer {
  TestSink sink;
  std::unique_ptr<TcpMover> target;
  os::Fd fd;
  explicit RawPeer(const Memory& to) : target(TcpMover::create(2, sink)) {
    auto [left, right] = tcp_pair();
    fd = std::move(left);
    target->open_session(session_1, std::move(right), layout::View::of(to));
  }
  void hang_up() { fd.reset(); }
};

TEST(TcpMover, every_byte_of_every_chunk_is_right) {
  const bool held = rc::check("random chunks", [] {
    const auto regions = *rc::gen::inRange<std::size_t>(1, 6);
    const auto count = *rc::gen::inRange<std::size_t>(0, 60);
    const auto chunks = *rc::gen::inRange<std::size_t>(1, 5);
    const auto prefix = *rc::gen::inRange<std::uint64_t>(0, 9);
    const auto item = *rc::gen::element<std::size_t>(1, 48, 4096, 65'536);
    const auto seed = *rc::gen::inRange(0, 1000);
    const auto useed = static_cast<unsigned>(seed);
    TestMemory from(64, std::vector<std::size_t>(regions, item), {24, 100}, {{40}, {7, 8}});
    TestMemory to(64, std::vector<std::size_t>(regions, item), {24, 100}, {{40}, {7, 8}});
    from.fill(useed);
    const auto source_items = shuffled(count, 64, useed);
    const auto target_items = shuffled(count, 64, useed + 1);
    const std::vector<std::int32_t> state_from = shuffled(5, 64, useed + 2);
    const std::vector<std::int32_t> state_to = shuffled(5, 64, useed + 3);
    Ends ends(from.memory, to.memory);
    ends.target->open_window(
        Window{session_1, transfer_1, prefix, {{0, target_items}, {1, {9}}, {2, state_to}, {3, {1}}}});
    std::uint64_t bytes = 0;
    for (std::uint32_t c = 0; c < chunks; ++c) {
      const std::size_t begin = count * c / chunks;
      const std::size_t end = count * (c + 1) / chunks;
      ChunkOrder order{session_1, transfer_1, {}, {}};
      order.span = {c, prefix + begin, prefix + end, 0, static_cast<std::uint32_t>(regions), c + 1 == chunks};
      order.lists.push_back({0,
                             {source_items.begin() + static_cast<std::ptrdiff_t>(begin),
                              source_items.begin() + static_cast<std::ptrdiff_t>(end)}});
      if (order.span.last) {
        order.lists.push_back({1, {3}});
        order.lists.push_back({2, state_from});
        order.lists.push_back({3, {2}});
      }
      ends.source->move(order);
    }
    for (std::uint32_t c = 0; c < chunks; ++c) {
      const auto placed = ends.at_target.wait<Placed>();
      RC_ASSERT(placed.has_value());
      RC_ASSERT(placed->span.number == c);
      RC_ASSERT(placed->with_aux == (c + 1 == chunks));
      bytes += placed->bytes;
      if (c + 1 == chunks) RC_ASSERT(placed->state_items == (std::vector<std::uint64_t>{5, 1}));
      RC_ASSERT(ends.at_source.wait<Pushed>().has_value());
    }
    RC_ASSERT(bytes == count * regions * item + 124 + 5 * 40 + 15);
    RC_ASSERT(same_items(from.memory.kv, source_items, to.memory.kv, target_items));
    RC_ASSERT(same_items(from.memory.aux, {3}, to.memory.aux, {9}));
    RC_ASSERT(same_items(from.memory.state[0].regions, state_from, to.memory.state[0].regions, state_to));
    RC_ASSERT(same_items(from.memory.state[1].regions, {2}, to.memory.state[1].regions, {1}));
  });
  EXPECT_TRUE(held);
}

TEST(TcpMover, nothing_outside_the_window_is_touched) {
  TestMemory from(16, {4096, 4096});
  TestMemory to(16, {4096, 4096});
  from.fill(1);
  to.fill(2);
  const auto before = to.buffers;
  Ends ends(from.memory, to.memory);
  ends.target->open_window(Window{session_1, transfer_1, 0, {{0, {3, 9}}}});
  ends.source->move(ChunkOrder{session_1, transfer_1, {0, 0, 2, 0, 2, true}, {{0, {1, 2}}}});
  ASSERT_TRUE(ends.at_target.wait<Placed>());
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < 16; ++i) {
      const bool granted = i == 3 || i == 9;
      const bool same = std::memcmp(&to.buffers[r][i * 4096], &before[r][i * 4096], 4096) == 0;
      EXPECT_NE(same, granted) << "region " << r << " item " << i;
    }
  }
}

TEST(TcpMover, items_larger_than_a_frame_pass) {
  TestMemory from(3, {3 << 20});
  TestMemory to(3, {3 << 20});
  from.fill(1);
  Ends ends(from.memory, to.memory);
  ends.target->open_window(Window{session_1, transfer_1, 0, {{0, {2, 0}}}});
  ends.source->move(ChunkOrder{session_1, transfer_1, {0, 0, 2, 0, 1, true}, {{0, {1, 2}}}});
  ASSERT_TRUE(ends.at_target.wait<Placed>());
  EXPECT_TRUE(same_items(from.memory.kv, {1, 2}, to.memory.kv, {2, 0}));
  EXPECT_GT(ends.at_target.count<Progress>(), 0u);
}

TEST(TcpMover, a_huge_room_does_not_delay_a_small_one) {
  TestMemory from(1024, {65'536});
  TestMemory to(1024, {65'536});
  Ends ends(from.memory, to.memory);
  ends.target->open_window(Window{session_1, transfer_1, 0, {{0, shuffled(1000, 1000, 1)}}});
  ends.target->open_window(Window{session_1, transfer_2, 0, {{0, {1001}}}});
  ends.source->move(ChunkOrder{session_1, transfer_1, {0, 0, 1000, 0, 1, true}, {{0, shuffled(1000, 1000, 1)}}});
  ends.source->move(ChunkOrder{session_1, transfer_2, {0, 0, 1, 0, 1, true}, {{0, {1001}}}});
  const auto first = ends.at_target.wait<Placed>();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->transfer, transfer_2);
  ASSERT_TRUE(ends.at_target.wait<Placed>(transfer_1));
}

TEST(TcpMover, no_byte_lands_after_a_window_closed) {
  TestMemory to(512, {65'536});
  RawPeer peer(to.memory);
  peer.target->open_window(Window{session_1, transfer_1, 0, {{0, shuffled(512, 512, 1)}}});
  // Half a frame arrives, the window closes, then the other half.
  std::vector<std::byte> frame(protocol::data_header_bytes + (1 << 20), std::byte{0x5a});
  protocol::write_data_header({DataKind::bytes, false, transfer_1, 0, 0, 0, 16, 0, 1, 1 << 20},
                              std::span<std::byte, protocol::data_header_bytes>(frame.data(), 64));
  write_all(peer.fd, frame.data(), 300'000);
  peer.target->close_window(session_1, transfer_1);
  ASSERT_TRUE(peer.sink.wait<WindowClosed>(transfer_1));
  to.fill(7);
  const auto kept = to.buffers;
  write_all(peer.fd, frame.data() + 300'000, frame.size() - 300'000);
  // The stream is still in step: the next transfer passes.
  peer.target->open_window(Window{session_1, transfer_2, 0, {{0, {500}}}});
  write_frame(peer.fd, {DataKind::bytes, true, transfer_2, 0, 0, 0, 1, 0, 1, 65'536});
  write_frame(peer.fd, {DataKind::end, true, transfer_2, 0, 0, 0, 1, 0, 1, 0});
  ASSERT_TRUE(peer.sink.wait<Placed>(transfer_2));
  for (std::size_t i = 0; i < 512; ++i) {
    if (i == 500) continue;
    ASSERT_EQ(std::memcmp(&to.buffers[0][i * 65'536], &kept[0][i * 65'536], 65'536), 0) << i;
  }
}

TEST(TcpMover, after_stopped_the_pages_are_not_read_and_the_stream_goes_on) {
  TestMemory from(512, {65'536});
  TestMemory to(512, {65'536});
  std::memset(from.buffers[0].data(), 1, from.buffers[0].size());
  Ends ends(from.memory, to.memory);
  ends.target->open_window(Window{session_1, transfer_1, 0, {{0, shuffled(500, 500, 1)}}});
  ends.source->move(ChunkOrder{session_1, transfer_1, {0, 0, 500, 0, 1, true}, {{0, shuffled(500, 500, 2)}}});
  ends.source->stop(session_1, transfer_1);
  ASSERT_TRUE(ends.at_source.wait<Stopped>(transfer_1));
  std::memset(from.buffers[0].data(), 2, from.buffers[0].size());
  ends.target->open_window(Window{session_1, transfer_2, 0, {{0, {511}}}});
  ends.source->move(ChunkOrder{session_1, transfer_2, {0, 0, 1, 0, 1, true}, {{0, {510}}}});
  ASSERT_TRUE(ends.at_target.wait<Placed>(transfer_2));
  EXPECT_EQ(to.buffers[0][511 * 65'536], std::byte{2});
  EXPECT_FALSE(contains(to.buffers[0].data(), 500 * 65'536, std::byte{2})) << "a page was read after Stopped";
  EXPECT_EQ(ends.at_target.count<SessionLost>(), 0u);
}

TEST(TcpMover, a_stopped_frame_that_is_half_written_is_filled_up) {
  TestMemory from(64, {1 << 20});
  std::memset(from.buffers[0].data(), 1, from.buffers[0].size());
  TestSink sink;
  auto mover = TcpMover::create(2, sink);
  auto [left, right] = tcp_pair();
  mover->open_session(session_1, std::move(left), layout::View::of(from.memory));
  // Nobody reads, so the socket fills up in the middle of a frame.
  mover->move(ChunkOrder{session_1, transfer_1, {0, 0, 60, 0, 1, true}, {{0, shuffled(60, 60, 1)}}});
  ASSERT_TRUE(sink.wait<Progress>());
  mover->stop(session_1, transfer_1);
  ASSERT_TRUE(sink.wait<Stopped>(transfer_1));
  std::memset(from.buffers[0].data(), 2, from.buffers[0].size());
  mover->move(ChunkOrder{session_1, transfer_2, {0, 0, 1, 0, 1, true}, {{0, {63}}}});
  std::vector<std::byte> bytes(protocol::data_header_bytes + (1 << 20));
  bool ended = false;
  while (!ended) {
    ASSERT_EQ(::recv(right.get(), bytes.data(), 64, MSG_WAITALL), 64);
    const auto header = protocol::read_data_header(std::span<const std::byte, 64>(bytes.data(), 64));
    ASSERT_TRUE(header) << header.error().text;
    ended = header->kind == DataKind::end;
    if (ended) {
      EXPECT_EQ(header->transfer, transfer_2) << "a stopped chunk never ends";
      continue;
    }
    ASSERT_EQ(::recv(right.get(), bytes.data(), header->payload_bytes, MSG_WAITALL),
              static_cast<ssize_t>(header->payload_bytes));
    const bool changed = contains(bytes.data(), header->payload_bytes, std::byte{2});
    EXPECT_EQ(changed, header->transfer == transfer_2);
  }
  right.reset();
}

TEST(TcpMover, a_closed_stream_loses_the_session_once_and_everything_is_still_answered) {
  TestMemory to(8, {4096});
  RawPeer peer(to.memory);
  peer.target->open_window(Window{session_1, transfer_1, 0, {{0, {1, 2}}}});
  std::vector<std::byte> frame(protocol::data_header_bytes + 8192, std::byte{0x5a});
  protocol::write_data_header({DataKind::bytes, false, transfer_1, 0, 0, 0, 2, 0, 1, 8192},
                              std::span<std::byte, protocol::data_header_bytes>(frame.data(), 64));
  write_all(peer.fd, frame.data(), 5000);
  peer.hang_up();
  const auto lost = peer.sink.wait<SessionLost>();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->error.code, Code::peer_lost);
  EXPECT_NE(lost->error.text.find("missing"), std::string::npos) << lost->error.text;
  peer.target->close_window(session_1, transfer_1);
  EXPECT_TRUE(peer.sink.wait<WindowClosed>(transfer_1));
  peer.target->stop(session_1, transfer_1);
  EXPECT_TRUE(peer.sink.wait<Stopped>(transfer_1));
  peer.target->close_session(session_1);
  EXPECT_TRUE(peer.sink.wait<SessionClosed>());
  EXPECT_EQ(peer.sink.count<SessionLost>(), 0u);
}

TEST(TcpMover, a_malformed_header_loses_the_session) {
  TestMemory to(8, {4096});
  DataHeader huge{DataKind::bytes, false, transfer_1, 0, 0, 0, 1, 0, 1, std::uint64_t{1} << 40};
  for (int kind = 0; kind < 2; ++kind) {
    RawPeer peer(to.memory);
    std::array<std::byte, 64> bytes{};
    protocol::write_data_header(huge, bytes);
    if (kind == 1) std::memcpy(bytes.data(), "GET / HTTP/1.1", 14);
    write_all(peer.fd, bytes.data(), bytes.size());
    const auto lost = peer.sink.wait<SessionLost>();
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->error.code, Code::protocol);
  }
}

TEST(TcpMover, frames_outside_their_grant_fail_that_transfer_alone) {
  TestMemory to(8, {4096, 4096});
  const std::vector<DataHeader> wrong = {
      {DataKind::bytes, false, transfer_1, 0, 0, 0, 1, 0, 1, 4095},    // length
      {DataKind::bytes, false, transfer_1, 0, 0, 1, 3, 0, 1, 8192},    // positions
      {DataKind::bytes, false, transfer_1, 0, 0, 0, 1, 2, 3, 4096},    // region
      {DataKind::bytes, false, transfer_1, 0, 5, 0, 1, 0, 1, 4096},    // component
      {DataKind::end, false, transfer_1, 0, 0, 0, 2, 0, 2, 0},         // nothing came
      {DataKind::end, true, transfer_1, 0, 0, 0, 9'000'000, 0, 2, 0},  // more than was granted
  };
  for (const DataHeader& header : wrong) {
    RawPeer peer(to.memory);
    peer.target->open_window(Window{session_1, transfer_1, 0, {{0, {1, 2}}}});
    peer.target->open_window(Window{session_1, transfer_2, 0, {{0, {3}}}});
    write_frame(peer.fd, header);
    const auto rejected = peer.sink.wait<Rejected>(transfer_1);
    ASSERT_TRUE(rejected);
    write_frame(peer.fd, {DataKind::bytes, true, transfer_2, 0, 0, 0, 1, 0, 2, 8192});
    write_frame(peer.fd, {DataKind::end, true, transfer_2, 0, 0, 0, 1, 0, 2, 0});
    ASSERT_TRUE(peer.sink.wait<Placed>(transfer_2)) << rejected->error.text;
    EXPECT_EQ(peer.sink.count<SessionLost>(), 0u);
  }
}

TEST(TcpMover, an_order_that_its_memory_cannot_mean_is_rejected) {
  TestMemory from(8, {4096});
  Ends ends(from.memory, from.memory);
  ends.source->move(ChunkOrder{session_1, transfer_1, {0, 0, 1, 0, 1, true}, {{0, {8}}}});
  EXPECT_TRUE(ends.at_source.wait<Rejected>(transfer_1));
  ends.source->move(ChunkOrder{session_1, transfer_2, {0, 0, 2, 0, 1, true}, {{0, {1}}}});
  EXPECT_TRUE(ends.at_source.wait<Rejected>(transfer_2));
}

}  // namespace
}  // namespace kvferry::transport
