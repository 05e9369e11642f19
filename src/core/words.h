// Words that both cores say.
#pragma once

#include <string>

#include "base/ids.h"
#include "base/limits.h"
#include "kvferry/result.h"

namespace kvferry::core {

inline std::string seconds_text(Duration duration) {
  const auto ms = duration / std::chrono::milliseconds(1);
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

inline Error silent_peer(const Limits& limits) {
  return Error{Code::peer_lost, "answered none of " + std::to_string(limits.ping_misses_max) +
                                    " pings (ping interval " + seconds_text(limits.ping_interval) +
                                    "): hung, stopped or unreachable"};
}

// Why a room has failed, for a peer at `listener`: one that is told of another rank's death needs to know whose.
inline std::string reason_for(const Error& error, const std::string& listener) {
  return error.peer.empty() || error.peer == listener ? error.text : "peer " + error.peer + ": " + error.text;
}

// What a room is told whose session is lost.
inline Error lost_session_error(Error error, RoomId room) {
  if (error.code != Code::protocol) error.code = Code::peer_lost;
  error.room = room.value;
  return error;
}

}  // namespace kvferry::core
