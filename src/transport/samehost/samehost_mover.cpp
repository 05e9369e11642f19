#include "transport/samehost/samehost_mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "os/thread.h"
#include "transport/samehost/peer_memory.h"
#include "transport/samehost/pull.h"
#include "transport/samehost/pull_queue.h"

namespace kvferry::transport {
namespace {

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
    for (std::thread& thread : threads_) thread.join();
  }

  void open_session(SessionId session, std::unique_ptr<PeerMemory> peer, layout::View view) override {
    {
      // open_peer_memory is the only maker of a PeerMemory.
      std::unique_ptr<ReadablePeer> readable(static_cast<ReadablePeer*>(peer.release()));
      const std::lock_guard lock(mutex_);
      queue_.open_session(session, std::move(readable), std::move(view));
    }
    for (auto i = static_cast<std::uint32_t>(threads_.size()); i < data_threads_; ++i) {
      threads_.push_back(os::start_thread(fmt::format("kvf-pull-{}", i), [this] { run(); }));
    }
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
  void run() {
    Puller puller;
    PullQueue::Step step;
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return quit_ || queue_.ready(); });
      if (quit_) return;
      queue_.take(step);
      if (queue_.ready()) work_.notify_one();  // another worker may help
      lock.unlock();
      auto copied = puller.run(step.peer(), step.pulls, step.cancelled());
      // Asked after the copy: the bytes count only if they cannot have come from a process that took over the number.
      if (copied && step.peer().gone()) copied = Error{Code::peer_lost, "the peer's process has exited"};
      lock.lock();
      queue_.finish(step, std::move(copied));
    }
  }

  const std::uint32_t data_threads_;
  std::mutex mutex_;
  std::condition_variable work_;
  PullQueue queue_;    // under mutex_
  bool quit_ = false;  // under mutex_
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<SameHostMover> SameHostMover::create(std::uint32_t data_threads, MoverSink& sink) {
  return std::make_unique<Workers>(data_threads, sink);
}

}  // namespace kvferry::transport
