#include "tools/replay_balancer.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/try.h"

namespace kvferry::tools {

namespace {

constexpr std::chrono::seconds start_limit{60};
constexpr std::chrono::seconds silence_max{120};
constexpr std::size_t reasons_max = 5;
// A worker that holds a request's prefix is preferred unless it has so many tokens more to take than the idlest one.
constexpr std::uint64_t affinity_tokens_max = 131'072;

template <class Workers>
std::size_t least_loaded(const Workers& workers) {
  const auto least = std::ranges::min_element(workers, {}, [](const auto& worker) { return worker.tokens_in_flight; });
  return static_cast<std::size_t>(least - workers.begin());
}

}  // namespace

Result<ReplayBalancer> ReplayBalancer::start(const ReplayPlan& plan) {
  ReplayBalancer balancer(plan);
  for (unsigned i = 0; i < plan.prefill; ++i) KVF_CHECK(balancer.start_worker(Role::prefill, i));
  for (unsigned i = 0; i < plan.decode; ++i) KVF_CHECK(balancer.start_worker(Role::decode, plan.prefill + i));
  // All of them touch their memory side by side; only then is each asked whether it is ready.
  for (auto* workers : {&balancer.prefills_, &balancer.decodes_}) {
    for (Worker& worker : *workers) {
      KVF_TRY(line, worker.child.read_line(start_limit));
      KVF_TRY(outcome, outcome_of(line));
      if (!outcome.error.empty()) return Error{.text = "a replay worker could not start: " + outcome.error};
    }
  }
  return balancer;
}

Result<void> ReplayBalancer::start_worker(Role role, std::uint64_t seed) {
  ReplaySetup setup{.role = role,
                    .model = plan_.model.name,
                    .layers = plan_.model.layers,
                    .page_tokens = plan_.page_tokens,
                    .pages = role == Role::prefill ? plan_.prefill_pages() : plan_.decode_pages(),
                    .seed = seed,
                    .transport = plan_.transport};
  if (role == Role::prefill) {
    // Each prefill worker is an instance of its own.
    KVF_TRY(server, BootstrapServer::start({}));
    setup.bootstrap = server.address();
    servers_.push_back(std::move(server));
  }
  KVF_TRY(child, Child::start({.arguments = {"replay-worker"}}));
  KVF_CHECK(child.write_line(to_line(setup)));
  auto& workers = role == Role::prefill ? prefills_ : decodes_;
  workers.push_back({.child = std::move(child), .bootstrap = setup.bootstrap});
  return {};
}

std::size_t ReplayBalancer::choose_decode(const TraceRequest& request) const {
  const std::size_t idlest = least_loaded(decodes_);
  // From the longest prefix down. The first block alone is a system prompt that everybody holds.
  for (std::size_t blocks = request.hash_ids.size(); blocks > 1; --blocks) {
    const auto owner = block_owner_.find(request.hash_ids[blocks - 1]);
    if (owner == block_owner_.end()) continue;
    const std::uint64_t load = decodes_[owner->second].tokens_in_flight;
    const bool too_busy = load > decodes_[idlest].tokens_in_flight + affinity_tokens_max;
    return too_busy ? idlest : owner->second;
  }
  return idlest;
}

Result<void> ReplayBalancer::dispatch(const TraceRequest& request) {
  const std::uint64_t number = next_room_++;
  Room room{.request = &request, .prefill = least_loaded(prefills_), .decode = choose_decode(request)};
  for (std::uint64_t hash : request.hash_ids) block_owner_[hash] = room.decode;
  Assignment assignment{.room = number, .tokens = request.input_tokens, .hashes = request.hash_ids};
  assignment.bootstrap = prefills_[room.prefill].bootstrap;
  const std::string line = to_line(assignment);
  for (Worker* worker : {&prefills_[room.prefill], &decodes_[room.decode]}) {
    worker->tokens_in_flight += request.input_tokens;
    worker->rooms_in_flight += 1;
    KVF_CHECK(worker->child.write_line(line));
  }
  rooms_.emplace(number, std::move(room));
  return {};
}

bool ReplayBalancer::due(const TraceRequest& request) const {
  if (plan_.speed <= 0) return true;
  const std::chrono::duration<double, std::milli> passed = Clock::now() - started_;
  return passed.count() * plan_.speed >= static_cast<double>(request.timestamp_ms);
}

bool ReplayBalancer::window_open() const { return rooms_.size() < plan_.window * plan_.decode; }

Result<void> ReplayBalancer::wait(const TraceRequest* next) {
  std::vector<pollfd> waits;
  for (auto* workers : {&prefills_, &decodes_}) {
    for (Worker& worker : *workers) waits.push_back({.fd = worker.child.stdout_fd(), .events = POLLIN, .revents = 0});
  }
  double wait_ms = 1000;
  if (next != nullptr && window_open()) {
    const std::chrono::duration<double, std::milli> passed = Clock::now() - started_;
    wait_ms = std::clamp(static_cast<double>(next->timestamp_ms) / plan_.speed - passed.count(), 0.0, wait_ms);
  }
  ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(wait_ms)));
  std::size_t at = 0;
  for (auto* workers : {&prefills_, &decodes_}) {
    for (Worker& worker : *workers) {
      if (waits[at++].revents != 0) KVF_CHECK(hear(worker));
    }
  }
  if (!rooms_.empty() && Clock::now() - heard_ > silence_max) {
    return Error{.code = Code::timeout,
                 .text = fmt::format("no room ended for {} s; {} are in flight, the first is of trace line {}",
                                     silence_max.count(), rooms_.size(), rooms_.begin()->second.request->line)};
  }
  return {};
}

Result<void> ReplayBalancer::hear(Worker& worker) {
  const bool open = worker.child.fill();
  while (auto line = worker.child.next_line()) {
    KVF_TRY(outcome, outcome_of(*line));
    const auto at = rooms_.find(outcome.room);
    if (at == rooms_.end()) return Error{.code = Code::protocol, .text = "a replay worker: " + outcome.error};
    Room& room = at->second;
    heard_ = Clock::now();
    worker.tokens_in_flight -= room.request->input_tokens;
    worker.rooms_in_flight -= 1;
    if (room.error.empty()) room.error = outcome.error;
    if (&worker == &decodes_[room.decode]) room.decoded = std::move(outcome);
    if (++room.reports < 2) continue;
    settle(room);
    rooms_.erase(at);
  }
  if (open) return {};
  const bool reaped = worker.child.wait(std::chrono::milliseconds(1000));
  return Error{.code = Code::peer_lost,
               .text = fmt::format("replay worker {} {}", worker.child.pid(),
                                   reaped ? describe_status(*worker.child.status()) : "closed its stdout")};
}

void ReplayBalancer::settle(Room& room) {
  result_.rooms += 1;
  if (!room.error.empty()) {
    result_.failed += 1;
    if (result_.reasons.size() < reasons_max) {
      result_.reasons.push_back(fmt::format("trace line {}: {}", room.request->line, room.error));
    }
    return;
  }
  result_.bytes += room.decoded.bytes;
  result_.tokens += room.request->input_tokens;
  result_.prefix_tokens += room.decoded.prefix_tokens;
  result_.handoff_us.push_back(room.decoded.us);
  if (room.decoded.wrong_items == 0) {
    result_.succeeded += 1;
    return;
  }
  result_.wrong += 1;
  if (result_.reasons.size() < reasons_max) {
    result_.reasons.push_back(
        fmt::format("trace line {}: {} items came wrong", room.request->line, room.decoded.wrong_items));
  }
}

Result<ReplayResult> ReplayBalancer::run(const std::vector<TraceRequest>& requests,
                                         const std::function<void(std::uint64_t)>& progress) {
  started_ = Clock::now();
  heard_ = started_;
  for (std::size_t next = 0; next < requests.size() || !rooms_.empty();) {
    while (next < requests.size() && window_open() && due(requests[next])) {
      if (rooms_.empty()) heard_ = Clock::now();
      KVF_CHECK(dispatch(requests[next++]));
    }
    KVF_CHECK(wait(next < requests.size() ? &requests[next] : nullptr));
    progress(result_.rooms);
  }
  result_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  return std::move(result_);
}

}  // namespace kvferry::tools
