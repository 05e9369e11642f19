// Deadlines by key, the earliest first. A key has at most one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/time.h"

namespace kvferry::core {

template <class Key>
class Timers {
 public:
  void set(const Key& key, Instant at) {
    const auto [entry, fresh] = at_.try_emplace(key, at);
    if (!fresh) {
      if (entry->second == at) return;
      order_.erase({entry->second, key});
      entry->second = at;
    }
    order_.insert({at, key});
  }
  void erase(const Key& key) {
    const auto entry = at_.find(key);
    if (entry == at_.end()) return;
    order_.erase({entry->second, key});
    at_.erase(entry);
  }
  Instant next() const { return order_.empty() ? Instant::max() : order_.begin()->first; }
  // Takes the earliest key that is due.
  std::optional<Key> pop_due(Instant now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    const Key key = order_.begin()->second;
    order_.erase(order_.begin());
    at_.erase(key);
    return key;
  }
  bool empty() const { return order_.empty(); }

 private:
  std::map<Key, Instant> at_;
  std::set<std::pair<Instant, Key>> order_;
};

}  // namespace kvferry::core
