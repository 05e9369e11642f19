// Is the peer alive? Arithmetic on pings and signs of life; whoever calls brings the clock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/limits.h"
#include "base/time.h"

namespace kvferry::core {

// A value, one a session. Anything the peer says is a sign of life; silence is asked with pings, and `ping_misses_max`
// unanswered ones in a row are death.
class PeerHealth {
 public:
  enum class Verdict : std::uint8_t { alive, ask, dead };

  PeerHealth() = default;
  PeerHealth(const Limits& limits, Instant now) : interval_(limits.ping_interval), next_(now + interval_) {
    misses_max_ = std::max<std::uint32_t>(1, limits.ping_misses_max);
  }

  void heard() { misses_ = 0; }
  // When `on_time` wants to be called next.
  Instant next() const { return next_; }
  // `ask` means: send Ping{number()}. Called late by an interval or more, it asks once more and judges nobody: a
  // stopped process that wakes must not find all its peers dead before it has read what they sent.
  Verdict on_time(Instant now) {
    if (now < next_) return Verdict::alive;
    const bool late = now - next_ >= interval_;
    next_ = now + interval_;
    if (misses_ >= misses_max_ && !late) return Verdict::dead;
    misses_ = std::min(misses_ + 1, misses_max_);
    ++number_;
    return Verdict::ask;
  }
  std::uint64_t number() const { return number_; }
  std::uint32_t misses() const { return misses_; }

 private:
  Duration interval_{};
  Instant next_ = Instant::max();
  std::uint32_t misses_max_ = 1;
  std::uint32_t misses_ = 0;  // pings sent since the last sign of life
  std::uint64_t number_ = 0;
};

}  // namespace kvferry::core
