// Rooms that are given up at random moments and whose pages go at once to the next room, on either side of `bench
// races`. What happens to a room follows from its number and the seed, so that both sides know it alike.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "bench/child.h"
#include "kvferry/kvferry.h"

namespace kvferry::tools {

enum class RaceEnd : std::uint8_t { none, receiver_aborts, receiver_clears, sender_aborts, sender_clears };

struct RacePlan {
  RaceEnd end = RaceEnd::none;
  double after_s = 0;   // from the room's opening on the side that ends it
  double linger_s = 0;  // decode: how long the marks of a failed room's pages are watched; 0 hands them on at once
};
RacePlan race_plan(std::uint64_t room, std::uint64_t seed);

inline bool ends_here(RaceEnd end, Role role) {
  const bool receiver = end == RaceEnd::receiver_aborts || end == RaceEnd::receiver_clears;
  return end != RaceEnd::none && receiver == (role == Role::decode);
}

// Every word of a room's pages: of what prefill computed, or of a mark that decode leaves. No two are alike.
void write_words(std::byte* page, std::size_t bytes, std::uint64_t value, std::size_t page_number);
bool holds_words(const std::byte* page, std::size_t bytes, std::uint64_t value, std::size_t page_number);

// Pages of every slot: a few, or with `large` every eighth slot as many as make a copy that an abort hits halfway.
struct RaceSlots {
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t small_pages = 4;
  static constexpr std::size_t large_pages = 256;
  RaceSlots(std::size_t count, bool large);
  std::size_t count() const { return first_.size(); }
  std::size_t pages() const { return numbers_.size(); }
  std::span<const std::int32_t> of(std::size_t slot) const {
    return std::span(numbers_).subspan(first_[slot], sizes_[slot]);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::size_t> sizes_;
  std::vector<std::int32_t> numbers_;
};

struct RaceCounts {
  std::uint64_t rooms = 0;
  std::uint64_t races = 0;  // given up on this side while live
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t wrong = 0;
  std::uint64_t hung = 0;
};

// What a side does with its pages.
template <class Handle>
class RaceSide {
 public:
  virtual ~RaceSide() = default;
  virtual Result<Handle> open(std::uint64_t room, std::size_t slot) = 0;
  // The room is over and its pages are released. False where they do not hold what they must.
  virtual bool ended(std::uint64_t room, std::size_t slot, bool succeeded) = 0;
  // The time of the marks is over: false where one is gone.
  virtual bool lingered(std::uint64_t /*room*/, std::size_t /*slot*/) { return true; }
};

// Keeps a room in every slot until rooms first ... first + count - 1 are over.
template <class Handle>
class RaceLoop {
 public:
  static constexpr double orphan_s = 0.01;  // then a side that nobody told gives up, as a load balancer would tell it
  static constexpr double hang_s = 20;

  RaceLoop(KvManager& manager, RaceSide<Handle>& side, Role role, std::size_t slots, std::uint64_t seed)
      : manager_(manager), side_(side), role_(role), slots_(slots), seed_(seed) {}

  Result<RaceCounts> run(std::uint64_t first, std::uint64_t count) {
    next_ = first;
    end_ = first + count;
    for (;;) {
      const double now = bench::now_seconds();
      bool idle = true;
      double due = now + 0.01;
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        KVF_CHECK(turn(slots_[i], i, now));
        idle = idle && slots_[i].state == State::idle;
        due = std::min(due, slots_[i].due);
      }
      if (idle && next_ == end_) return counts_;
      wait(due - bench::now_seconds());
    }
  }

 private:
  enum class State : std::uint8_t { idle, live, ending, lingering };
  struct Slot {
    std::optional<Handle> handle;
    std::uint64_t room = 0;
    RacePlan plan;
    State state = State::idle;
    double opened = 0;
    double due = 0;  // when to look again, though nothing changed
  };

  Result<void> turn(Slot& slot, std::size_t number, double now) {
    if (slot.state == State::lingering && now >= slot.due) {
      if (!side_.lingered(slot.room, number)) ++counts_.wrong;
      slot.state = State::idle;
    }
    if (slot.state == State::idle) return next_ == end_ ? (slot.due = 1e300, Result<void>()) : begin(slot, number);
    if (slot.state == State::lingering) return {};
    const bool over = slot.handle->poll() == Poll::success || slot.handle->poll() == Poll::failed;
    if (over && slot.handle->pages_released()) return end(slot, number, now), Result<void>();
    if (slot.state == State::live && !over) give_up_if_due(slot, now);
    if (now - slot.opened > hang_s) {
      ++counts_.hung;
      slot.handle.reset();
      slot.state = State::idle;
    }
    return {};
  }

  Result<void> begin(Slot& slot, std::size_t number) {
    slot.room = next_++;
    slot.plan = race_plan(slot.room, seed_);
    KVF_TRY(handle, side_.open(slot.room, number));
    slot.handle.emplace(std::move(handle));
    slot.state = State::live;
    slot.opened = bench::now_seconds();
    slot.due = slot.plan.end == RaceEnd::none    ? slot.opened + 1
               : ends_here(slot.plan.end, role_) ? slot.opened + slot.plan.after_s
                                                 : slot.opened + orphan_s;
    return {};
  }

  void give_up_if_due(Slot& slot, double now) {
    if (slot.plan.end == RaceEnd::none || now < slot.due) return;
    slot.state = State::ending;
    slot.due = now + 0.001;
    const bool here = ends_here(slot.plan.end, role_);
    counts_.races += here ? 1 : 0;
    if (here && (slot.plan.end == RaceEnd::receiver_clears || slot.plan.end == RaceEnd::sender_clears)) {
      slot.handle->clear();
    } else {
      slot.handle->abort(here ? "a race" : "the other side had ended it before they met");
    }
  }

  void end(Slot& slot, std::size_t number, double now) {
    const bool succeeded = slot.handle->poll() == Poll::success;
    ++counts_.rooms;
    ++(succeeded ? counts_.succeeded : counts_.failed);
    if (!side_.ended(slot.room, number, succeeded)) ++counts_.wrong;
    slot.handle.reset();
    slot.state = succeeded || slot.plan.linger_s == 0 || role_ == Role::prefill ? State::idle : State::lingering;
    slot.due = slot.state == State::idle ? now : now + slot.plan.linger_s;
  }

  void wait(double seconds) {
    const timespec limit{.tv_sec = 0, .tv_nsec = static_cast<long>(std::clamp(seconds, 0.0, 0.01) * 1e9)};
    pollfd event{.fd = manager_.event_fd(), .events = POLLIN, .revents = 0};
    if (::ppoll(&event, 1, &limit, nullptr) > 0) (void)manager_.changed();
  }

  KvManager& manager_;
  RaceSide<Handle>& side_;
  Role role_;
  std::vector<Slot> slots_;
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;
  RaceCounts counts_;
};

}  // namespace kvferry::tools
