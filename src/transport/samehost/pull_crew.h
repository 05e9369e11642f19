// Who of the same-host mover's threads does what, as a value: what a worker does between two waits is one call, and so
// is what the control thread and the watch do. The mover guards it with its mutex.
//
// No caller has to think of waking. Every call ends in settle(), which calls a sleeping worker for each turn of the
// queue that nobody is on the way to: whoever made the work and whoever ended meanwhile, none waits beside a sleeper.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"
#include "transport/samehost/pull_queue.h"

namespace kvferry::transport {

class PullCrew {
 public:
  using WorkerId = std::size_t;  // used again once the worker has ended
  enum class State : std::uint8_t {
    awake,    // its thread comes to ask what is next
    asleep,   // until it is called
    copying,  // in a call, without the lock
    ended     // its thread does nothing more
  };
  enum class Next : std::uint8_t { copy, sleep, end };
  // Whose threads must be woken.
  struct Called {
    std::vector<WorkerId> workers;
    bool watch = false;
  };

  PullCrew(std::uint32_t workers_a_session_max, MoverSink& sink) : queue_(workers_a_session_max, sink) {}

  // ---- The control thread: everything that is done to the queue.
  template <class Change>
  void change(Change change) {
    change(queue_);
    settle();
  }
  // A new worker, awake.
  WorkerId add();
  // Its thread could not be started.
  void drop(WorkerId worker);
  // Who sleeps is called; everybody ends when he asks what is next.
  void quit();

  // ---- A worker's thread.
  // copy: carry `step` out, then say so. sleep: until the state is another one. end: for ever.
  Next next(WorkerId worker, PullQueue::Step& step, Instant now);
  void copied(WorkerId worker, PullQueue::Step& step, Result<void> result);

  // ---- The watch's thread.
  // It sleeps now, until it is called, if no call is under way.
  bool watch_rests();
  bool watch_sleeps() const { return watch_sleeps_; }
  // Those whose call began before `since` and whom nobody replaces yet.
  std::vector<WorkerId> late(Instant since) const;
  // Another one does its work: it ends when its call comes back.
  void replace(WorkerId worker);

  // ---- Whoever has called one of the above. Once each.
  Called take_called() { return std::exchange(called_, {}); }
  bool quitting() const { return quit_; }
  std::size_t size() const { return workers_.size(); }  // ended ones included
  std::size_t working() const;                          // those that have not ended
  State state(WorkerId worker) const { return workers_[worker].state; }
  // Turns that nobody has taken.
  std::size_t turns() const { return queue_.turns(); }

 private:
  struct Worker {
    State state = State::awake;
    bool replaced = false;
    Instant call_began{};
  };
  void settle();

  PullQueue queue_;
  std::vector<Worker> workers_;
  std::size_t copying_ = 0;
  bool watch_sleeps_ = false;
  bool quit_ = false;
  Called called_;
};

}  // namespace kvferry::transport
