// Every sequence of bounded choices, one run at a time. A loop asks pick(n); next_run() goes on to the next sequence.
#pragma once

#include <cstddef>
#include <vector>

#include "base/assert.h"

namespace kvferry::sim {

class Choices {
 public:
  bool next_run() {
    at_ = 0;
    if (!started_) return started_ = true;
    while (!path_.empty() && path_.back().value == path_.back().bound) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().value;
    return true;
  }
  std::size_t pick(std::size_t count) {
    if (at_ == path_.size()) path_.push_back({0, count - 1});
    KVF_ASSERT(path_[at_].bound == count - 1);  // else something is not decided by the choices alone
    return path_[at_++].value;
  }

 private:
  struct Point {
    std::size_t value, bound;
  };
  std::vector<Point> path_;
  std::size_t at_ = 0;
  bool started_ = false;
};

}  // namespace kvferry::sim
