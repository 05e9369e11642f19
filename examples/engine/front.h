// The one process that an engine of several data-parallel groups shows to the outside.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace kvferry::engine {

// In front of several data-parallel groups: hands each request to the group of its room, as kvferry does by itself.
class Front {
 public:
  // Answers what a group's process shall exit with, in that process; nothing in the front's.
  std::optional<int> start(const EngineOptions& options, int (*run_group)(const EngineOptions&));
  int run();

 private:
  struct GroupProcess {
    int pid = -1;
    int orders = -1;
    int answers = -1;
    LineReader lines;
    bool ready = false;
  };
  bool hand_on(const std::string& line);
  bool take_answers(GroupProcess& group);
  int end(int status);

  std::vector<GroupProcess> groups_{};
  std::map<std::uint64_t, std::size_t> group_of_{};  // requests by id; goes with its answer
};

}  // namespace kvferry::engine
