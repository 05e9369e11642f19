// From what users set to what the protocol is bounded by.
#pragma once

#include "base/limits.h"
#include "kvferry/settings.h"

namespace kvferry {

// `settings` has passed its check. A grant for an unopened room waits as long as a room for its grant, and queued rooms
// are spoken of three times in a receiver's waiting timeout, where both sides have the same.
Limits limits_from(const Settings& settings);

}  // namespace kvferry
