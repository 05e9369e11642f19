#include "tools/bench_handoff_source.h"

#include <optional>
#include <utility>

#include "base/try.h"
#include "bench/limits.h"
#include "bench/memory.h"
#include "tools/bench_rooms.h"

namespace kvferry::tools {

namespace {

class HandoffSource {
 public:
  Result<BenchAnswer> handle(const BenchCommand& command) {
    switch (command.ask) {
      case Ask::open:
        return open(command);
      case Ask::close:
        armed_.reset();
        manager_.reset();
        return BenchAnswer{};
      case Ask::stream:
        return stream(command);
      case Ask::arm_rooms:
        return arm(command);
      case Ask::drain_rooms:
        return drain();
      case Ask::pong:
        KVF_CHECK(bench::pong(command.port));
        return BenchAnswer{};
      default:
        return Error{.code = Code::invalid_argument, .text = "the hand-off source cannot do that"};
    }
  }

 private:
  static Result<void> ended(std::uint64_t, std::int32_t) { return {}; }

  Result<BenchAnswer> open(const BenchCommand& command) {
    KVF_TRY(memory, bench::Buffer::allocate(bench_handoff_pages * bench_page_bytes));
    memory_ = std::move(memory);
    KVF_TRY(manager, make_bench_manager(Role::prefill, {memory_.data(), memory_.size()}, bench_page_bytes, command.way,
                                        command.bootstrap.data()));
    manager_.emplace(std::move(manager));
    return BenchAnswer{};
  }

  // One room, all its data handed over at once; it waits for its grant.
  Result<Sender> send(std::uint64_t room, std::int32_t page) {
    write_room(memory_.data(), page, room);
    KVF_TRY(sender, manager_->open_sender(room));
    KVF_CHECK(sender.init({.num_pages = 1}));
    KVF_CHECK(sender.send({.pages = {&page, 1}}));
    return sender;
  }

  Result<BenchAnswer> stream(const BenchCommand& command) {
    Flight<Sender> flight(command.room, command.rooms, command.window);
    KVF_CHECK(fly(
        *manager_, flight, [&](std::uint64_t room, std::int32_t page) { return send(room, page); }, ended));
    return BenchAnswer{};
  }

  Result<BenchAnswer> arm(const BenchCommand& command) {
    armed_.emplace(command.room, command.rooms, command.rooms);
    while (armed_->can_open()) {
      KVF_CHECK(armed_->open_next([&](std::uint64_t room, std::int32_t page) { return send(room, page); }));
    }
    return BenchAnswer{};
  }

  Result<BenchAnswer> drain() {
    while (!armed_->done()) {
      KVF_CHECK(wait_for_change(*manager_));
      KVF_CHECK(armed_->take(manager_->changed(), ended));
    }
    armed_.reset();
    return BenchAnswer{};
  }

  bench::Buffer memory_;
  std::optional<KvManager> manager_;
  std::optional<Flight<Sender>> armed_;
};

}  // namespace

int run_handoff_source(const bench::Channel& channel) {
  quiet_at_the_end();
  HandoffSource source;
  return serve(channel, [&](const BenchCommand& command) { return source.handle(command); });
}

}  // namespace kvferry::tools
