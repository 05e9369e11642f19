#include "transport/samehost/samehost_mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "os/thread.h"
#include "transport/samehost/peer_memory.h"
#include "transport/samehost/pull.h"
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
      : data_threads_(std::max<std::uint32_t>(data_threads, 2)), queue_(data_threads_ - 1, sink) {}

  ~Workers() override {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    work_.notify_all();
    busy_.notify_all();
    if (watch_.joinable()) watch_.join();
    for (const auto& worker : workers_) worker->thread.join();
  }

  void open_session(SessionId session, std::unique_ptr<PeerMemory> peer, layout::View view) override {
    const std::lock_guard lock(mutex_);
    // open_peer_memory is the only maker of a PeerMemory.
    std::unique_ptr<ReadablePeer> readable(static_cast<ReadablePeer*>(peer.release()));
    queue_.open_session(session, std::move(readable), std::move(view));
    while (workers_.size() < data_threads_) add_worker();
    if (!watch_.joinable()) watch_ = os::start_thread("kvf-pull-watch", [this] { watch(); });
  }

  void open_window(Window window) override {
    const std::lock_guard lock(mutex_);
    queue_.open_window(std::move(window));
  }
  void close_window(SessionId session, TransferId transfer) override {
    const std::lock_guard lock(mutex_);
    queue_.close_window(session, transfer);
  }
  void move(ChunkOrder order) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.move(std::move(order));
    }
    work_.notify_one();
  }
  void stop(SessionId session, TransferId transfer) override {
    const std::lock_guard lock(mutex_);
    queue_.stop(session, transfer);
  }
  void close_session(SessionId session) override {
    const std::lock_guard lock(mutex_);
    queue_.close_session(session);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    std::thread thread;
    std::optional<Clock::time_point> call_began{};  // none while it waits
    bool replaced = false;                          // another one does its work; it ends when its call comes back
    bool ended = false;
  };

  void add_worker() {
    workers_.push_back(std::make_unique<Worker>());
    Worker* worker = workers_.back().get();
    worker->thread = os::start_thread(fmt::format("kvf-pull-{}", threads_made_++), [this, worker] { run(*worker); });
  }

  void run(Worker& worker) {
    Puller puller;
    PullQueue::Step step;
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return quit_ || queue_.ready(); });
      if (quit_) return;
      queue_.take(step);
      if (queue_.ready()) work_.notify_one();  // another worker may help
      worker.call_began = Clock::now();
      if (in_call_++ == 0 && !watching_) busy_.notify_one();
      lock.unlock();
      auto copied = puller.run(step.peer(), step.pulls, step.cancelled());
      // Asked after the copy: the bytes count only if they cannot have come from a process that took over the number.
      // Where more of the chunk is to be read, the step that reads the last of it asks for all of them.
      const bool gone = copied && (step.peer().gone() || (step.last_taken() && puller.memory_gone(step.peer())));
      if (gone) copied = Error{Code::peer_lost, "the peer's process has exited"};
      lock.lock();
      --in_call_;
      worker.call_began.reset();
      queue_.finish(step, std::move(copied));
      if (worker.replaced) {
        worker.ended = true;
        return;
      }
    }
  }

  // Looks at the calls that are under way, and sleeps while there are none.
  void watch() {
    std::unique_lock lock(mutex_);
    while (!quit_) {
      watching_ = false;
      busy_.wait(lock, [this] { return quit_ || in_call_ > 0; });
      watching_ = true;
      busy_.wait_for(lock, patience, [this] { return quit_; });
      bury_ended();
      const auto late = Clock::now() - patience;
      const std::size_t before = workers_.size();
      for (std::size_t i = 0; i < before && !quit_ && workers_.size() < data_threads_ + substitutes_max; ++i) {
        Worker& worker = *workers_[i];
        if (worker.replaced || !worker.call_began || *worker.call_began > late) continue;
        worker.replaced = true;
        add_worker();
      }
    }
  }

  void bury_ended() {
    std::erase_if(workers_, [](const std::unique_ptr<Worker>& worker) {
      if (worker->ended) worker->thread.join();  // it does nothing more after it has said so
      return worker->ended;
    });
  }

  const std::uint32_t data_threads_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable busy_;  // of the watch
  // Under mutex_:
  PullQueue queue_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::uint32_t threads_made_ = 0;
  std::uint32_t in_call_ = 0;
  bool watching_ = false;  // the watch looks again by itself
  bool quit_ = false;
  std::thread watch_;
};

}  // namespace

std::unique_ptr<SameHostMover> SameHostMover::create(std::uint32_t data_threads, MoverSink& sink) {
  return std::make_unique<Workers>(data_threads, sink);
}

}  // namespace kvferry::transport
