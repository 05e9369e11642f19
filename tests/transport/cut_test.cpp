// Sessions that move parts of their pages: every byte goes where the two cuts say, and no other byte is touched.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "support.h"
#include "transport/samehost/samehost_mover.h"
#include "transport/tcp/tcp_mover.h"

namespace kvferry::transport {
namespace {

constexpr std::size_t items = 24;

// One region as the two sides see it: the same runs, at different places.
struct CutPair {
  std::size_t source_item = 0;
  std::size_t target_item = 0;
  layout::RegionCut source;
  layout::RegionCut target;
};

// A cut of `count` runs of `bytes` with room around and between them; also how long the item is.
layout::RegionCut any_cut(std::uint32_t region, std::uint64_t bytes, std::uint64_t count, std::size_t& item_bytes) {
  const auto offset = *rc::gen::element<std::uint64_t>(0, 1, 64, 5000);
  const auto gap = *rc::gen::element<std::uint64_t>(0, 1, 128, 4095, 4096, 9000);
  const std::uint64_t stride = bytes + gap;
  item_bytes = offset + count * stride + *rc::gen::inRange<std::size_t>(0, 3);
  return {.region = region, .units = 1, .unit_step = item_bytes, .strips = {{offset, bytes, stride, count}}};
}

CutPair any_pair(std::uint32_t region) {
  CutPair pair;
  const auto bytes = *rc::gen::element<std::uint64_t>(1, 7, 128, 1000, 4096, 70'000);
  const auto count = *rc::gen::inRange<std::uint64_t>(1, bytes > 4096 ? 6 : 70);
  pair.source = any_cut(region, bytes, count, pair.source_item);
  pair.target = any_cut(region, bytes, count, pair.target_item);
  if (*rc::gen::arbitrary<bool>()) {  // one side in one piece, as the wider of two engines has it
    pair.target = {.region = region, .units = 1, .unit_step = bytes * count, .strips = {{.bytes = bytes * count}}};
    pair.target_item = bytes * count;
  }
  return pair;
}

std::vector<std::byte> bytes_of(const layout::ViewRegion& region, const std::vector<std::int32_t>& list) {
  std::vector<layout::Piece> pieces;
  layout::append_pieces(region, list, pieces);
  std::vector<std::byte> bytes;
  for (const layout::Piece& piece : pieces) bytes.insert(bytes.end(), piece.data, piece.data + piece.bytes);
  return bytes;
}

struct Sides {
  explicit Sides(const std::vector<CutPair>& pairs)
      : from(items, sizes(pairs, &CutPair::source_item)), to(items, sizes(pairs, &CutPair::target_item)) {
    for (const CutPair& pair : pairs) {
      source_cuts.push_back(pair.source);
      target_cuts.push_back(pair.target);
    }
    source = layout::View::of(from.memory, source_cuts, {});
    target = layout::View::of(to.memory, target_cuts, {});
  }
  static std::vector<std::size_t> sizes(const std::vector<CutPair>& pairs, std::size_t CutPair::*which) {
    std::vector<std::size_t> all;
    for (const CutPair& pair : pairs) all.push_back(pair.*which);
    return all;
  }
  TestMemory from;
  TestMemory to;
  std::vector<layout::RegionCut> source_cuts;
  std::vector<layout::RegionCut> target_cuts;
  layout::View source;
  layout::View target;
};

// What must stand in the target afterwards, region by region.
std::vector<std::vector<std::byte>> expected(Sides& sides, const std::vector<std::int32_t>& pages,
                                             const std::vector<std::int32_t>& slots) {
  std::vector<std::vector<std::byte>> buffers(
      sides.to.buffers.begin(), sides.to.buffers.begin() + static_cast<std::ptrdiff_t>(sides.to.memory.kv.size()));
  for (std::size_t r = 0; r < sides.source_cuts.size(); ++r) {
    const std::vector<std::byte> bytes = bytes_of(sides.source.regions(0)[r], pages);
    Region copy = sides.to.memory.kv[r];
    copy.base = buffers[r].data();
    std::vector<layout::Piece> pieces;
    layout::append_pieces(layout::ViewRegion::of(copy, sides.target_cuts[r]), slots, pieces);
    std::size_t at = 0;
    for (const layout::Piece& piece : pieces) {
      std::memcpy(piece.data, &bytes.at(at), piece.bytes);
      at += piece.bytes;
    }
  }
  return buffers;
}

template <class Start>
void check(Start start) {
  const auto regions = *rc::gen::inRange<std::uint32_t>(1, 4);
  std::vector<CutPair> pairs;
  for (std::uint32_t r = 0; r < regions; ++r) pairs.push_back(any_pair(r));
  Sides sides(pairs);
  const auto seed = static_cast<unsigned>(*rc::gen::inRange(0, 1000));
  sides.from.fill(seed);
  const auto count = *rc::gen::inRange<std::size_t>(1, items + 1);
  const auto pages = shuffled(count, items, seed);
  const auto slots = shuffled(count, items, seed + 1);
  const auto wanted = expected(sides, pages, slots);
  TestSink sink;
  TestSink sender_sink;
  const ChunkOrder order{session_1, transfer_1, {0, 0, count, 0, regions, true}, {{0, pages}}};
  const auto movers = start(sides, sink, sender_sink, Window{session_1, transfer_1, 0, {{0, slots}}}, order);
  const auto placed = sink.wait<Placed>();
  RC_ASSERT(placed.has_value());
  std::uint64_t bytes = 0;
  for (const layout::ViewRegion& region : sides.source.regions(0)) bytes += region.unit_bytes * count;
  RC_ASSERT(placed->bytes == bytes);
  for (std::size_t r = 0; r < regions; ++r) RC_ASSERT(sides.to.buffers[r] == wanted[r]);
}

TEST(Cuts, move_over_tcp) {
  EXPECT_TRUE(rc::check("every byte", [] {
    check([](Sides& sides, TestSink& sink, TestSink& sender_sink, Window window, const ChunkOrder& order) {
      auto [left, right] = tcp_pair();
      std::pair movers(TcpMover::create(2, sender_sink), TcpMover::create(2, sink));
      movers.first->open_session(session_1, std::move(left), sides.source);
      movers.second->open_session(session_1, std::move(right), sides.target);
      movers.second->open_window(std::move(window));
      movers.first->move(order);
      return movers;
    });
  }));
}

TEST(Cuts, move_on_the_same_host) {
  EXPECT_TRUE(rc::check("every byte", [] {
    check([](Sides& sides, TestSink& sink, TestSink&, Window window, const ChunkOrder& order) {
      auto peer = open_peer_memory(own_same_host(), "", describe_regions(sides.from.memory), {}, 5000);
      RC_ASSERT(peer.has_value());
      RC_ASSERT((*peer)->see(sides.source_cuts, {}).has_value());
      auto mover = SameHostMover::create(2, sink);
      mover->open_session(session_1, std::move(*peer), sides.target);
      mover->open_window(std::move(window));
      mover->move(order);
      return mover;
    });
  }));
}

TEST(Cuts, that_reach_past_what_the_peer_has_are_refused) {
  TestMemory from(4, {64});
  auto peer = open_peer_memory(own_same_host(), "", describe_regions(from.memory), {}, 5000);
  ASSERT_TRUE(peer);
  EXPECT_EQ((*peer)->see({{.region = 0, .unit_step = 64, .strips = {{32, 32, 0, 1}}}}, {}).has_value(), true);
  EXPECT_EQ((*peer)->see({{.region = 0, .unit_step = 64, .strips = {{33, 32, 0, 1}}}}, {}).error().code,
            Code::mismatch);
  EXPECT_EQ((*peer)->see({{.region = 1, .unit_step = 64, .strips = {{0, 32, 0, 1}}}}, {}).error().code, Code::mismatch);
  EXPECT_EQ((*peer)->see({}, {0}).error().code, Code::mismatch) << "a state component that the peer has not";
}

}  // namespace
}  // namespace kvferry::transport
