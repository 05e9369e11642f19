#include "tools/chaos_run.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>

#include "base/try.h"

namespace kvferry::tools {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds late{25};  // of delayed packets
constexpr double turn_s_max = 0.02;

class Run {
 public:
  Run(const ChaosPlan& plan, ChaosNetwork* network, ChaosCluster cluster, const std::vector<TraceRequest>& requests)
      : plan_(plan),
        network_(network),
        cluster_(std::move(cluster)),
        requests_(requests),
        ledger_(plan.cluster.prefill, plan.cluster.decode, {.orphan_s = plan.faults.silence_max_s + 2}) {
    for (const Fault& fault : draw_faults(plan.faults)) ahead_.push_back(fault);
    for (std::size_t worker : {std::size_t{0}, plan.cluster.prefill}) {
      result_.survivors.push_back({.name = cluster_.name(worker)});
    }
  }

  Result<ChaosResult> run(const std::function<void(double, const ChaosTotals&)>& progress) {
    while (now() < plan_.faults.seconds || ledger_.live() != 0 || !under_way_.empty()) {
      KVF_CHECK(begin_faults());
      KVF_CHECK(end_faults());
      if (now() < plan_.faults.seconds) hand_out();
      KVF_CHECK(hear());
      for (const ChaosLedger::Order& order : ledger_.due(now())) cluster_.say(order.worker, GiveUp{order.room});
      measure_first();
      progress(now(), ledger_.totals());
    }
    return finish();
  }

 private:
  struct UnderWay {
    Fault fault;
    std::size_t number = 0;  // in the ledger
    double until_s = 0;
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  Result<void> begin_faults() {
    while (!ahead_.empty() && ahead_.front().at_s <= now()) {
      const Fault fault = ahead_.front();
      ahead_.pop_front();
      if (cluster_.state(fault.worker) != ready) {
        result_.left_out.push_back(fmt::format("{} of {} at {:.1f} s: it was not up again", fault_name(fault.kind),
                                               cluster_.name(fault.worker), fault.at_s));
        continue;
      }
      KVF_CHECK(begin(fault));
      const double at = now();
      under_way_.push_back({.fault = fault, .number = ledger_.fault_began(fault, at), .until_s = at + fault.lasts_s});
    }
    return {};
  }

  Result<void> begin(const Fault& fault) {
    switch (fault.kind) {
      case FaultKind::kill:
        cluster_.kill(fault.worker);
        return {};
      case FaultKind::stop:
      case FaultKind::pause:
        cluster_.stop(fault.worker);
        return {};
      case FaultKind::cut:
        return network_->cut(fault.worker);
      case FaultKind::delay:
        return network_->delay(fault.worker, late);
      case FaultKind::bootstrap:
        cluster_.stop_server(fault.worker);
        return {};
    }
    return {};
  }

  Result<void> end_faults() {
    for (std::size_t i = 0; i < under_way_.size();) {
      KVF_TRY(over, end_if_due(under_way_[i]));
      if (!over) {
        ++i;
        continue;
      }
      ledger_.fault_ended(under_way_[i].number, now());
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return {};
  }

  // True once the worker works again.
  Result<bool> end_if_due(const UnderWay& one) {
    if (now() < one.until_s) return false;
    const std::size_t worker = one.fault.worker;
    switch (one.fault.kind) {
      case FaultKind::kill:
        if (cluster_.state(worker) != ChaosCluster::State::dead) return cluster_.state(worker) == ready;
        // Its last words are heard first.
        if (cluster_.stdout_fd(worker) < 0) KVF_CHECK(cluster_.restart(worker));
        return false;
      case FaultKind::stop:
      case FaultKind::pause:
        cluster_.resume(worker);
        break;
      case FaultKind::cut:
        KVF_CHECK(network_->join(worker));
        break;
      case FaultKind::delay:
        KVF_CHECK(network_->delay(worker, std::chrono::milliseconds(0)));
        break;
      case FaultKind::bootstrap:
        KVF_CHECK(cluster_.start_server(worker));
        break;
    }
    return true;
  }

  // The least busy of a role's workers that looks alive and has room for one more.
  std::optional<std::size_t> choose(std::size_t first, std::size_t count, std::size_t in_flight_max) const {
    std::optional<std::size_t> best;
    for (std::size_t worker = first; worker < first + count; ++worker) {
      if (!cluster_.takes_rooms(worker) || ledger_.in_flight(worker) >= in_flight_max) continue;
      if (!best || ledger_.in_flight(worker) < ledger_.in_flight(*best)) best = worker;
    }
    return best;
  }

  void hand_out() {
    const std::size_t prefills = plan_.cluster.prefill;
    const std::size_t decodes = plan_.cluster.decode;
    for (;;) {
      const auto decode = choose(prefills, decodes, plan_.window);
      const auto prefill = choose(0, prefills, plan_.window * decodes / prefills + 1);
      if (!decode || !prefill) return;
      const TraceRequest& request = requests_[next_room_ % requests_.size()];
      Assignment assignment{.room = next_room_++, .tokens = request.input_tokens, .hashes = request.hash_ids};
      assignment.bootstrap = cluster_.bootstrap(*prefill);
      ledger_.begin(assignment.room, *prefill, *decode, now());
      cluster_.say(*prefill, assignment);
      cluster_.say(*decode, std::move(assignment));
    }
  }

  double next_fault_s() const {
    double next = now() + turn_s_max;
    if (!ahead_.empty()) next = std::min(next, ahead_.front().at_s);
    for (const UnderWay& one : under_way_) next = std::min(next, std::max(one.until_s, now() + 0.001));
    return next;
  }

  Result<void> hear() {
    std::vector<pollfd> waits;
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      waits.push_back({.fd = cluster_.stdout_fd(i), .events = POLLIN, .revents = 0});
    }
    const double wait_ms = std::max(0.0, (next_fault_s() - now()) * 1e3);
    ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(wait_ms)));
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      if (waits[i].revents == 0) continue;
      const bool was_killed = cluster_.state(i) == ChaosCluster::State::dead;
      KVF_TRY(heard, cluster_.hear(i));
      const double at = now();
      for (const RoomOutcome& outcome : heard.outcomes) ledger_.hear(i, outcome, at);
      if (!heard.gone) continue;
      ledger_.lose(i, at);
      if (!was_killed) result_.complaints.push_back(cluster_.name(i) + " " + *heard.gone + ", and nobody killed it");
    }
    return {};
  }

  // Once the workers have done every kind of thing for a while; what comes before is the growth of a young process.
  void measure_first() {
    const double at = now();
    if (measured_ || at < 2 || at < plan_.faults.seconds / 10) return;
    measured_ = true;
    result_.rooms_before = ledger_.totals().rooms;
    measure(&Survivor::resident_before);
  }

  void measure(std::uint64_t Survivor::*where) {
    result_.survivors[0].*where = cluster_.resident_bytes(0);
    result_.survivors[1].*where = cluster_.resident_bytes(plan_.cluster.prefill);
  }

  ChaosResult finish() {
    result_.seconds = now();
    ledger_.close();
    measure(&Survivor::resident_after);
    for (std::size_t i = 0; i < cluster_.size(); ++i) result_.workers.push_back(cluster_.name(i));
    result_.totals = ledger_.totals();
    result_.faults = ledger_.faults();
    result_.bytes_by_bucket = ledger_.bytes_by_bucket();
    result_.bucket_s = ledger_.bucket_s();
    result_.complaints.insert(result_.complaints.end(), ledger_.complaints().begin(), ledger_.complaints().end());
    return std::move(result_);
  }

  static constexpr auto ready = ChaosCluster::State::ready;

  const ChaosPlan& plan_;
  ChaosNetwork* network_;
  ChaosCluster cluster_;
  const std::vector<TraceRequest>& requests_;
  ChaosLedger ledger_;
  Clock::time_point began_ = Clock::now();
  std::deque<Fault> ahead_;
  std::vector<UnderWay> under_way_;
  std::uint64_t next_room_ = 1;
  bool measured_ = false;
  ChaosResult result_;
};

}  // namespace

Result<ChaosResult> run_chaos(const ChaosPlan& plan, ChaosNetwork* network, const std::vector<TraceRequest>& requests,
                              const std::function<void(double, const ChaosTotals&)>& progress) {
  KVF_TRY(cluster, ChaosCluster::start(plan.cluster, network));
  return Run(plan, network, std::move(cluster), requests).run(progress);
}

}  // namespace kvferry::tools
