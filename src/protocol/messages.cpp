#include "protocol/messages.h"

#include <array>

namespace kvferry::protocol {

const char* message_name(const Message& message) {
  static constexpr std::array names{"Hello",   "Challenge",     "Proof",     "Welcome", "Ready",  "Linked", "Refuse",
                                    "Join",    "JoinChallenge", "JoinProof", "Grant",   "Inline", "Offer",  "Landed",
                                    "Confirm", "Abort",         "Closed",    "Queued",  "Ping",   "Pong",   "Sum"};
  static_assert(names.size() == std::variant_size_v<Message>, "every alternative has its name, in their order");
  return message.valueless_by_exception() ? "none" : names[message.index()];
}

}  // namespace kvferry::protocol
