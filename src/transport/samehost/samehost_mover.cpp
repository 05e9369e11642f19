#include "transport/samehost/samehost_mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "os/clock.h"
#include "os/thread.h"
#include "transport/samehost/peer_memory.h"
#include "transport/samehost/pull.h"
#include "transport/samehost/pull_crew.h"
#include "transport/samehost/pull_queue.h"

namespace kvferry::transport {
namespace {

// A call that has not come back by then may never do so: the kernel does not serve the peer's memory.
constexpr std::chrono::milliseconds patience{100};
// Threads that stand in for others at a time. Each session holds up at most all but one of the threads, so a process
// needs many such peers to come here.
constexpr std::size_t substitutes_max = 64;

class Workers final : public SameHostMover {
 public:
  Workers(std::uint32_t data_threads, MoverSink& sink)
      : data_threads_(std::max<std::uint32_t>(data_threads, 2)),
        threads_(data_threads_ + substitutes_max),
        crew_(data_threads_ - 1, sink) {}

  ~Workers() override {
    Visit(*this)->quit();
    if (watch_.joinable()) watch_.join();
    for (Thread& worker : threads_) {
      if (worker.thread.joinable()) worker.thread.join();
    }
  }

  void open_session(SessionId session, std::unique_ptr<PeerMemory> peer, layout::View view) override {
    // open_peer_memory is the only maker of a PeerMemory.
    std::unique_ptr<ReadablePeer> readable(static_cast<ReadablePeer*>(peer.release()));
    Visit crew(*this);
    crew->change([&](PullQueue& queue) { queue.open_session(session, std::move(readable), std::move(view)); });
    while (crew->size() < data_threads_) add_worker();
    if (!watch_.joinable()) watch_ = os::start_thread("kvf-pull-watch", [this] { watch(); });
  }
  void open_window(Window window) override {
    Visit(*this)->change([&](PullQueue& queue) { queue.open_window(std::move(window)); });
  }
  void close_window(SessionId session, TransferId transfer) override {
    Visit(*this)->change([&](PullQueue& queue) { queue.close_window(session, transfer); });
  }
  void move(ChunkOrder order) override {
    Visit(*this)->change([&](PullQueue& queue) { queue.move(std::move(order)); });
  }
  void stop(SessionId session, TransferId transfer) override {
    Visit(*this)->change([&](PullQueue& queue) { queue.stop(session, transfer); });
  }
  void close_session(SessionId session) override {
    Visit(*this)->change([&](PullQueue& queue) { queue.close_session(session); });
  }

 private:
  struct Thread {
    std::thread thread;
    std::condition_variable called;
  };

  // The only way to the crew. Whom the crew has called is woken when the visit ends, or rests.
  class Visit {
   public:
    explicit Visit(Workers& all) : all_(all), lock_(all.mutex_) {}
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit() {
      if (lock_.owns_lock()) leave();
    }
    PullCrew* operator->() { return &all_.crew_; }
    void leave() {
      const PullCrew::Called called = all_.crew_.take_called();
      lock_.unlock();
      all_.wake(called);
    }
    void come_back() { lock_.lock(); }
    template <class Until>
    void wait(std::condition_variable& until_called, Until until) {
      all_.wake(all_.crew_.take_called());
      until_called.wait(lock_, until);
    }
    template <class Until>
    void wait_for(Duration at_most, std::condition_variable& until_called, Until until) {
      all_.wake(all_.crew_.take_called());
      until_called.wait_for(lock_, at_most, until);
    }

   private:
    Workers& all_;
    std::unique_lock<std::mutex> lock_;
  };

  // Needs no lock: the places of threads stay where they are.
  void wake(const PullCrew::Called& called) {
    for (const PullCrew::WorkerId id : called.workers) threads_[id].called.notify_one();
    if (called.watch) watch_called_.notify_one();
  }

  // Within a visit.
  void add_worker() {
    const PullCrew::WorkerId id = crew_.add();
    std::thread& thread = threads_[id].thread;
    if (thread.joinable()) thread.join();  // its worker has ended and does nothing more
    thread = os::start_thread(fmt::format("kvf-pull-{}", threads_made_++), [this, id] { run(id); });
  }

  void run(PullCrew::WorkerId id) {
    Puller puller;
    PullQueue::Step step;
    Visit crew(*this);
    for (;;) {
      switch (crew->next(id, step, os::now())) {
        case PullCrew::Next::end:
          return;
        case PullCrew::Next::sleep:
          crew.wait(threads_[id].called, [&] { return crew->state(id) != PullCrew::State::asleep; });
          break;
        case PullCrew::Next::copy:
          crew.leave();
          auto copied = copy(puller, step);
          crew.come_back();
          crew->copied(id, step, std::move(copied));
      }
    }
  }

  static Result<void> copy(Puller& puller, const PullQueue::Step& step) {
    auto copied = puller.run(step.peer(), step.pulls, step.cancelled());
    // Asked after the copy: the bytes count only if they cannot have come from a process that took over the number.
    // Where more of the chunk is to be read, the step that reads the last of it asks for all of them.
    const bool gone = copied && (step.peer().gone() || (step.last_taken() && step.peer().memory_gone()));
    if (gone) return Error{Code::peer_lost, "the peer's process has exited"};
    return copied;
  }

  // Looks at the calls that are under way, and sleeps while there are none.
  void watch() {
    Visit crew(*this);
    while (!crew->quitting()) {
      if (crew->watch_rests()) crew.wait(watch_called_, [&] { return !crew->watch_sleeps(); });
      crew.wait_for(patience, watch_called_, [&] { return crew->quitting(); });
      if (crew->quitting()) return;
      for (const PullCrew::WorkerId late : crew->late(os::now() - patience)) {
        if (crew->working() == threads_.size()) break;
        add_worker();
        crew->replace(late);
      }
    }
  }

  const std::uint32_t data_threads_;
  std::mutex mutex_;
  std::vector<Thread> threads_;  // by worker; as many as there can be
  std::condition_variable watch_called_;
  // Under mutex_:
  PullCrew crew_;
  std::uint64_t threads_made_ = 0;
  std::thread watch_;
};

}  // namespace

std::unique_ptr<SameHostMover> SameHostMover::create(std::uint32_t data_threads, MoverSink& sink) {
  return std::make_unique<Workers>(data_threads, sink);
}

}  // namespace kvferry::transport
