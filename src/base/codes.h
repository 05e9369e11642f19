// Each error code once: its name, who reacts how, and its meaning; docs/reference/errors.md is printed from here.
#pragma once

#include <array>
#include <cstdint>

#include "kvferry/result.h"

namespace kvferry {

enum class Reaction : std::uint8_t { fix_the_call, try_later, reconnect, room_is_lost };

struct CodeRow {
  Code code;
  const char* name;
  Reaction reaction;
  const char* meaning;
};

inline constexpr std::array codes{
    CodeRow{Code::invalid_argument, "invalid_argument", Reaction::fix_the_call, "The call or setting cannot be right."},
    CodeRow{Code::out_of_range, "out_of_range", Reaction::fix_the_call,
            "A page, slot or count lies outside of what was registered or granted."},
    CodeRow{Code::already_exists, "already_exists", Reaction::fix_the_call,
            "The room number is live on this side, or another decode instance owns it."},
    CodeRow{Code::mismatch, "mismatch", Reaction::fix_the_call,
            "The two sides disagree on layout, sizes, prefix or page count; the text has both values."},
    CodeRow{Code::try_later, "try_later", Reaction::try_later, "A bound is reached; nothing was taken."},
    CodeRow{Code::unreachable, "unreachable", Reaction::reconnect, "No address, no route, or nobody answers there."},
    CodeRow{Code::timeout, "timeout", Reaction::room_is_lost, "A limit passed; the text names the setting."},
    CodeRow{Code::peer_lost, "peer_lost", Reaction::reconnect, "The peer's link, process or data stream is gone."},
    CodeRow{Code::aborted, "aborted", Reaction::room_is_lost, "This side's engine aborted the room."},
    CodeRow{Code::peer_aborted, "peer_aborted", Reaction::room_is_lost, "The other side aborted or failed the room."},
    CodeRow{Code::protocol, "protocol", Reaction::reconnect, "A message or frame that cannot be."},
    CodeRow{Code::unauthorized, "unauthorized", Reaction::fix_the_call, "The shared token is missing or wrong."},
    CodeRow{Code::unsupported, "unsupported", Reaction::fix_the_call, "The machine or the peer cannot do it."},
    CodeRow{Code::closed, "closed", Reaction::fix_the_call, "The manager is shut down, or used in a forked child."},
    CodeRow{Code::internal, "internal", Reaction::room_is_lost, "A fault of kvferry; please report it with the log."},
    CodeRow{Code::corrupt, "corrupt", Reaction::room_is_lost,
            "The end-to-end check found other bytes than prefill sent; suspect memory, a driver or a card."},
};

constexpr bool codes_are_in_order() {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (static_cast<std::size_t>(codes[i].code) != i) return false;
  }
  return true;
}
static_assert(codes_are_in_order(), "every code stands once, in the order of the enum");

}  // namespace kvferry
