#include "layout/covered.h"

#include <algorithm>

#include "base/assert.h"

namespace kvferry::layout {
namespace {

bool meet(const Range& a, const Range& b) { return !intersection(a, b).empty(); }

// Makes `range` both of them where one begins where the other ends.
bool extend(Range& range, const Range& other) {
  if (range.end == other.begin) {
    range.end = other.end;
  } else if (other.end == range.begin) {
    range.begin = other.begin;
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool Covered::meets(const Range& positions, const Range& regions) const {
  if (positions.empty() || regions.empty()) return false;
  return std::ranges::any_of(
      parts_, [&](const Part& part) { return meet(part.positions, positions) && meet(part.regions, regions); });
}

void Covered::add(const Range& positions, const Range& regions) {
  if (positions.empty() || regions.empty()) return;
  KVF_ASSERT(!meets(positions, regions));
  area_ += positions.size() * regions.size();
  Part part{positions, regions};
  // Joined with its neighbours; one that has grown may have new ones.
  while (std::erase_if(parts_, [&part](const Part& other) { return join(part, other); }) > 0) {
  }
  parts_.push_back(part);
}

bool Covered::join(Part& part, const Part& other) {
  if (part.regions == other.regions) return extend(part.positions, other.positions);
  return part.positions == other.positions && extend(part.regions, other.regions);
}

std::uint64_t Covered::end_of(const Range& regions) const {
  std::uint64_t end = 0;
  for (const Part& part : parts_) {
    if (meet(part.regions, regions)) end = std::max(end, part.positions.end);
  }
  return end;
}

}  // namespace kvferry::layout
