// Makes a run that violates something small enough to be read.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/options.h"

namespace kvferry::sim {

struct Shrunk {
  SimOptions options;       // still violates, and leaves out whatever was not needed for it
  SimResult result;         // of these options, with its story
  std::uint64_t tried = 0;  // runs it took
};

// Leaves out requests and pieces of trouble, in halves and then one by one, as long as something is still violated; it
// need not be what was violated first. At most `tries_max` runs.
Shrunk shrink(const SimOptions& violating, std::uint64_t tries_max = 2000);

}  // namespace kvferry::sim
