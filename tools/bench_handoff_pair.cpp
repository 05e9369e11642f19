#include "tools/bench_handoff_pair.h"

#include <fmt/format.h>

#include "base/try.h"
#include "bench/limits.h"
#include "tools/bench_handoff_source.h"
#include "tools/bench_rooms.h"

namespace kvferry::tools {

Result<HandoffPair> HandoffPair::make(bench::Child& child, Way way) {
  HandoffPair pair(child);
  KVF_TRY(memory, bench::Buffer::allocate(bench_handoff_pages * bench_page_bytes));
  pair.memory_ = std::move(memory);
  KVF_TRY(server, BootstrapServer::start({}));
  pair.address_ = server.address();
  pair.server_.emplace(std::move(server));
  KVF_TRY(manager,
          make_bench_manager(Role::decode, {pair.memory_.data(), pair.memory_.size()}, bench_page_bytes, way, {}));
  pair.manager_.emplace(std::move(manager));
  BenchCommand open{.ask = Ask::open, .way = way};
  open.set_bootstrap(pair.address_);
  KVF_CHECK(ask(child, open));
  // The first room sets up the link.
  KVF_CHECK(pair.stream(1, 1));
  return pair;
}

Result<void> HandoffPair::check(std::uint64_t room, std::int32_t page) {
  const std::uint64_t found = read_room(memory_.data(), page);
  if (found == room) return {};
  return Error{.text = fmt::format("the page of room {} holds the bytes of {}", room, found)};
}

Result<StreamResult> HandoffPair::stream(std::uint64_t rooms, std::uint64_t window) {
  const BenchCommand command{.ask = Ask::stream, .room = next_room_, .rooms = rooms, .window = window};
  Flight<Receiver> flight(next_room_, rooms, window);
  next_room_ += rooms;
  const double cpu_before = bench::cpu_seconds();
  const double start = bench::now_seconds();
  KVF_CHECK(tell(child_, command));
  const auto open = [&](std::uint64_t room, std::int32_t page) -> Result<Receiver> {
    write_room(memory_.data(), page, ~room);
    KVF_TRY(receiver, manager_->open_receiver(address_, room));
    KVF_CHECK(receiver.init({.pages = {&page, 1}}));
    return receiver;
  };
  auto flown = fly(*manager_, flight, open, [&](std::uint64_t room, std::int32_t page) { return check(room, page); });
  const double seconds = bench::now_seconds() - start;
  const double cpu = bench::cpu_seconds() - cpu_before;
  KVF_CHECK(flown);
  KVF_TRY(answer, hear(child_));
  return StreamResult{.seconds = seconds, .cpu_seconds = cpu + answer.cpu_seconds};
}

Result<double> HandoffPair::lone_room_us(std::uint64_t room, std::int32_t page) {
  write_room(memory_.data(), page, ~room);
  KVF_TRY(receiver, manager_->open_receiver(address_, room));
  KVF_CHECK(wait_for_state(*manager_, receiver, Poll::waiting_for_input));
  const double start = bench::now_seconds();
  KVF_CHECK(receiver.init({.pages = {&page, 1}}));
  KVF_CHECK(wait_for_state(*manager_, receiver, Poll::success));
  const double us = (bench::now_seconds() - start) * 1e6;
  KVF_CHECK(check(room, page));
  receiver.clear();
  return us;
}

Result<std::vector<double>> HandoffPair::lone_us(std::uint64_t rooms) {
  const std::uint64_t first = next_room_;
  next_room_ += rooms;
  KVF_CHECK(ask(child_, {.ask = Ask::arm_rooms, .room = first, .rooms = rooms}));
  std::vector<double> times_us;
  times_us.reserve(rooms);
  for (std::uint64_t i = 0; i < rooms; ++i) {
    KVF_TRY(us, lone_room_us(first + i, static_cast<std::int32_t>(i)));
    times_us.push_back(us);
  }
  KVF_CHECK(ask(child_, {.ask = Ask::drain_rooms}));
  return times_us;
}

Result<std::vector<double>> HandoffPair::ping_us(unsigned rounds) {
  KVF_TRY(listener, bench::listen_on_loopback());
  KVF_CHECK(tell(child_, {.ask = Ask::pong, .port = listener.port}));
  std::vector<double> times_us;
  {
    KVF_TRY(stream, bench::accept_stream(listener));
    KVF_TRY(measured, bench::ping_us(stream, rounds));
    times_us = std::move(measured);
  }
  KVF_CHECK(hear(child_));
  return times_us;
}

}  // namespace kvferry::tools
