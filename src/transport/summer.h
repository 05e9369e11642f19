// Sums up memory of this side for the end-to-end check, on a thread of its own that exists once it is needed.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "layout/view.h"
#include "transport/mover.h"

namespace kvferry::transport {

// The sum of the order's items. Both sides get one value for equal bytes, however their pages lie.
std::uint32_t sum_of(const layout::View& view, const core::SumOrder& order);

class Summer {
 public:
  explicit Summer(MoverSink& sink) : sink_(sink) {}  // which outlives the summer
  ~Summer();                                         // drops what waits
  Summer(const Summer&) = delete;
  Summer& operator=(const Summer&) = delete;

  // One thread. Answered by Summed; orders are taken one after the other. The view is shared with the session, which
  // may end before its order is taken.
  void sum(core::SumOrder order, std::shared_ptr<const layout::View> view);

 private:
  void run();

  struct Job {
    core::SumOrder order;
    std::shared_ptr<const layout::View> view;
  };
  MoverSink& sink_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // under mutex_; bounded by the rooms that core has live
  bool quit_ = false;     // under mutex_
  std::thread thread_;
};

}  // namespace kvferry::transport
