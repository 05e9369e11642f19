// Every bound of the protocol: its default, its unit, why, and what happens there. One struct, handed down.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace kvferry {

struct Limits {
  // Deadlines; see Settings for the names that users know.
  Duration bootstrap_timeout = std::chrono::seconds(300);  // sender without its grants: room fails, `timeout`
  Duration send_timeout = std::chrono::seconds(600);       // sender granted, engine never sent: room fails, `timeout`
  Duration progress_timeout = std::chrono::seconds(300);   // either side, no byte while transferring: `timeout`
  Duration waiting_timeout = std::chrono::seconds(300);    // receiver without first byte or sign of life: `timeout`
  Duration early_grant_ttl = std::chrono::seconds(300);    // a grant for an unopened room: refused, `timeout`
  Duration outcome_ttl = std::chrono::seconds(60);         // how long the end of an ungranted room is remembered
  Duration ping_interval = std::chrono::seconds(1);
  std::uint32_t ping_misses_max = 3;                    // unanswered in a row: the session is lost
  Duration queued_interval = std::chrono::seconds(30);  // sender tells receivers that their rooms are queued
  Duration retry_min = std::chrono::milliseconds(20);   // first wait before a failed resolve or dial is tried again
  Duration retry_max = std::chrono::milliseconds(250);  // the wait doubles up to this

  // Tables.
  std::size_t rooms_max = 65'536;         // live rooms a manager; opening one more answers try_later
  std::size_t orphan_grants_max = 4'096;  // early grants a session; the oldest is refused, its receiver told
  std::size_t chunks_queued_max = 1'024;  // chunks of a room kept while it waits for grants; `send` answers try_later
  std::size_t outcomes_max = 16'384;      // ends of ungranted rooms remembered; the oldest is forgotten
  std::size_t chunks_max = 65'536;        // chunks of one transfer; one more fails the room
  std::uint64_t pages_max = 1u << 26;     // pages of one grant; more is refused before anything is allocated

  std::uint64_t inline_bytes_max = 65'536;  // rooms up to this size travel on the control link
  bool verify = false;                      // receivers compare checksums before `success`
};

}  // namespace kvferry
