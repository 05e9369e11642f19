// Which data-parallel group has which room, where prefill's load balancer chooses and decode must ask: SGLang's
// /register_dp_rank and /query_dp_ranks. A value without clock or I/O. Entries live two minutes, as SGLang's do.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/time.h"

namespace kvferry::net {

class DpRanks {
 public:
  static constexpr Duration kept = std::chrono::minutes(2);

  // At `rooms_max` the oldest entry goes: its decode side has asked long ago, or asks in vain and retries elsewhere.
  explicit DpRanks(std::size_t rooms_max = 262'144) : rooms_max_(rooms_max) {}

  void put(std::uint64_t room, std::uint32_t dp, Instant now) {
    expire(now);
    if (order_.size() == rooms_max_) drop_oldest();
    order_.push_back({now + kept, room});
    ranks_.insert_or_assign(room, Entry{dp, now + kept});
  }
  std::optional<std::uint32_t> find(std::uint64_t room, Instant now) {
    expire(now);
    const auto entry = ranks_.find(room);
    if (entry == ranks_.end()) return std::nullopt;
    return entry->second.dp;
  }
  std::size_t rooms() const { return ranks_.size(); }

 private:
  struct Entry {
    std::uint32_t dp = 0;
    Instant expires{};
  };
  struct Put {
    Instant expires{};
    std::uint64_t room = 0;
  };

  void expire(Instant now) {
    while (!order_.empty() && order_.front().expires <= now) drop_oldest();
  }
  // A room that was put again has a later entry in `order_`, which is the one that ends it.
  void drop_oldest() {
    const auto entry = ranks_.find(order_.front().room);
    if (entry != ranks_.end() && entry->second.expires == order_.front().expires) ranks_.erase(entry);
    order_.pop_front();
  }

  std::size_t rooms_max_;
  std::unordered_map<std::uint64_t, Entry> ranks_;
  std::deque<Put> order_;  // by time
};

}  // namespace kvferry::net
