// Sums up memory of this side for the end-to-end check, on a thread of its own that exists once it is needed.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "kvferry/layout.h"
#include "transport/mover.h"

namespace kvferry::transport {

// The sum of the order's items. Both sides get one value for equal bytes, however their pages lie.
std::uint32_t sum_of(const Memory& memory, const core::SumOrder& order);

class Summer {
 public:
  // Both outlive the summer.
  Summer(const Memory& memory, MoverSink& sink) : memory_(memory), sink_(sink) {}
  ~Summer();  // drops what waits
  Summer(const Summer&) = delete;
  Summer& operator=(const Summer&) = delete;

  // One thread. Answered by Summed; orders are taken one after the other.
  void sum(core::SumOrder order);

 private:
  void run();

  const Memory& memory_;
  MoverSink& sink_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<core::SumOrder> orders_;  // under mutex_; bounded by the rooms that core has live
  bool quit_ = false;                  // under mutex_
  std::thread thread_;
};

}  // namespace kvferry::transport
