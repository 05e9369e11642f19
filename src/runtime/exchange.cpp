#include "runtime/exchange.h"

#include <algorithm>
#include <utility>

namespace kvferry::runtime {

// Wakes the control thread once for everything that comes before it looks.
void Exchange::notify() {
  if (signalled_ || !wake_) return;
  signalled_ = true;
  wake_();  // with the lock held: close() and the loop's end cannot come between
}

void Exchange::post(core::SenderEvent event) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  incoming_.sender.push_back(std::move(event));
  notify();
}

void Exchange::post(core::ReceiverEvent event) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  incoming_.receiver.push_back(std::move(event));
  notify();
}

void Exchange::post(transport::MoverEvent event) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  incoming_.moved.push_back(std::move(event));
  notify();
}

void Exchange::forget(const RoomCell& cell) {
  std::unique_lock lock(mutex_);
  const auto entry = live_.find(cell.room.value);
  if (entry == live_.end() || entry->second.get() != &cell) return;
  if (!cell.released.load()) {
    std::erase_if(fenced_, [](const std::weak_ptr<RoomCell>& weak) {
      const auto fenced = weak.lock();
      return !fenced || fenced->released.load();
    });
    fenced_.push_back(entry->second);
  }
  if (cell.in_changed) {
    std::erase(changed_, entry->second);
    entry->second->in_changed = false;
  }
  live_.erase(entry);
}

std::vector<RoomChange> Exchange::take_changed() {
  std::vector<std::shared_ptr<RoomCell>> cells;
  {
    std::unique_lock lock(mutex_);
    changed_event_.clear();
    cells.swap(changed_);
    for (const auto& cell : cells) cell->in_changed = false;
  }
  std::vector<RoomChange> changes;
  changes.reserve(cells.size());
  for (const auto& cell : cells) {
    changes.push_back(RoomChange{cell->room.value, cell->state.load(std::memory_order_acquire), cell->released.load()});
  }
  return changes;
}

bool Exchange::wait(std::chrono::milliseconds timeout, const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  return published_.wait_for(lock, timeout, done);
}

void Exchange::set_wake(std::function<void()> wake) {
  std::unique_lock lock(mutex_);
  wake_ = std::move(wake);
  if (wake_ && !incoming_.empty()) notify();
}

void Exchange::take(Incoming& incoming) {
  std::unique_lock lock(mutex_);
  signalled_ = false;
  std::swap(incoming, incoming_);
}

void Exchange::publish(std::vector<std::shared_ptr<RoomCell>>& cells) {
  if (cells.empty()) return;
  std::unique_lock lock(mutex_);
  const bool was_empty = changed_.empty();
  for (auto& cell : cells) {
    if (cell->in_changed) continue;
    const auto live = live_.find(cell->room.value);
    if (live == live_.end() || live->second != cell) continue;  // cleared: the engine asked for no more news of it
    cell->in_changed = true;
    changed_.push_back(std::move(cell));
  }
  cells.clear();
  if (was_empty && !changed_.empty()) changed_event_.signal();
  published_.notify_all();
}

void Exchange::close(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  wake_ = nullptr;
  incoming_ = {};
  for (auto& [number, cell] : live_) {
    if (!cell->concluded()) {
      cell->error = error;
      cell->error.room = number;
      cell->state.store(Poll::failed, std::memory_order_release);
    }
    cell->released.store(true);
    if (!cell->in_changed) {
      cell->in_changed = true;
      changed_.push_back(cell);
    }
  }
  for (const auto& weak : fenced_) {
    if (const auto cell = weak.lock()) cell->released.store(true);
  }
  if (!changed_.empty()) changed_event_.signal();
  published_.notify_all();
}

}  // namespace kvferry::runtime
