// What a run of the simulator is made of. A seed and these options decide everything that happens in it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.h"
#include "sim/prng.h"

namespace kvferry::sim {

// A real mistake that the simulated world makes on purpose; the checkers must find it.
enum class Plant : std::uint8_t {
  none,
  window_closed_early,   // says WindowClosed while a copy into the window is under way
  placed_early,          // says Placed with the first part of the last chunk
  stopped_early,         // says Stopped while the mover still reads
  session_closed_early,  // says SessionClosed and places what is still on the wire
  deaf_to_time,          // never turns by time
  prefix_addresses,      // the loss of 10.0.0.1:80 is also taken for that of 10.0.0.1:8000
  transfer_ids_reused,   // the transfer id is the room number
  confirm_lost,          // some confirmations are not sent
  aux_forgotten,         // the aux record is reported and not written
  unfair_queue,          // one queue for all sessions: who cannot take bytes holds up everybody behind
  bits_flipped,          // memory, driver or card change a word now and then
  dead_letters,          // what a lost link did not deliver is delivered over the next one
};
inline constexpr std::array planted{Plant::window_closed_early,  Plant::placed_early, Plant::stopped_early,
                                    Plant::session_closed_early, Plant::deaf_to_time, Plant::prefix_addresses,
                                    Plant::transfer_ids_reused,  Plant::confirm_lost, Plant::aux_forgotten,
                                    Plant::dead_letters,         Plant::bits_flipped, Plant::unfair_queue};
const char* plant_name(Plant plant);

// Which kinds of trouble exist in a run at all, drawn from the seed: with everything at once nothing gets far enough.
struct Swarm {
  bool kill = false;          // processes die and are restarted on the same address or another
  bool stop = false;          // processes stand still for a while, longer than the pings allow or not
  bool reborn = false;        // a stopped process wakes beside its successor
  bool jump = false;          // wall clocks go back between a process's end and its successor's start
  bool cut = false;           // a cable: nothing is delivered, nobody is told
  bool oneway = false;        // the same for one direction of a link
  bool reset = false;         // a link breaks, both ends are told
  bool stream = false;        // a data stream breaks alone
  bool clog = false;          // links of a pair deliver nothing for a while, then everything
  bool outage = false;        // bootstrap servers do not answer for a while
  bool abort = false;         // engines abort at any moment
  bool early_clear = false;   // engines clear rooms that have not concluded
  bool unopened = false;      // one engine never opens its side
  bool duplicate = false;     // two decode ranks are given one room
  bool hostile = false;       // tables of one to three entries, time limits below the latency
  bool pull = false;          // pairs on one host
  bool one_instance = false;  // the prefill ranks are dp groups of one instance
  bool nameless = false;      // prefill ranks are registered without their incarnation
  bool verify = false;        // decode ranks want the end-to-end check
  bool slow = false;          // movers lag behind: releases come late
  std::uint32_t fault_count = 0;
  static Swarm draw(Prng& prng);
  // Turns off what is not named; what is no trouble stays as drawn.
  void keep_only(const std::vector<std::string>& faults);
  // The words for the kinds that are on.
  std::string text() const;
};
// The words for the kinds of trouble, as `SimOptions::faults` takes them.
std::vector<std::string> fault_names();
Limits draw_limits(const Swarm& swarm, Prng& prng);

struct SimOptions {
  std::uint64_t seed = 1;
  std::uint32_t prefill = 2;  // ranks
  std::uint32_t decode = 2;
  std::uint32_t rooms = 40;           // requests, on fewer room numbers
  std::vector<std::string> faults{};  // the kinds of trouble there may be; empty: all
  // Requests and pieces of trouble, counted from 0, that are left out; everything else is drawn as if they were there.
  std::vector<std::uint32_t> without_requests{};
  std::vector<std::uint32_t> without_faults{};
  Plant plant = Plant::none;
  bool verify = false;  // the end-to-end check in every run, not in some
  bool story = false;   // keep what happened, for people; does not change what happens
};

// What to type to see the same run again.
std::string command_line(const SimOptions& options);

struct SimResult {
  bool ok = true;
  std::string violation;  // what did not hold
  std::string story;      // with `story`: what happened to the rooms involved, in order, and how to see it again
  std::string swarm;
  std::uint64_t trace_hash = 0;
  std::uint64_t steps = 0;
  std::uint64_t rooms_succeeded = 0;  // counted on the decode side
  std::uint64_t rooms_failed = 0;
  std::uint64_t faults = 0;
};

// One run. Deterministic: the same options give the same result.
SimResult run(const SimOptions& options);
// The same, and where it fails once more with its story; every twentieth seed runs twice and must do the same twice.
SimResult run_checked(SimOptions options);

}  // namespace kvferry::sim
