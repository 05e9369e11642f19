// The library's log: one line an event that matters. An engine may take the sink over; by default warnings and worse go
// to stderr. Level from KVFERRY_LOG (trace, debug, info, warn, error, off).
#pragma once

#include <spdlog/spdlog.h>

namespace kvferry::os {
spdlog::logger& log();
}
