// A clock that cannot be read: pure code adds and compares instants, but whoever calls it brings the time.
#pragma once

#include <chrono>

namespace kvferry {

struct Steady {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Steady>;
  static constexpr bool is_steady = true;  // and no now()
};
using Instant = Steady::time_point;
using Duration = Steady::duration;

}  // namespace kvferry
