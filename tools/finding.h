// One thing that `kvferry doctor` looked at.
#pragma once

#include <string>
#include <vector>

namespace kvferry::tools {

struct Finding {
  enum class State { good, info, warning, problem };

  std::string area;  // "transport"
  std::string name;  // "process_vm_readv"
  State state = State::info;
  std::string found;   // what is there, in a few words
  std::string advice;  // what to do about it; empty where nothing is to be done
};
using Findings = std::vector<Finding>;

inline const char* state_name(Finding::State state) {
  switch (state) {
    case Finding::State::good:
      return "ok";
    case Finding::State::info:
      return "-";
    case Finding::State::warning:
      return "warning";
    case Finding::State::problem:
      return "problem";
  }
  return "";
}

}  // namespace kvferry::tools
