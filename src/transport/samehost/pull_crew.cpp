#include "transport/samehost/pull_crew.h"

#include <algorithm>

namespace kvferry::transport {

void PullCrew::settle() {
  // Who is awake takes one turn when he asks, unless he is to end.
  auto coming = static_cast<std::size_t>(std::ranges::count_if(
      workers_, [](const Worker& worker) { return worker.state == State::awake && !worker.replaced; }));
  for (WorkerId id = 0; id < workers_.size() && (quit_ || coming < queue_.turns()); ++id) {
    if (workers_[id].state != State::asleep) continue;
    workers_[id].state = State::awake;
    called_.workers.push_back(id);
    ++coming;
  }
  if (watch_sleeps_ && copying_ > 0) {
    watch_sleeps_ = false;
    called_.watch = true;
  }
}

std::size_t PullCrew::working() const {
  return workers_.size() - static_cast<std::size_t>(std::ranges::count(workers_, State::ended, &Worker::state));
}

PullCrew::WorkerId PullCrew::add() {
  const auto free = std::ranges::find(workers_, State::ended, &Worker::state);
  const auto id = static_cast<WorkerId>(free - workers_.begin());
  if (free == workers_.end()) {
    workers_.emplace_back();
  } else {
    *free = {};
  }
  return id;
}

void PullCrew::drop(WorkerId worker) {
  workers_[worker].state = State::ended;
  settle();
}

void PullCrew::quit() {
  quit_ = true;
  watch_sleeps_ = false;
  called_.watch = true;
  settle();
}

PullCrew::Next PullCrew::next(WorkerId id, PullQueue::Step& step, Instant now) {
  Worker& worker = workers_[id];
  Next next = Next::sleep;
  if (quit_ || worker.replaced) {
    worker.state = State::ended;
    next = Next::end;
  } else if (!queue_.ready()) {
    worker.state = State::asleep;
  } else {
    queue_.take(step);
    worker.state = State::copying;
    worker.call_began = now;
    ++copying_;
    next = Next::copy;
  }
  settle();
  return next;
}

void PullCrew::copied(WorkerId id, PullQueue::Step& step, Result<void> result) {
  workers_[id].state = State::awake;
  --copying_;
  queue_.finish(step, std::move(result));
  settle();
}

bool PullCrew::watch_rests() {
  watch_sleeps_ = copying_ == 0 && !quit_;
  settle();
  return watch_sleeps_;
}

std::vector<PullCrew::WorkerId> PullCrew::late(Instant since) const {
  std::vector<WorkerId> late;
  for (WorkerId id = 0; id < workers_.size(); ++id) {
    const Worker& worker = workers_[id];
    if (worker.state == State::copying && !worker.replaced && worker.call_began <= since) late.push_back(id);
  }
  return late;
}

void PullCrew::replace(WorkerId worker) {
  workers_[worker].replaced = true;
  settle();
}

}  // namespace kvferry::transport
