// One use of a room as the engine's threads read it.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/events.h"
#include "kvferry/kvferry.h"
#include "layout/covered.h"

namespace kvferry::runtime {

struct RoomCell {
  RoomCell(core::HandleId the_handle, RoomId the_room) : handle(the_handle), room(the_room) {}

  const core::HandleId handle;
  const RoomId room;

  // Written by the control thread, read by any.
  std::atomic<Poll> state{Poll::bootstrapping};  // stored last: what stands below is valid once it is seen
  std::atomic<bool> released{false};
  std::atomic<std::uint64_t> prefix_pages{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint32_t> layers{0};          // what they hold is valid once it is seen
  std::atomic<std::uint32_t> chunks_waiting{0};  // raised by `send`, lowered by the control thread
  Error error;                                   // valid once `state` is failed

  // Guarded by the exchange.
  bool in_changed = false;

  // Of the handle's own thread.
  bool cleared = false;
  bool init = false;
  bool last_sent = false;
  std::uint64_t num_pages = 0;
  layout::Covered sent;  // of the announced pages in the layers of the model

  bool concluded() const {
    const Poll now = state.load(std::memory_order_acquire);
    return now == Poll::failed || now == Poll::success;
  }
};

}  // namespace kvferry::runtime
