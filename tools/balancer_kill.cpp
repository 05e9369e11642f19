// The part of the balancer that deals with engines that go: the one it kills, and those that end by themselves.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "tools/balancer.h"

namespace kvferry::tools {

using State = Outcome::State;

bool Balancer::kill_is_due(const Kill& kill) const {
  if (done_ < kill.after_done) return false;
  // A kill is worth something only while a request needs the engine.
  return std::ranges::any_of(attempts_, [&](const Attempt& attempt) { return needs(attempt, kill.engine); });
}

bool Balancer::needs(const Attempt& attempt, std::size_t engine) const {
  if (attempt.ended) return false;
  return attempt.decode == engine || (attempt.prefill == engine && !attempt.prefill_ended);
}

void Balancer::carry_out(const Kill& kill) {
  wait_for_answers(std::chrono::milliseconds{0});  // what has been answered does not need it any more
  EngineProcess& engine = *engines_[kill.engine];
  if (!engine.running()) return;
  killed_ = KillRecord{.engine = kill.engine, .pid = engine.pid(), .answers = done_, .at = Clock::now()};
  engine.kill();
  for (const Attempt& attempt : attempts_) {
    if (!needs(attempt, kill.engine)) continue;
    outcomes_[attempt.request].needed_killed = true;
    ++killed_->requests;
  }
}

void Balancer::lose(std::size_t index) {
  EngineProcess& engine = *engines_[index];
  const std::string how = engine.bury();
  for (Attempt& attempt : attempts_) {
    if (attempt.prefill == index) attempt.prefill_ended = true;
    if (attempt.decode != index || attempt.ended) continue;
    std::string reason = fmt::format("{} {}", engine.name(), how);
    notice(attempt, "load balancer", "peer_lost", reason);
    end(attempt, State::failed, {.kind = EngineAnswer::Kind::failed, .error = std::move(reason), .code = "peer_lost"});
  }
  const bool first_end_of_killed = killed_ && killed_->engine == index && killed_->how.empty();
  if (!first_end_of_killed) return give_up_on(index, how);
  killed_->how = how;
  if (auto started = engine.start(); !started) give_up_on(index, started.error().text);
}

void Balancer::give_up_on(std::size_t index, const std::string& why) {
  std::string reason = fmt::format("{} {}", engines_[index]->name(), why);
  losses_.push_back(reason);
  lost_[index] = true;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (outcomes_[i].state != State::waiting) continue;
    if (requests_[i].decode != index && requests_[i].prefill != index) continue;
    outcomes_[i].state = State::failed;
    outcomes_[i].answer = {.kind = EngineAnswer::Kind::failed, .error = reason, .code = "peer_lost"};
    ++ended_;
  }
}

double Balancer::ms_since_kill() const {
  return std::chrono::duration<double, std::milli>(Clock::now() - killed_->at).count();
}

}  // namespace kvferry::tools
