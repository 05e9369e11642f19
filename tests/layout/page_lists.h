// Page lists as engines have them: mostly runs, of any length, with breaks on either side.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace kvferry::layout {

struct PageLists {
  std::vector<std::int32_t> source;
  std::vector<std::int32_t> target;
};

// Up to `stretches` stretches; each goes on where the last one ended or begins anew, on each side by itself.
inline PageLists draw_lists(int stretches) {
  PageLists lists;
  std::uint32_t source = 0;
  std::uint32_t target = 0;
  const int count = *rc::gen::inRange(0, stretches + 1);
  for (int i = 0; i < count; ++i) {
    if (*rc::gen::arbitrary<bool>()) source = static_cast<std::uint32_t>(*rc::gen::inRange(0, 2'000'000'000));
    if (*rc::gen::arbitrary<bool>()) target = static_cast<std::uint32_t>(*rc::gen::inRange(0, 2'000'000'000));
    const int length = *rc::gen::oneOf(rc::gen::just(1), rc::gen::inRange(1, 5), rc::gen::inRange(50, 200));
    for (int k = 0; k < length; ++k) {
      lists.source.push_back(static_cast<std::int32_t>(source++));
      lists.target.push_back(static_cast<std::int32_t>(target++));
    }
  }
  return lists;
}

}  // namespace kvferry::layout
