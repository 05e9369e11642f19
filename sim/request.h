// One request of the workload: what both engines do with it, and what became of it.
#pragma once

#include <string>
#include <vector>

#include "base/time.h"
#include "core/events.h"
#include "sim/memory.h"

namespace kvferry::sim {

class Process;

// One engine's side.
struct Side {
  Process* process = nullptr;  // set once opened
  core::HandleId handle;
  bool skipped = false;  // never opened: the process was not there, or its engine never got to it
  bool init_before_waiting = false;
  bool inited = false;
  bool granted = false;  // sender
  Poll state = Poll::bootstrapping;
  std::string error;
  bool concluded = false;
  bool cleared = false;
  bool released = false;
  bool gone = false;                                         // with its process
  std::vector<std::vector<std::int32_t>> items;              // kv, aux, state; empty where there are none
  bool ended() const { return skipped || gone || cleared; }  // for its engine: the number is free here
  bool over() const { return skipped || gone || (cleared && released); }
};

struct Request {
  RequestId id = 0;
  RequestId contents = 0;  // whose bytes it must hold: its own but for a rival
  bool contested = false;  // two receivers were given its number
  RoomId room;
  std::size_t prefill = 0;  // slots
  std::size_t decode = 0;
  std::uint64_t pages = 0;
  std::uint64_t prefix = 0;
  bool with_aux = false;
  std::uint64_t state_count = 0;
  std::vector<std::uint64_t> chunks;  // pages each
  std::size_t chunks_sent = 0;
  Instant ready_at{};  // everything was granted and sent: from here on only the movers are waited for
  Side sender;
  Side receiver;
  // Why it may fail: a fault came near it, or an engine ended it or did not do its part. Otherwise it must succeed.
  std::string excuse;
  bool ended() const { return sender.ended() && receiver.ended(); }
  // A balancer may give the number out again. Where prefill ended without the grant, it may still be under way or wait
  // there, and decode could not take it back.
  bool number_free() const { return ended() && (receiver.skipped || sender.gone || sender.granted); }
  bool over() const { return sender.over() && receiver.over(); }
};

}  // namespace kvferry::sim
