// Deficit round robin: whoever has something to do gets a quantum of bytes a turn, and pays back what it took beyond
// it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace kvferry::transport {

inline constexpr std::int64_t quantum_bytes = 1 << 20;

// A value, bounded by the number of its keys: the owner adds a key only while it is not in the queue.
template <class Key>
class FairQueue {
 public:
  struct Turn {
    Key key;
    std::int64_t budget_bytes;  // positive
  };

  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }

  // At the tail. `left_bytes` is what its last turn left of the budget; negative where it took more.
  void add(Key key, std::int64_t left_bytes = 0) { waiting_.push_back({key, std::min(left_bytes, quantum_bytes)}); }

  // Whose turn it is. The key leaves the queue; add it again with what is left of the budget if it has more to do.
  std::optional<Turn> take() {
    while (!waiting_.empty()) {
      Turn turn = waiting_.front();
      waiting_.pop_front();
      turn.budget_bytes += quantum_bytes;
      if (turn.budget_bytes > 0) return turn;
      waiting_.push_back(turn);  // still in debt
    }
    return {};
  }

  void remove(Key key) {
    std::erase_if(waiting_, [&](const Turn& turn) { return turn.key == key; });
  }

 private:
  std::deque<Turn> waiting_;
};

}  // namespace kvferry::transport
