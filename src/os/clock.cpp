#include "os/clock.h"

namespace kvferry::os {
Instant now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }
}  // namespace kvferry::os
