// The decode process of `bench failover`: rooms that are held in flight until their prefill process goes, and closed
// loops with those that stay.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "kvferry/kvferry.h"
#include "tools/bench_loop.h"
#include "tools/bench_prefill.h"

namespace kvferry::tools {

struct Pings {
  Settings::Millis interval{};
  std::uint32_t misses_max = 0;
  // No silence may last longer: one interval before the first ping, one for each that is not answered.
  Settings::Millis limit() const { return interval * (misses_max + 1); }
};

struct RigPlan {
  Way way = Way::samehost;
  std::size_t rooms = 32;      // held with the process that goes
  std::optional<Pings> pings;  // the defaults where there are none
};

// What one signal to a prefill process did to the rooms that were held with it.
struct Loss {
  std::vector<double> failed_ms;       // from the signal to Failed, one a room
  std::vector<double> after_close_ms;  // from the closing of the process's descriptors; SIGKILL alone
  std::size_t hung = 0;                // rooms that did not fail
  std::size_t wrong = 0;               // rooms that succeeded without their bytes
  std::string reason;                  // of a failed room
};

// A resource: owns the decode manager and its memory. Prefill instances that it made go before it does.
class FailoverRig {
 public:
  static Result<FailoverRig> make(const RigPlan& plan);

  // An instance with a running process that keeps so much private memory touched.
  Result<BenchPrefill> prefill(const std::string& name, std::uint64_t ballast_bytes = 0) const;

  // Opens the rooms that are held: all granted, and every second one with half of its bytes. None can succeed.
  Result<void> hold(BenchPrefill& prefill);
  // Sends the signal and waits until the held rooms have failed, while the loops go on.
  Result<Loss> lose(BenchPrefill& prefill, int signal);
  // Waits until nothing can write to their pages any more, and writes marks there.
  Result<void> wait_released();
  // Held rooms that do not say Failed any more, or whose marks are gone.
  std::size_t revived() const;
  void drop_held();

  // A room with this process, with its number and a place of its own: `spare` counts from 0.
  Result<Receiver> open(const BenchPrefill& prefill, std::uint64_t room, std::size_t spare);
  bool holds(std::uint64_t room, std::size_t spare) const { return places_.holds(spare_place(spare), room); }
  std::uint64_t take_numbers(std::uint64_t count) { return std::exchange(next_room_, next_room_ + count); }

  // Keeps rooms with this process in flight from now on.
  Result<void> start_loop(BenchPrefill& prefill);
  std::uint64_t loop_rooms() const;
  std::uint64_t loop_failures() const;
  std::uint64_t loop_wrong() const { return loop_wrong_; }

  // Waits for changes and takes them. False once the time (monotonic seconds) has come.
  Result<bool> turn(double until_seconds);
  Result<void> run_until(double until_seconds);

  static constexpr std::size_t spares = 8;

 private:
  struct Held {
    Receiver receiver;
    double failed_at = 0;
  };
  struct Loop {
    std::string bootstrap;
    RoomLoop<Receiver> rooms;
    std::size_t first_place;
  };
  FailoverRig(const RigPlan& plan, Places places, KvManager manager)
      : plan_(plan), places_(std::move(places)), manager_(std::move(manager)) {}

  std::uint64_t spare_place(std::size_t spare) const { return plan_.rooms + spare; }
  Result<Receiver> open_at(const std::string& bootstrap, std::uint64_t room, std::uint64_t place);
  bool under_way() const;
  void take(const RoomChange& change, double at);
  Result<void> fill(Loop& loop);

  RigPlan plan_;
  Places places_;
  KvManager manager_;
  std::vector<Held> held_;
  std::uint64_t held_first_ = 0;
  std::size_t held_failed_ = 0;
  std::size_t held_wrong_ = 0;
  std::deque<Loop> loops_;  // their rooms stay where they are
  std::uint64_t loop_wrong_ = 0;
  std::uint64_t next_room_ = 1;
};

}  // namespace kvferry::tools
