// The virtual clock and what is to happen, in the order of (instant, sequence). Time jumps to what is next.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/time.h"

namespace kvferry::sim {

class Schedule {
 public:
  Instant now() const { return now_; }
  bool empty() const { return queue_.empty(); }
  Instant next() const { return queue_.empty() ? Instant::max() : queue_.begin()->first.first; }
  void at(Instant when, std::function<void()> what) {
    queue_.emplace(std::pair(when < now_ ? now_ : when, sequence_++), std::move(what));
  }
  void after(Duration wait, std::function<void()> what) { at(now_ + wait, std::move(what)); }
  // Lets the next thing happen.
  void step() {
    const auto first = queue_.begin();
    now_ = first->first.first;
    const std::function<void()> what = std::move(first->second);
    queue_.erase(first);
    what();
  }
  std::uint64_t steps() const { return sequence_; }

 private:
  Instant now_{std::chrono::seconds(1)};
  std::uint64_t sequence_ = 0;
  std::map<std::pair<Instant, std::uint64_t>, std::function<void()>> queue_;
};

}  // namespace kvferry::sim
