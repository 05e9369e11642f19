// kvferry bench memory: what a live room costs on either side, and whether rooms that are over leave anything behind.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/try.h"
#include "tools/bench.h"
#include "tools/bench_loop.h"
#include "tools/bench_prefill.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace kvferry::tools {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t room_pages = 2;  // so that a room can fail halfway
constexpr std::uint64_t rooms_before = 1'000;

struct Options {
  std::uint64_t rooms = 1'000'000;
  std::uint64_t live = 20'000;
  std::uint64_t window = 32;  // few, so that the first rooms fill every buffer many times over
  Way way = Way::samehost;
};

struct Sizes {
  MemoryUse prefill;
  MemoryUse decode;
};

struct Measured {
  Sizes early;                   // after the first rooms
  Sizes late;                    // after all of them
  Sizes live;                    // with the live rooms
  std::uint64_t failed = 0;      // as wanted
  std::uint64_t unexpected = 0;  // rooms that ended as they should not
  std::uint64_t wrong = 0;
};

// The decode process. A resource: owns its manager and memory.
class MemoryBench {
 public:
  static Result<MemoryBench> make(const Options& options, Measured& measured) {
    KVF_TRY(places, Places::make(options.window, room_pages, page_bytes));
    KVF_TRY(settings, bench_manager_options(Role::decode, places.memory(), page_bytes, options.way, {}));
    KVF_TRY(manager, KvManager::create(std::move(settings)));
    KVF_TRY(prefill, BenchPrefill::make({.bootstrap = {},
                                         .instance = "memory",
                                         .way = options.way,
                                         .page_bytes = page_bytes,
                                         .room_pages = room_pages,
                                         .places = options.window},
                                        {}));
    KVF_CHECK(prefill.start());
    return MemoryBench(options, measured, std::move(places), std::move(manager), std::move(prefill));
  }

  // A closed loop in which two of a hundred rooms are given up, one by each side.
  template <class Done>
  Result<void> loop(std::uint64_t rooms, Done done) {
    const std::uint64_t first = std::exchange(next_room_, next_room_ + rooms);
    KVF_CHECK(prefill_.ask(fmt::format("loop {} {} {} 1", first, options_.window, rooms)));
    RoomLoop<Receiver> loop(first, options_.window, rooms);
    for (;;) {
      KVF_CHECK(loop.fill([this](std::uint64_t room, std::size_t slot) { return open(room, slot); }));
      if (loop.done()) break;
      KVF_CHECK(wait_for_change(manager_));
      for (const RoomChange& change : manager_.changed()) {
        loop.take(change,
                  [this](Receiver& receiver, const RoomChange& now, std::size_t slot) { judge(receiver, now, slot); });
      }
      done(loop.succeeded() + loop.failed());
    }
    measured_.failed += loop.failed();
    KVF_CHECK(prefill_.ask("join"));
    return {};
  }

  Result<Sizes> sizes() {
    KVF_TRY(ours, memory_use());
    KVF_TRY(theirs, prefill_.ask("size"));
    return Sizes{.prefill = {.resident_bytes = theirs.at(0), .heap_bytes = theirs.at(1)}, .decode = ours};
  }

  // With so many rooms granted, none of them moving; their grants name the same pages, which nothing is written to.
  Result<Sizes> sizes_with_live_rooms() {
    const std::uint64_t first = std::exchange(next_room_, next_room_ + options_.live);
    std::vector<Receiver> receivers;
    receivers.reserve(options_.live);
    // Senders first: grants for rooms that nobody has opened are bounded.
    KVF_CHECK(prefill_.ask(fmt::format("hold {} {} 0", first, options_.live)));
    for (std::uint64_t i = 0; i < options_.live; ++i) {
      KVF_TRY(receiver, open(first + i, i));
      receivers.push_back(std::move(receiver));
    }
    KVF_CHECK(prefill_.ask("granted"));
    for (const Receiver& receiver : receivers) KVF_CHECK(wait_for_state(manager_, receiver, Poll::waiting_for_input));
    KVF_TRY(with_live, sizes());
    for (Receiver& receiver : receivers) receiver.clear();
    KVF_CHECK(prefill_.ask("drop"));
    return with_live;
  }

 private:
  MemoryBench(const Options& options, Measured& measured, Places places, KvManager manager, BenchPrefill prefill)
      : options_(options),
        measured_(measured),
        places_(std::move(places)),
        manager_(std::move(manager)),
        prefill_(std::move(prefill)) {}

  Result<Receiver> open(std::uint64_t room, std::uint64_t place) {
    places_.stamp(place, ~room);
    KVF_TRY(receiver, manager_.open_receiver(prefill_.bootstrap(), room));
    KVF_CHECK(receiver.init({.pages = places_.pages(place)}));
    return receiver;
  }

  void judge(Receiver& receiver, const RoomChange& change, std::size_t slot) {
    const LoopFault fault = fault_of(change.room);
    if (change.state == Poll::transferring && fault == LoopFault::receiver_aborts) {
      receiver.abort("the bench wants it to fail");
    }
    if (!change.pages_released) return;
    if (change.state == Poll::success && !places_.holds(slot, change.room)) ++measured_.wrong;
    if ((change.state == Poll::failed) != (fault != LoopFault::none)) ++measured_.unexpected;
  }

  const Options& options_;
  Measured& measured_;
  Places places_;
  KvManager manager_;
  BenchPrefill prefill_;
  std::uint64_t next_room_ = 1;
};

Result<Measured> measure(const Options& options) {
  Measured measured;
  KVF_TRY(bench, MemoryBench::make(options, measured));
  Progress progress("bench memory", rooms_before + options.rooms);
  KVF_CHECK(bench.loop(rooms_before, [&](std::uint64_t done) { progress.set(done); }));
  KVF_TRY(early, bench.sizes());
  measured.early = early;
  KVF_CHECK(bench.loop(options.rooms, [&](std::uint64_t done) { progress.set(rooms_before + done); }));
  KVF_TRY(late, bench.sizes());
  measured.late = late;
  KVF_TRY(live, bench.sizes_with_live_rooms());
  measured.live = live;
  return measured;
}

double difference(std::uint64_t later, std::uint64_t earlier) {
  return static_cast<double>(later) - static_cast<double>(earlier);
}

double growth_percent(const MemoryUse& early, const MemoryUse& late) {
  return 100 * difference(late.resident_bytes, early.resident_bytes) / static_cast<double>(early.resident_bytes);
}

void add_rows(Report& report, const Options& options, const Measured& measured) {
  const auto rooms = static_cast<double>(options.live);
  const auto add = [&](const char* side, const MemoryUse& early, const MemoryUse& late, const MemoryUse& live) {
    const double resident = difference(live.resident_bytes, late.resident_bytes) / rooms;
    report.figure(fmt::format("bytes_per_room_{}", side), resident, fmt::format("resident, {} live", options.live));
    report.row({{"side", side},
                {"resident_early", early.resident_bytes},
                {"resident_late", late.resident_bytes},
                {"resident_live", live.resident_bytes},
                {"heap_early", early.heap_bytes},
                {"heap_late", late.heap_bytes},
                {"heap_live", live.heap_bytes},
                {"heap_per_room", difference(live.heap_bytes, late.heap_bytes) / rooms},
                {"growth_percent", growth_percent(early, late)}});
  };
  add("prefill", measured.early.prefill, measured.late.prefill, measured.live.prefill);
  add("decode", measured.early.decode, measured.late.decode, measured.live.decode);
}

int run(const Context& context, const Options& options) {
  quiet_at_the_end();
  auto measured = measure(options);
  if (!measured) return cannot_run(context, measured.error().message());
  Report report("bench memory");
  add_rows(report, options, *measured);
  const double growth = std::max(growth_percent(measured->early.prefill, measured->late.prefill),
                                 growth_percent(measured->early.decode, measured->late.decode));
  report.figure("growth_percent", growth,
                fmt::format("% of resident size from room {} to room {}", rooms_before, rooms_before + options.rooms));
  report.figure("rooms", rooms_before + options.rooms);
  report.figure("rooms_failed", measured->failed, "given up by one side, as wanted");
  if (measured->wrong != 0) report.fail(fmt::format("{} rooms have wrong bytes", measured->wrong));
  if (measured->unexpected != 0) report.fail(fmt::format("{} rooms ended as they should not", measured->unexpected));
  return report.finish(context);
}

}  // namespace

void add_bench_memory(CLI::App& bench, Context& context) {
  CLI::App* command = add_command(
      bench, context, "memory", "What a live room costs on each side, and whether rooms that are over leave anything",
      "A closed loop of rooms of two pages of 4 KiB between two processes; one of a hundred is aborted by the sender,\n"
      "one by the receiver when half of it is there. Then --live rooms are open at once, granted and waiting.\n"
      "Figures are resident sizes (/proc/self/statm): what the process really takes from the machine, with the\n"
      "allocator's waste, handles and tables, and without the kernel's socket buffers. The rows show beside it what\n"
      "malloc has handed out (mallinfo2), which is exact but blind to that waste. growth_percent is of the side that\n"
      "grew more, from the end of the first 1,000 rooms to the end of all of them.\n\n"
      "Example:\n"
      "  kvferry bench memory --rooms 10000000 --json");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  const auto count = [&](const char* name, std::uint64_t& value, const char* what, std::uint64_t most) {
    command->add_option(name, value, what)->check(CLI::Range(std::uint64_t{1}, most))->capture_default_str();
  };
  count("--rooms", options->rooms, "Rooms after the first 1,000", std::uint64_t{1'000'000'000});
  count("--live", options->live, "Rooms that are open at once", std::uint64_t{60'000});
  count("--window", options->window, "Rooms in flight in the loop", std::uint64_t{4'000});
  command->add_flag_callback(
      "--tcp", [options] { options->way = Way::tcp; }, "Bytes go over TCP instead of same host");
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
