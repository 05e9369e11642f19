// kvferry bench races: rooms are given up at random moments and their pages go at once to the next room.
#include "tools/bench_races.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "bench/memory.h"
#include "tools/bench.h"
#include "tools/bench_pair.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace kvferry::tools {

namespace {

struct RaceWay {
  const char* name;
  Way way;
  bool inlined;
};
constexpr std::array<RaceWay, 4> ways{{{"tcp", Way::tcp, false},
                                       {"samehost", Way::samehost, false},
                                       {"shared", Way::shared, false},
                                       {"inline", Way::samehost, true}}};

struct Options {
  std::uint64_t races = 60'000;
  std::uint64_t seed = 1;
  std::size_t slots = 48;
};

// What the prefill process is told, and answers.
struct Task {
  std::size_t way = 0;
  std::size_t slots = 0;
  std::uint64_t seed = 0;
  std::uint64_t rooms = 0;
  std::array<char, 256> bootstrap{};
};
struct Answer {
  bool ok = true;
  RaceCounts counts{};
  std::array<char, 512> error{};
};

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

constexpr std::uint64_t mark = std::uint64_t{1} << 62;  // no room has this bit

// The memory of a side, cut into slots.
class RaceMemory {
 public:
  static Result<RaceMemory> make(const RaceWay& way, Role role, std::size_t slots) {
    RaceMemory made(RaceSlots(slots, !way.inlined));
    const std::size_t bytes = made.slots_.pages() * RaceSlots::page_bytes;
    if (way.way == Way::shared && role == Role::prefill) {
      KVF_TRY(memory, SharedMemory::allocate(bytes));
      made.shared_.emplace(std::move(memory));
      made.base_ = made.shared_->data();
    } else {
      KVF_TRY(memory, bench::Buffer::allocate(bytes));
      made.private_ = std::move(memory);
      made.base_ = made.private_.data();
    }
    return made;
  }
  Result<KvManager> manager(const RaceWay& way, Role role, const std::string& bootstrap) const {
    const std::span memory(base_, slots_.pages() * RaceSlots::page_bytes);
    KVF_TRY(options, bench_manager_options(role, memory, RaceSlots::page_bytes, way.way, bootstrap));
    options.settings->inline_bytes_max = way.inlined ? 1u << 20 : 0;
    return KvManager::create(std::move(options));
  }
  std::span<const std::int32_t> pages(std::size_t slot) const { return slots_.of(slot); }
  void write(std::size_t slot, std::uint64_t value) {
    for (std::size_t i = 0; i < pages(slot).size(); ++i) write_words(page(slot, i), RaceSlots::page_bytes, value, i);
  }
  bool holds(std::size_t slot, std::uint64_t value) const {
    for (std::size_t i = 0; i < pages(slot).size(); ++i) {
      if (!holds_words(page(slot, i), RaceSlots::page_bytes, value, i)) return false;
    }
    return true;
  }

 private:
  explicit RaceMemory(RaceSlots slots) : slots_(std::move(slots)) {}
  std::byte* page(std::size_t slot, std::size_t i) const {
    return base_ + static_cast<std::size_t>(pages(slot)[i]) * RaceSlots::page_bytes;
  }
  RaceSlots slots_;
  bench::Buffer private_;
  std::optional<SharedMemory> shared_;
  std::byte* base_ = nullptr;
};

class PrefillSide final : public RaceSide<Sender> {
 public:
  PrefillSide(RaceMemory& memory, KvManager& manager) : memory_(memory), manager_(manager) {}
  Result<Sender> open(std::uint64_t room, std::size_t slot) override {
    memory_.write(slot, room);  // what a reader of the slot's last room would see now is another room's
    KVF_TRY(sender, manager_.open_sender(room));
    const auto pages = memory_.pages(slot);
    KVF_CHECK(sender.init({.num_pages = pages.size()}));
    KVF_CHECK(sender.send({.pages = pages.first(pages.size() / 2)}));
    KVF_CHECK(sender.send({.pages = pages.subspan(pages.size() / 2)}));
    return sender;
  }
  bool ended(std::uint64_t /*room*/, std::size_t /*slot*/, bool /*succeeded*/) override { return true; }

 private:
  RaceMemory& memory_;
  KvManager& manager_;
};

class DecodeSide final : public RaceSide<Receiver> {
 public:
  DecodeSide(RaceMemory& memory, KvManager& manager, std::string bootstrap)
      : memory_(memory), manager_(manager), bootstrap_(std::move(bootstrap)) {}
  Result<Receiver> open(std::uint64_t room, std::size_t slot) override {
    memory_.write(slot, room | mark);
    KVF_TRY(receiver, manager_.open_receiver(bootstrap_, room));
    KVF_CHECK(receiver.init({.pages = memory_.pages(slot)}));
    return receiver;
  }
  bool ended(std::uint64_t room, std::size_t slot, bool succeeded) override {
    if (succeeded) return memory_.holds(slot, room);
    memory_.write(slot, room | mark);
    return true;
  }
  bool lingered(std::uint64_t room, std::size_t slot) override { return memory_.holds(slot, room | mark); }

 private:
  RaceMemory& memory_;
  KvManager& manager_;
  std::string bootstrap_;
};

Result<RaceCounts> prefill(const Task& task) {
  const RaceWay& way = ways[task.way];
  KVF_TRY(memory, RaceMemory::make(way, Role::prefill, task.slots));
  KVF_TRY(manager, memory.manager(way, Role::prefill, task.bootstrap.data()));
  PrefillSide side(memory, manager);
  return RaceLoop<Sender>(manager, side, Role::prefill, task.slots, task.seed).run(1, task.rooms);
}

int serve_prefill(const bench::Channel& channel) {
  quiet_at_the_end();
  auto task = channel.receive<Task>();
  if (!task) return exit_environment;
  auto counts = prefill(*task);
  Answer answer{.ok = counts.has_value()};
  if (counts) answer.counts = *counts;
  if (!counts) counts.error().message().copy(answer.error.data(), answer.error.size() - 1);
  return channel.send(answer) ? exit_ok : exit_environment;
}

struct WayResult {
  RaceCounts prefill;
  RaceCounts decode;
  double seconds = 0;
};

Result<WayResult> run_way(const Options& options, std::size_t number, const bench::Child& child, std::uint64_t rooms) {
  const RaceWay& way = ways[number];
  KVF_TRY(server, BootstrapServer::start({}));
  KVF_TRY(memory, RaceMemory::make(way, Role::decode, options.slots));
  KVF_TRY(manager, memory.manager(way, Role::decode, {}));
  Task task{.way = number, .slots = options.slots, .seed = options.seed, .rooms = rooms};
  server.address().copy(task.bootstrap.data(), task.bootstrap.size() - 1);
  const double start = bench::now_seconds();
  KVF_CHECK(child.channel().send(task));
  DecodeSide side(memory, manager, server.address());
  KVF_TRY(decode, RaceLoop<Receiver>(manager, side, Role::decode, options.slots, options.seed).run(1, rooms));
  KVF_TRY(answer, child.channel().receive<Answer>());
  if (!answer.ok) return Error{.text = fmt::format("the prefill process: {}", answer.error.data())};
  return WayResult{answer.counts, decode, bench::now_seconds() - start};
}

void add_row(Report& report, const RaceWay& way, const WayResult& result) {
  report.row({{"transport", way.name},
              {"rooms", result.decode.rooms},
              {"races", result.decode.races + result.prefill.races},
              {"succeeded", result.decode.succeeded},
              {"given_up", result.decode.failed},
              {"wrong", result.decode.wrong},
              {"hung", result.decode.hung + result.prefill.hung},
              {"races_per_s", static_cast<double>(result.decode.races + result.prefill.races) / result.seconds}});
}

int run(const Context& context, const Options& options) {
  quiet_at_the_end();
  std::vector<bench::Child> children;  // before there are threads
  for (std::size_t i = 0; i < ways.size(); ++i) {
    auto child = bench::Child::start([](const bench::Channel& channel) { return serve_prefill(channel); });
    if (!child) return cannot_run(context, child.error().message());
    children.push_back(std::move(*child));
  }
  Report report("bench races");
  RaceCounts all;
  double seconds = 0;
  Progress progress("races", ways.size());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    // Two of three rooms are to be given up, and some of those have ended by then: two of five are races.
    const std::uint64_t rooms = std::max<std::uint64_t>(options.races * 5 / (2 * ways.size()), options.slots);
    auto result = run_way(options, i, children[i], rooms);
    if (!result) return cannot_run(context, result.error().message());
    add_row(report, ways[i], *result);
    all.races += result->decode.races + result->prefill.races;
    all.succeeded += result->decode.succeeded;
    all.failed += result->decode.failed;
    all.wrong += result->decode.wrong;
    all.hung += result->decode.hung + result->prefill.hung;
    seconds += result->seconds;
    progress.set(i + 1);
  }
  report.figure("races", all.races, "rooms that one side gave up while they were live");
  report.figure("wrong", all.wrong, "rooms with a wrong byte, or marks that a late write has spoiled");
  report.figure("hung", all.hung, "rooms that did not end");
  report.figure("succeeded", all.succeeded);
  report.figure("given_up", all.failed);
  report.figure("races_per_s", static_cast<double>(all.races) / seconds);
  if (all.wrong != 0) report.fail(fmt::format("{} rooms have wrong bytes", all.wrong));
  if (all.hung != 0) report.fail(fmt::format("{} rooms did not end", all.hung));
  return report.finish(context);
}

}  // namespace

RacePlan race_plan(std::uint64_t room, std::uint64_t seed) {
  const std::uint64_t draw = mixed(room * 0x9E3779B97F4A7C15 + seed);
  RacePlan plan;
  const std::uint64_t kind = draw % 6;
  if (kind < 4) plan.end = static_cast<RaceEnd>(1 + kind);
  // Squared, so that most come while the first bytes move.
  const double share = static_cast<double>((draw >> 8) & 0xffff) / 65536;
  plan.after_s = share * share * 1e-3;
  if (((draw >> 24) & 1) != 0) plan.linger_s = static_cast<double>((draw >> 32) & 0xffff) / 65536 * 1e-3;
  return plan;
}

void write_words(std::byte* page, std::size_t bytes, std::uint64_t value, std::size_t page_number) {
  const std::uint64_t first = mixed(value) + (std::uint64_t{page_number} << 32);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = first + at;
    std::memcpy(page + at, &word, 8);
  }
}

bool holds_words(const std::byte* page, std::size_t bytes, std::uint64_t value, std::size_t page_number) {
  const std::uint64_t first = mixed(value) + (std::uint64_t{page_number} << 32);
  std::uint64_t differ = 0;
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, page + at, 8);
    differ |= word ^ (first + at);
  }
  return differ == 0;
}

RaceSlots::RaceSlots(std::size_t count, bool large) {
  for (std::size_t slot = 0; slot < count; ++slot) {
    const std::size_t size = large && slot % 8 == 7 ? large_pages : small_pages;
    first_.push_back(numbers_.size());
    sizes_.push_back(size);
    for (std::size_t i = 0; i < size; ++i) numbers_.push_back(static_cast<std::int32_t>(numbers_.size()));
  }
  // Scattered: a page's neighbour belongs to another slot.
  const auto order = bench::shuffled(numbers_.size(), count);
  for (std::size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = order[i];
}

void add_bench_races(CLI::App& bench, Context& context) {
  CLI::App* command = add_command(
      bench, context, "races", "Rooms given up at random moments, their pages given at once to the next room",
      "Two processes hand rooms over by every way; most rooms are aborted or cleared by one of the sides at a moment\n"
      "that the seed draws. As soon as their pages are released they hold another room's bytes. A room that succeeds\n"
      "must have exactly its own bytes, and marks left in released pages must stay whole.\n\n"
      "Example:\n"
      "  kvferry bench races --races 1000000");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--races", options->races, "About so many, over all ways together")
      ->check(CLI::Range(std::uint64_t{4}, std::uint64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Decides who gives up, and when")->capture_default_str();
  command->add_option("--slots", options->slots, "Rooms in flight")->check(CLI::Range(8, 1024))->capture_default_str();
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
