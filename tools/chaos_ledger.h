// The book of a chaos run: which room is with whom, how it ended, and whether it may have failed. No clock, no
// processes: times come in as seconds since the start of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/chaos_faults.h"
#include "tools/replay_messages.h"

namespace kvferry::tools {

// One fault as it came about, and what it did.
struct FaultRecord {
  Fault fault;
  double began_s = 0;
  std::optional<double> ended_s{};       // its worker works again
  std::size_t rooms_with_it = 0;         // rooms that were in flight with the worker, or handed out while it lasted
  std::size_t rooms_failed = 0;          // of those
  std::optional<double> noticed_s{};     // the first of them failed
  std::optional<double> all_failed_s{};  // the last
  std::optional<double> recovered_s{};   // the first room handed out after its end that succeeded with the worker
};

struct ChaosTotals {
  std::uint64_t rooms = 0;  // that ended
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;            // with a worker that was in trouble
  std::uint64_t healthy_failures = 0;  // failed, and nobody in trouble had a part in them
  std::uint64_t wrong = 0;             // said success and held a wrong byte
  std::uint64_t hung = 0;
  std::uint64_t given_up = 0;  // sides that had to be told, since the other died before they knew each other
  std::uint64_t bytes = 0;
};

class ChaosLedger {
 public:
  struct Limits {
    double orphan_s = 3;  // from a failure on one side until the other is told to give the room up
    double hang_s = 60;   // calm that a room gets to end in
    double grace_s = 1;   // after a fault's end, in which a room may still meet what is left of it
    double bucket_s = 0.25;
  };
  struct Order {
    std::size_t worker = 0;
    std::uint64_t room = 0;
  };

  ChaosLedger(std::size_t prefill, std::size_t decode, Limits limits);

  void begin(std::uint64_t room, std::size_t prefill, std::size_t decode, double now_s);
  // What a worker says of a room. Of one that has ended as hung, or that it never had, nothing is taken.
  void hear(std::size_t worker, const RoomOutcome& outcome, double now_s);
  // The worker's process is gone: its side of its rooms is over.
  void lose(std::size_t worker, double now_s);

  // The number of the fault for `fault_ended`.
  std::size_t fault_began(const Fault& fault, double now_s);
  void fault_ended(std::size_t number, double now_s);

  // Who must be told to give a room up. Rooms that had their time without ending are counted as hung and forgotten.
  std::vector<Order> due(double now_s);
  // At the end: what is still in flight is hung.
  void close();

  std::size_t live() const { return rooms_.size(); }
  std::size_t in_flight(std::size_t worker) const { return workers_[worker].in_flight; }

  const ChaosTotals& totals() const { return totals_; }
  const std::vector<FaultRecord>& faults() const { return faults_; }
  // Bytes of rooms that succeeded, a bucket each.
  const std::vector<std::uint64_t>& bytes_by_bucket() const { return bytes_by_bucket_; }
  double bucket_s() const { return limits_.bucket_s; }
  // Words of the first failures that should not be, with the room's number.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  enum class Side : std::uint8_t { open, succeeded, failed, gone };
  struct Room {
    std::size_t prefill = 0;
    std::size_t decode = 0;
    double began_s = 0;
    Side prefill_side = Side::open;
    Side decode_side = Side::open;
    std::optional<std::size_t> fault{};     // that it may have failed of
    std::optional<double> half_failed_s{};  // one side has failed or is gone
    bool told = false;
    std::uint64_t wrong_items = 0;
    std::uint64_t bytes = 0;
    std::string error{};  // the first
  };
  struct Worker {
    std::size_t in_flight = 0;
    std::optional<std::size_t> fault{};  // the latest
    double calm_from_s = 0;              // infinite while it lasts
  };

  template <class Done>
  void erase_where(Done&& done) {
    for (auto at = rooms_.begin(); at != rooms_.end();) {
      at = done(at->first, at->second) ? rooms_.erase(at) : std::next(at);
    }
  }
  std::size_t worker_of(const Room& room, bool decode) const { return decode ? room.decode : room.prefill; }
  void end_side(Room& room, bool decode, Side side, double now_s);
  bool settle_if_over(std::uint64_t number, const Room& room, double now_s);
  void complain(std::uint64_t number, const Room& room, const char* what);
  void blame(std::size_t fault, Room& room);

  Limits limits_;
  std::size_t prefill_;
  std::unordered_map<std::uint64_t, Room> rooms_;
  std::vector<Worker> workers_;
  std::vector<FaultRecord> faults_;
  std::vector<std::uint64_t> bytes_by_bucket_;
  std::vector<std::string> complaints_;
  ChaosTotals totals_;
};

}  // namespace kvferry::tools
