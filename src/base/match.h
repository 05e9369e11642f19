// Overload set of lambdas for std::visit; exhaustive by leaving out the generic case.
#pragma once

namespace kvferry {
template <class... Functions>
struct match : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
match(Functions...) -> match<Functions...>;  // clang 14 does not deduce aggregates by itself
}  // namespace kvferry
