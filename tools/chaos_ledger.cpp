#include "tools/chaos_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace kvferry::tools {

namespace {
constexpr std::size_t complaints_max = 10;
constexpr double never = std::numeric_limits<double>::infinity();
}  // namespace

ChaosLedger::ChaosLedger(std::size_t prefill, std::size_t decode, Limits limits)
    : limits_(limits), prefill_(prefill), workers_(prefill + decode) {}

void ChaosLedger::begin(std::uint64_t number, std::size_t prefill, std::size_t decode, double now_s) {
  Room room{.prefill = prefill, .decode = decode, .began_s = now_s};
  for (const std::size_t worker : {prefill, decode}) {
    ++workers_[worker].in_flight;
    const auto fault = workers_[worker].fault;
    if (fault && may_fail_rooms(faults_[*fault].fault.kind) && now_s < workers_[worker].calm_from_s + limits_.grace_s) {
      blame(*fault, room);
    }
  }
  rooms_.emplace(number, std::move(room));
}

void ChaosLedger::blame(std::size_t fault, Room& room) {
  if (!room.fault) ++faults_[fault].rooms_with_it;
  room.fault = room.fault.value_or(fault);
}

void ChaosLedger::hear(std::size_t worker, const RoomOutcome& outcome, double now_s) {
  const auto at = rooms_.find(outcome.room);
  if (at == rooms_.end()) return;
  Room& room = at->second;
  const bool decode = worker >= prefill_;
  if (worker_of(room, decode) != worker) return;
  if (room.error.empty()) room.error = outcome.error;
  if (decode) {
    room.wrong_items = outcome.wrong_items;
    room.bytes = outcome.bytes;
  }
  end_side(room, decode, outcome.error.empty() ? Side::succeeded : Side::failed, now_s);
  if (settle_if_over(outcome.room, room, now_s)) rooms_.erase(at);
}

void ChaosLedger::lose(std::size_t worker, double now_s) {
  const bool decode = worker >= prefill_;
  erase_where([&](std::uint64_t number, Room& room) {
    if (worker_of(room, decode) != worker) return false;
    end_side(room, decode, Side::gone, now_s);
    return settle_if_over(number, room, now_s);
  });
}

void ChaosLedger::end_side(Room& room, bool decode, Side side, double now_s) {
  Side& now = decode ? room.decode_side : room.prefill_side;
  if (now != Side::open) return;
  now = side;
  --workers_[worker_of(room, decode)].in_flight;
  if (side != Side::succeeded && !room.half_failed_s) room.half_failed_s = now_s;
  if (side == Side::failed && room.fault) {
    FaultRecord& record = faults_[*room.fault];
    record.noticed_s = record.noticed_s.value_or(now_s);
    record.all_failed_s = now_s;
  }
}

bool ChaosLedger::settle_if_over(std::uint64_t number, const Room& room, double now_s) {
  if (room.prefill_side == Side::open || room.decode_side == Side::open) return false;
  ++totals_.rooms;
  const bool failed = room.decode_side != Side::succeeded;
  // A sender that says failed of a room whose bytes arrived has lost its peer before it was told.
  if ((failed || room.prefill_side == Side::failed) && !room.fault) {
    ++totals_.healthy_failures;
    complain(number, room, room.error.c_str());
  } else if (failed) {
    ++totals_.failed;
    ++faults_[*room.fault].rooms_failed;
  } else if (room.wrong_items == 0) {
    ++totals_.succeeded;
  }
  if (failed) return true;
  if (room.wrong_items != 0) {
    ++totals_.wrong;
    complain(number, room, fmt::format("{} items came wrong", room.wrong_items).c_str());
    return true;
  }
  totals_.bytes += room.bytes;
  const auto bucket = static_cast<std::size_t>(now_s / limits_.bucket_s);
  if (bucket >= bytes_by_bucket_.size()) bytes_by_bucket_.resize(bucket + 1);
  bytes_by_bucket_[bucket] += room.bytes;
  for (const std::size_t worker : {room.prefill, room.decode}) {
    if (!workers_[worker].fault) continue;
    FaultRecord& record = faults_[*workers_[worker].fault];
    if (record.ended_s && !record.recovered_s && room.began_s >= *record.ended_s) record.recovered_s = now_s;
  }
  return true;
}

void ChaosLedger::complain(std::uint64_t number, const Room& room, const char* what) {
  if (complaints_.size() == complaints_max) return;
  complaints_.push_back(fmt::format("room {} of prefill {} and decode {}, handed out at {:.3f} s: {}", number,
                                    room.prefill, room.decode - prefill_, room.began_s, what));
}

std::size_t ChaosLedger::fault_began(const Fault& fault, double now_s) {
  faults_.push_back({.fault = fault, .began_s = now_s});
  Worker& worker = workers_[fault.worker];
  worker.fault = faults_.size() - 1;
  worker.calm_from_s = never;
  if (may_fail_rooms(fault.kind)) {
    for (auto& [number, room] : rooms_) {
      if (room.prefill == fault.worker || room.decode == fault.worker) blame(*worker.fault, room);
    }
  }
  return *worker.fault;
}

void ChaosLedger::fault_ended(std::size_t number, double now_s) {
  faults_[number].ended_s = now_s;
  workers_[faults_[number].fault.worker].calm_from_s = now_s;
}

std::vector<ChaosLedger::Order> ChaosLedger::due(double now_s) {
  std::vector<Order> orders;
  erase_where([&](std::uint64_t number, Room& room) {
    if (room.half_failed_s && !room.told && now_s - *room.half_failed_s > limits_.orphan_s) {
      room.told = true;
      ++totals_.given_up;
      orders.push_back({room.prefill_side == Side::open ? room.prefill : room.decode, number});
    }
    const double calm_from_s =
        std::max({room.began_s, workers_[room.prefill].calm_from_s, workers_[room.decode].calm_from_s});
    if (now_s - calm_from_s <= limits_.hang_s) return false;
    ++totals_.hung;
    complain(number, room, "has no end");
    if (room.prefill_side == Side::open) --workers_[room.prefill].in_flight;
    if (room.decode_side == Side::open) --workers_[room.decode].in_flight;
    return true;
  });
  return orders;
}

void ChaosLedger::close() {
  for (const auto& [number, room] : rooms_) {
    ++totals_.hung;
    complain(number, room, "has no end");
  }
  rooms_.clear();
}

}  // namespace kvferry::tools
