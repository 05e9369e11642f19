#include "tools/balancer.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/try.h"

namespace kvferry::tools {

using State = Outcome::State;
using std::chrono::milliseconds;

Balancer::Balancer(std::vector<EngineProcess*> engines, std::vector<DemoRequest> requests, Limits limits)
    : engines_(std::move(engines)),
      requests_(std::move(requests)),
      limits_(limits),
      outcomes_(requests_.size()),
      in_flight_(engines_.size()),
      lost_(engines_.size()),
      rooms_(std::random_device{}()) {}

Result<void> Balancer::run(const std::optional<Kill>& kill, const std::function<void(std::size_t)>& progress) {
  KVF_CHECK(wait_ready());
  while (ended_ < requests_.size()) {
    hand_out_all();
    wait_for_answers(milliseconds{100});
    check_deadlines();
    if (kill && !killed_ && kill_is_due(*kill)) carry_out(*kill);
    progress(ended_);
  }
  // Prefill engines may still have a word to say on requests that ended; nobody waits for those that are gone.
  Clock::time_point farewell = Clock::now() + limits_.farewell;
  while (prefill_open() > 0 && Clock::now() < farewell) {
    wait_for_answers(milliseconds{20});
    abort_orphans(Clock::now());
  }
  return {};
}

Result<void> Balancer::wait_ready() {
  Clock::time_point deadline = Clock::now() + limits_.ready;
  for (EngineProcess* engine : engines_) {
    while (!engine->ready()) {
      wait_for_answers(milliseconds{50});
      if (!losses_.empty()) return Error{Code::peer_lost, losses_.front()};
      if (Clock::now() > deadline) {
        return Error{Code::timeout,
                     fmt::format("{} was not ready within {} ms", engine->name(), limits_.ready.count())};
      }
    }
  }
  return {};
}

bool Balancer::may_hand_out(std::size_t index) const {
  const DemoRequest& request = requests_[index];
  if (outcomes_[index].state != State::waiting) return false;
  if (request.after && outcomes_[*request.after].state <= State::running) return false;
  if (request.prefill && !engines_[*request.prefill]->ready()) return false;
  return engines_[request.decode]->ready() && in_flight_[request.decode] < limits_.in_flight_max;
}

void Balancer::hand_out_all() {
  for (std::size_t index = 0; index < requests_.size(); ++index) {
    if (may_hand_out(index)) hand_out(index);
  }
}

void Balancer::hand_out(std::size_t index) {
  const DemoRequest& request = requests_[index];
  outcomes_[index].state = State::running;
  ++in_flight_[request.decode];
  attempts_.push_back({.request = index,
                       .prefill = request.prefill,
                       .decode = request.decode,
                       .deadline = Clock::now() + limits_.request,
                       .prefill_ended = !request.prefill.has_value()});
  EngineRequest words{.id = attempts_.size() - 1,
                      .room = rooms_() >> 1,  // a JSON number of any reader
                      .bootstrap = request.prefill ? engines_[*request.prefill]->bootstrap() : std::string(),
                      .prompt = request.prompt,
                      .max_tokens = request.max_tokens};
  // An engine that cannot be told is gone or hangs: its closed stdout, or the deadline, says so.
  (void)engines_[request.decode]->request(words).has_value();
  if (request.prefill) (void)engines_[*request.prefill]->request(words).has_value();
}

void Balancer::wait_for_answers(milliseconds longest) {
  std::vector<pollfd> polled;
  std::vector<std::size_t> owners;
  for (std::size_t engine = 0; engine < engines_.size(); ++engine) {
    if (!engines_[engine]->running()) continue;
    polled.push_back({.fd = engines_[engine]->fd(), .events = POLLIN, .revents = 0});
    owners.push_back(engine);
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(longest.count()));
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    std::vector<EngineAnswer> answers;
    bool open = engines_[owners[i]]->take(answers);
    for (EngineAnswer& answer : answers) hear(owners[i], std::move(answer));
    if (!open) lose(owners[i]);
  }
}

void Balancer::hear(std::size_t engine, EngineAnswer answer) {
  bool done = answer.kind == EngineAnswer::Kind::done;
  if (answer.kind == EngineAnswer::Kind::ready && killed_ && killed_->engine == engine)
    killed_->ready_ms = ms_since_kill();
  if (!done && answer.kind != EngineAnswer::Kind::failed) return;
  if (answer.id >= attempts_.size()) return;
  Attempt& attempt = attempts_[answer.id];
  if (attempt.prefill == engine) {
    attempt.prefill_ended = true;
    if (!done) notice(attempt, engines_[engine]->name(), answer.code, answer.error);
  } else if (attempt.decode == engine && !attempt.ended) {
    if (!done) notice(attempt, engines_[engine]->name(), answer.code, answer.error);
    end(attempt, done ? State::done : State::failed, std::move(answer));
  }
}

void Balancer::end(Attempt& attempt, State state, EngineAnswer answer) {
  attempt.ended = true;
  if (state == State::failed && !attempt.prefill_ended) attempt.abort_prefill_at = Clock::now() + limits_.orphan;
  --in_flight_[attempt.decode];
  Outcome& outcome = outcomes_[attempt.request];
  outcome.answer = std::move(answer);
  const bool engines_live = !lost_[attempt.decode] && !(attempt.prefill && lost_[*attempt.prefill]);
  if (state == State::failed && outcome.needed_killed && !outcome.retried && engines_live) {
    outcome.retried = true;
    outcome.state = State::waiting;
    return;
  }
  outcome.state = state;
  ++ended_;
  if (state == State::done) ++done_;
}

void Balancer::notice(const Attempt& attempt, std::string by, std::string code, std::string error) {
  notices_.push_back({.request = attempt.request,
                      .by = std::move(by),
                      .ms = killed_ ? std::optional(ms_since_kill()) : std::nullopt,
                      .code = std::move(code),
                      .error = std::move(error)});
}

void Balancer::check_deadlines() {
  Clock::time_point now = Clock::now();
  for (Attempt& attempt : attempts_) {
    if (!attempt.ended && now > attempt.deadline) end(attempt, State::hung, {});
  }
  abort_orphans(now);
  if (killed_ && !killed_->ready_ms && !lost_[killed_->engine] && now > killed_->at + limits_.ready) {
    give_up_on(killed_->engine, "was not ready again in time");
  }
}

void Balancer::abort_orphans(Clock::time_point now) {
  for (std::size_t id = 0; id < attempts_.size(); ++id) {
    Attempt& attempt = attempts_[id];
    if (attempt.prefill_ended || !attempt.abort_prefill_at || now < *attempt.abort_prefill_at) continue;
    attempt.abort_prefill_at.reset();
    // Where it cannot be told it is gone, and its closed stdout says so.
    (void)engines_[*attempt.prefill]->abort(id).has_value();
  }
}

std::size_t Balancer::prefill_open() const {
  return static_cast<std::size_t>(std::ranges::count(attempts_, false, &Attempt::prefill_ended));
}

}  // namespace kvferry::tools
