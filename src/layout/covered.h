// Which (position, region) pairs of a grid have been sent or have come: rectangles, none of which meet.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/range.h"

namespace kvferry::layout {

class Covered {
 public:
  // Whether any of it is there already.
  bool meets(const Range& positions, const Range& regions) const;
  // Adds a rectangle of which nothing is there yet; an empty one adds nothing.
  void add(const Range& positions, const Range& regions);
  // Pairs that are there.
  std::uint64_t area() const { return area_; }
  // Where the furthest position ends that is there in any of these regions; 0 where none is.
  std::uint64_t end_of(const Range& regions) const;

 private:
  struct Part {
    Range positions;
    Range regions;
  };
  static bool join(Part& part, const Part& other);
  std::vector<Part> parts_;  // few: what comes in order, by pages or by layers, becomes one
  std::uint64_t area_ = 0;
};

}  // namespace kvferry::layout
