// Rooms of one page in flight, for `bench handoff`: each page carries its room's number, so that a wrong one is seen.
#pragma once

#include <poll.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "base/try.h"
#include "kvferry/kvferry.h"
#include "tools/bench_pair.h"

namespace kvferry::tools {

inline constexpr std::size_t bench_page_bytes = 4096;

inline void write_room(std::byte* memory, std::int32_t page, std::uint64_t room) {
  std::memcpy(memory + static_cast<std::size_t>(page) * bench_page_bytes, &room, sizeof room);
}
inline std::uint64_t read_room(const std::byte* memory, std::int32_t page) {
  std::uint64_t room;
  std::memcpy(&room, memory + static_cast<std::size_t>(page) * bench_page_bytes, sizeof room);
  return room;
}

// The handles of rooms `first` ... `first + count - 1`, each with the page it holds. Handle: Sender or Receiver.
template <class Handle>
class Flight {
 public:
  Flight(std::uint64_t first, std::uint64_t count, std::uint64_t window) : first_(first), entries_(count) {
    for (std::uint64_t i = window; i > 0; --i) free_pages_.push_back(static_cast<std::int32_t>(i - 1));
  }

  bool done() const { return ended_ == entries_.size(); }
  bool can_open() const { return opened_ < entries_.size() && !free_pages_.empty(); }

  // Opens the next room with `open(room, page)`, which answers its handle.
  template <class Open>
  Result<void> open_next(Open open) {
    const std::int32_t page = free_pages_.back();
    KVF_TRY(handle, open(first_ + opened_, page));
    free_pages_.pop_back();
    entries_[opened_] = {std::move(handle), page};
    ++opened_;
    return {};
  }

  // Takes the changes of the manager; `ended(room, page)` is called once for each room that succeeded.
  template <class Ended>
  Result<void> take(const std::vector<RoomChange>& changes, Ended on_end) {
    for (const RoomChange& change : changes) {
      if (change.room < first_ || change.room - first_ >= entries_.size()) continue;
      Entry& entry = entries_[change.room - first_];
      if (!entry.handle) continue;
      if (change.state == Poll::failed) return entry.handle->error().value_or(Error{.text = "no reason given"});
      if (change.state != Poll::success || !change.pages_released) continue;
      KVF_CHECK(on_end(change.room, entry.page));
      entry.handle->clear();
      entry.handle.reset();
      free_pages_.push_back(entry.page);
      ++ended_;
    }
    return {};
  }

 private:
  struct Entry {
    std::optional<Handle> handle;
    std::int32_t page = 0;
  };
  std::uint64_t first_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> free_pages_;
  std::uint64_t opened_ = 0;
  std::uint64_t ended_ = 0;
};

// Keeps the flight full until all of its rooms have ended.
template <class Handle, class Open, class Ended>
Result<void> fly(KvManager& manager, Flight<Handle>& flight, Open open, Ended on_end) {
  while (!flight.done()) {
    while (flight.can_open()) KVF_CHECK(flight.open_next(open));
    KVF_CHECK(wait_for_change(manager));
    KVF_CHECK(flight.take(manager.changed(), on_end));
  }
  return {};
}

}  // namespace kvferry::tools
