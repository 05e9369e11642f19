// The monotonic clock, for everything that is not pure.
#pragma once

#include "base/time.h"

namespace kvferry::os {
Instant now();
}
