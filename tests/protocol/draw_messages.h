// Any message of the control link, with any values that can be. To be called inside a RapidCheck property.
#pragma once

#include <cstddef>

#include "protocol/messages.h"

namespace kvferry::protocol {

// `kind` is the index of an alternative of Message.
Message any_message_of(std::size_t kind);
Message any_message();

}  // namespace kvferry::protocol
