#include "os/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>

namespace kvferry::os {

spdlog::logger& log() {
  // Never destroyed: threads of a manager that outlives main may still write.
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("kvferry", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    const char* level = std::getenv("KVFERRY_LOG");
    made->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::warn);
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l kvferry[%P] %v");
    return made;
  }();
  return *logger;
}

}  // namespace kvferry::os
