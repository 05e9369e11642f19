#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <memory>

#include "base/try.h"
#include "tools/bench_failover.h"

namespace kvferry::tools {

namespace {

constexpr double patience_seconds = 20;
constexpr double warm_up_seconds = 0.3;
constexpr double pace_seconds = 0.005;  // of looking at rooms that are tried again
constexpr std::size_t rooms_tried = 4;

RigPlan rig_plan(const FailoverPlan& plan) { return {.way = plan.way, .rooms = plan.rooms, .pings = {}}; }

// What is wrong whatever the speed: said once a repetition.
void note_faults(FailoverResult& result, const char* scenario, const Loss& loss) {
  if (loss.hung != 0) result.problems.push_back(fmt::format("{}: {} rooms did not fail", scenario, loss.hung));
  if (loss.wrong != 0) {
    result.problems.push_back(fmt::format("{}: {} rooms succeeded without their bytes", scenario, loss.wrong));
  }
}

// One room after another process of the instance, or the same one after a pause: from now to its success.
Result<double> ms_to_new_room(FailoverRig& rig, BenchPrefill& prefill, double since) {
  const std::uint64_t room = rig.take_numbers(1);
  KVF_CHECK(prefill.ask(fmt::format("loop {} 1 1 0", room)));
  KVF_TRY(receiver, rig.open(prefill, room, 0));
  while (receiver.poll() != Poll::success) {
    if (auto error = receiver.error()) return *error;
    KVF_TRY(changed, rig.turn(since + patience_seconds));
    if (!changed) return Error{.code = Code::timeout, .text = "a new room did not succeed"};
  }
  const double ms = (bench::now_seconds() - since) * 1e3;
  if (!rig.holds(room, 0)) return Error{.text = "a new room has wrong bytes"};
  KVF_CHECK(prefill.ask("join"));
  return ms;
}

struct KillScenario {
  const char* name;
  Tally& tally;
  unsigned times;
  std::uint64_t ballast_bytes;
  bool forks;
};

Result<void> measure_kill(const FailoverRun& run, const KillScenario& scenario) {
  if (scenario.times == 0) return {};
  KVF_TRY(rig, FailoverRig::make(rig_plan(run.plan)));
  KVF_TRY(prefill, rig.prefill(scenario.name, scenario.ballast_bytes));
  for (unsigned i = 0; i < scenario.times; ++i) {
    if (i != 0) KVF_CHECK(prefill.start());
    KVF_CHECK(rig.hold(prefill));
    if (scenario.forks) KVF_CHECK(prefill.ask("fork"));
    KVF_TRY(loss, rig.lose(prefill, SIGKILL));
    scenario.tally.add(loss);
    note_faults(run.result, scenario.name, loss);
    KVF_CHECK(rig.wait_released());
    rig.drop_held();
    run.step();
  }
  return {};
}

// The stopped process wakes: nothing of the old rooms may come back, a new one must work.
Result<void> measure_stop(const FailoverRun& run, FailoverRig& rig, BenchPrefill& prefill) {
  FailoverResult& result = run.result;
  KVF_CHECK(rig.hold(prefill));
  KVF_TRY(loss, rig.lose(prefill, SIGSTOP));
  result.stopped.add(loss);
  note_faults(result, "stop", loss);
  KVF_CHECK(rig.wait_released());
  const double woken = bench::now_seconds();
  prefill.process().kill(SIGCONT);
  KVF_TRY(back_ms, ms_to_new_room(rig, prefill, woken));
  result.back_ms.push_back(back_ms);
  // Only now: the sender gets its pages back when the new link tells it that nobody reads them any more.
  KVF_TRY(ended, prefill.ask("drop"));
  if (ended.at(0) != 0) {
    result.problems.push_back(fmt::format("stop: {} rooms succeeded at the sender that woke", ended[0]));
  }
  if (const std::size_t revived = rig.revived(); revived != 0) {
    result.problems.push_back(fmt::format("stop: {} lost rooms were touched by the process that woke", revived));
  }
  rig.drop_held();
  run.step();
  return {};
}

// Rooms for a process that is gone go on coming: what they cost is part of the failure.
class Stranded {
 public:
  Stranded(FailoverRig& rig, const BenchPrefill& prefill) : rig_(rig), prefill_(prefill) {}
  Result<void> open() {
    first_ = rig_.take_numbers(rooms_tried);
    for (std::size_t i = 0; i < rooms_tried; ++i) {
      KVF_TRY(receiver, rig_.open(prefill_, first_ + i, i));
      rooms_.push_back(std::make_unique<Receiver>(std::move(receiver)));
    }
    return {};
  }
  std::uint64_t first() const { return first_; }
  // Opens again what has failed.
  Result<void> retry() {
    for (std::size_t i = 0; i < rooms_.size(); ++i) {
      if (rooms_[i]->poll() != Poll::failed) continue;
      rooms_[i]->clear();
      KVF_TRY(receiver, rig_.open(prefill_, first_ + i, i));
      *rooms_[i] = std::move(receiver);
    }
    return {};
  }
  // The place of a room that has succeeded.
  std::optional<std::size_t> succeeded() const {
    for (std::size_t i = 0; i < rooms_.size(); ++i) {
      if (rooms_[i]->poll() == Poll::success) return i;
    }
    return {};
  }
  bool right(std::size_t place) const { return rig_.holds(first_ + place, place); }

 private:
  FailoverRig& rig_;
  const BenchPrefill& prefill_;
  std::uint64_t first_ = 0;
  std::vector<std::unique_ptr<Receiver>> rooms_;
};

Result<void> measure_beside_healthy(const FailoverRun& run, FailoverRig& rig, BenchPrefill& prefill) {
  const double window = run.plan.window_seconds;
  KVF_CHECK(rig.hold(prefill));
  KVF_CHECK(rig.run_until(bench::now_seconds() + warm_up_seconds));
  const std::uint64_t at_first = rig.loop_rooms();
  KVF_CHECK(rig.run_until(bench::now_seconds() + window));
  const std::uint64_t at_kill = rig.loop_rooms();
  const double end = bench::now_seconds() + window;
  KVF_TRY(loss, rig.lose(prefill, SIGKILL));
  Stranded stranded(rig, prefill);
  KVF_CHECK(stranded.open());
  while (bench::now_seconds() < end) {
    KVF_CHECK(rig.turn(end));
    KVF_CHECK(stranded.retry());
  }
  const auto before = static_cast<double>(at_kill - at_first);
  const auto after = static_cast<double>(rig.loop_rooms() - at_kill);
  run.result.healthy.add(loss);
  note_faults(run.result, "healthy", loss);
  if (before > 0) run.result.ratios.push_back(after / before);
  run.result.rooms_per_s.push_back(before / window);
  KVF_CHECK(rig.wait_released());
  rig.drop_held();
  run.step();
  return {};
}

Result<void> measure_rejoin(const FailoverRun& run, FailoverRig& rig, BenchPrefill& prefill, double absence_seconds) {
  KVF_CHECK(rig.hold(prefill));
  KVF_TRY(loss, rig.lose(prefill, SIGKILL));
  run.result.rejoined.add(loss);
  note_faults(run.result, "rejoin", loss);
  KVF_CHECK(rig.wait_released());
  rig.drop_held();
  Stranded stranded(rig, prefill);
  KVF_CHECK(stranded.open());
  const double return_at = bench::now_seconds() + absence_seconds;
  while (bench::now_seconds() < return_at) {
    KVF_CHECK(rig.turn(std::min(return_at, bench::now_seconds() + pace_seconds)));
    KVF_CHECK(stranded.retry());
  }
  KVF_CHECK(prefill.launch());
  KVF_CHECK(prefill.tell(fmt::format("loop {} {} {} 0", stranded.first(), rooms_tried, rooms_tried)));
  const double limit = bench::now_seconds() + patience_seconds;
  while (!stranded.succeeded()) {
    if (bench::now_seconds() > limit) return Error{.code = Code::timeout, .text = "no room succeeded after a restart"};
    KVF_CHECK(rig.turn(bench::now_seconds() + pace_seconds));
    KVF_CHECK(stranded.retry());
  }
  const double at = bench::now_seconds();
  if (!stranded.right(*stranded.succeeded())) {
    run.result.problems.emplace_back("rejoin: the first room after a restart has wrong bytes");
  }
  KVF_TRY(registered, prefill.registered());
  run.result.rejoin_ms.push_back((at - registered) * 1e3);
  run.result.absence_ms.push_back(absence_seconds * 1e3);
  KVF_CHECK(prefill.hear());
  KVF_CHECK(prefill.ask("leave"));
  run.step();
  return {};
}

}  // namespace

void Tally::add(const Loss& loss) {
  ++times;
  failed_ms.insert(failed_ms.end(), loss.failed_ms.begin(), loss.failed_ms.end());
  after_close_ms.insert(after_close_ms.end(), loss.after_close_ms.begin(), loss.after_close_ms.end());
  hung += loss.hung;
  wrong += loss.wrong;
  if (reason.empty()) reason = loss.reason;
}

Result<void> measure_kills(const FailoverRun& run) {
  const FailoverPlan& plan = run.plan;
  FailoverResult& result = run.result;
  KVF_CHECK(measure_kill(run, {"small", result.small, plan.kills, 0, false}));
  KVF_CHECK(measure_kill(run, {"big", result.big, plan.big_kills, plan.big_bytes, false}));
  return measure_kill(run, {"forked", result.forked, plan.forked_kills, 0, true});
}

Result<void> measure_stops(const FailoverRun& run) {
  if (run.plan.stops == 0) return {};
  RigPlan plan = rig_plan(run.plan);
  plan.pings = run.plan.stop_pings;
  KVF_TRY(rig, FailoverRig::make(plan));
  KVF_TRY(prefill, rig.prefill("stop"));
  for (unsigned i = 0; i < run.plan.stops; ++i) KVF_CHECK(measure_stop(run, rig, prefill));
  return {};
}

Result<void> measure_healthy(const FailoverRun& run) {
  if (run.plan.healthy_kills == 0) return {};
  KVF_TRY(rig, FailoverRig::make(rig_plan(run.plan)));
  KVF_TRY(first, rig.prefill("healthy-0"));
  KVF_TRY(second, rig.prefill("healthy-1"));
  KVF_TRY(mortal, rig.prefill("mortal"));
  KVF_CHECK(rig.start_loop(first));
  KVF_CHECK(rig.start_loop(second));
  for (unsigned i = 0; i < run.plan.healthy_kills; ++i) {
    if (i != 0) KVF_CHECK(mortal.start());
    KVF_CHECK(measure_beside_healthy(run, rig, mortal));
  }
  run.result.healthy_failures = rig.loop_failures();
  for (BenchPrefill* healthy : {&first, &second}) {
    KVF_TRY(ended, healthy->ask("leave"));
    run.result.healthy_failures += ended.at(1);
  }
  if (rig.loop_wrong() != 0) {
    run.result.problems.push_back(fmt::format("healthy: {} rooms have wrong bytes", rig.loop_wrong()));
  }
  return {};
}

Result<void> measure_rejoins(const FailoverRun& run) {
  if (run.plan.rejoins == 0) return {};
  KVF_TRY(rig, FailoverRig::make(rig_plan(run.plan)));
  KVF_TRY(prefill, rig.prefill("rejoin"));
  for (unsigned i = 0; i < run.plan.rejoins; ++i) {
    if (i != 0) KVF_CHECK(prefill.start());
    // From none at all to the longest: links that are tried again are tried less and less often.
    const double share = run.plan.rejoins == 1 ? 0 : static_cast<double>(i) / (run.plan.rejoins - 1);
    KVF_CHECK(measure_rejoin(run, rig, prefill, share * run.plan.absence_seconds_max));
  }
  return {};
}

}  // namespace kvferry::tools
