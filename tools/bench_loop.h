// Rooms of several pages for the benches whose processes come and go: where their pages are, and a closed loop of them.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/try.h"
#include "bench/memory.h"
#include "kvferry/kvferry.h"

namespace kvferry::tools {

// Memory cut into places, each with the pages of one room. A resource: owns the memory, so it outlives the manager.
class Places {
 public:
  static Result<Places> make(std::size_t count, std::size_t room_pages, std::size_t page_bytes) {
    Places made;
    KVF_TRY(memory, bench::Buffer::allocate(count * room_pages * page_bytes));
    made.memory_ = std::move(memory);
    made.room_pages_ = room_pages;
    made.page_bytes_ = page_bytes;
    made.numbers_.resize(count * room_pages);
    std::iota(made.numbers_.begin(), made.numbers_.end(), 0);
    return made;
  }

  std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }
  std::size_t room_pages() const { return room_pages_; }
  std::size_t count() const { return numbers_.size() / room_pages_; }
  // Page indices of a place; `place` wraps round.
  std::span<const std::int32_t> pages(std::uint64_t place) const {
    return std::span(numbers_).subspan(place % count() * room_pages_, room_pages_);
  }
  // Writes the first and the last word of every page, so that pages of another room or out of order are seen.
  void stamp(std::uint64_t place, std::uint64_t value) {
    for (std::size_t i = 0; i < room_pages_; ++i) {
      const std::uint64_t word = word_of(value, i);
      for (std::byte* at : words(place, i)) std::memcpy(at, &word, sizeof word);
    }
  }
  bool holds(std::uint64_t place, std::uint64_t value) const {
    for (std::size_t i = 0; i < room_pages_; ++i) {
      const std::uint64_t word = word_of(value, i);
      for (const std::byte* at : words(place, i)) {
        if (std::memcmp(at, &word, sizeof word) != 0) return false;
      }
    }
    return true;
  }

 private:
  static std::uint64_t word_of(std::uint64_t value, std::size_t page) { return value ^ (std::uint64_t{page} << 56); }
  std::array<std::byte*, 2> words(std::uint64_t place, std::size_t page) const {
    const auto number = static_cast<std::size_t>(pages(place)[page]);
    std::byte* start = memory_.data() + number * page_bytes_;
    return {start, start + page_bytes_ - sizeof(std::uint64_t)};
  }

  bench::Buffer memory_;
  std::size_t room_pages_ = 0;
  std::size_t page_bytes_ = 0;
  std::vector<std::int32_t> numbers_;
};

// A closed loop: slot s holds the rooms first + s, first + s + slots and so on, one after the other. Both sides count
// alike, so neither has to tell the other which room is next. Handle: Sender or Receiver.
template <class Handle>
class RoomLoop {
 public:
  // More rooms than any loop gets through; loops of one manager start that far apart.
  static constexpr std::uint64_t endless = std::uint64_t{1} << 40;

  RoomLoop(std::uint64_t first, std::size_t slots, std::uint64_t rooms = endless)
      : first_(first), rooms_(rooms), slots_(slots) {
    for (std::size_t slot = slots; slot > 0; --slot) idle_.push_back(slot - 1);
  }

  std::uint64_t succeeded() const { return succeeded_; }
  std::uint64_t failed() const { return failed_; }
  bool done() const { return succeeded_ + failed_ == rooms_; }
  bool owns(std::uint64_t room) const { return room >= first_ && room - first_ < rooms_; }

  // Opens a room in every slot that is free; `open(room, slot)` answers its handle.
  template <class Open>
  Result<void> fill(Open open) {
    while (!idle_.empty()) {
      const std::size_t slot = idle_.back();
      const std::uint64_t number = slots_[slot].round * slots_.size() + slot;
      idle_.pop_back();
      if (number >= rooms_) continue;  // the slot has had its last room
      KVF_TRY(handle, open(first_ + number, slot));
      slots_[slot].handle.emplace(std::move(handle));
      ++slots_[slot].round;
    }
    return {};
  }

  // `on_change(handle, change, slot)` sees every change of a live room; one that is over and released makes way for the
  // slot's next.
  template <class OnChange>
  void take(const RoomChange& change, OnChange on_change) {
    if (!owns(change.room)) return;
    const std::size_t slot = (change.room - first_) % slots_.size();
    std::optional<Handle>& handle = slots_[slot].handle;
    if (!handle || handle->room() != change.room) return;
    on_change(*handle, change, slot);
    const bool over = change.state == Poll::success || change.state == Poll::failed;
    if (!over || !change.pages_released) return;
    ++(change.state == Poll::success ? succeeded_ : failed_);
    handle->clear();
    handle.reset();
    idle_.push_back(slot);
  }

 private:
  struct Slot {
    std::optional<Handle> handle;
    std::uint64_t round = 0;
  };
  std::uint64_t first_;
  std::uint64_t rooms_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> idle_;
  std::uint64_t succeeded_ = 0;
  std::uint64_t failed_ = 0;
};

}  // namespace kvferry::tools
