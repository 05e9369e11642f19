#include "layout/ranks.h"

#include <string>

namespace kvferry::layout {
namespace {

std::string text_of(const Parallel& parallel) {
  return "tp " + std::to_string(parallel.tp) + " dp " + std::to_string(parallel.dp) + " pp " +
         std::to_string(parallel.pp);
}

}  // namespace

Result<Feeding> feeding_ranks(const Parallel& prefill, const Parallel& decode, const Place& decode_place,
                              std::uint32_t prefill_dp_rank) {
  if (prefill.tp == 0 || prefill.tp != decode.tp || prefill.pp != 1 || decode.pp != 1) {
    return Error{Code::mismatch, "prefill with " + text_of(prefill) + " cannot feed decode with " + text_of(decode) +
                                     "; this build maps equal tensor-parallel sizes and pp 1 only"};
  }
  if (decode_place.tp >= decode.tp || decode_place.pp != 0) {
    return Error{Code::invalid_argument, "a decode rank at tp " + std::to_string(decode_place.tp) + " pp " +
                                             std::to_string(decode_place.pp) + " is not in an instance with " +
                                             text_of(decode)};
  }
  if (prefill_dp_rank >= prefill.dp) {
    return Error{Code::out_of_range, "prefill dp rank " + std::to_string(prefill_dp_rank) +
                                         " is not in an instance with " + text_of(prefill)};
  }
  return Feeding{.sources = {{.dp = prefill_dp_rank, .tp = decode_place.tp, .pp = 0}}, .grants_awaited = 1};
}

Result<std::uint32_t> dp_group(std::uint64_t room, std::uint32_t dp_size, const std::uint32_t* chosen) {
  if (dp_size == 0) return Error{Code::out_of_range, "an instance with 0 dp groups has no group for a room"};
  if (chosen == nullptr) return static_cast<std::uint32_t>(room % dp_size);
  if (*chosen < dp_size) return *chosen;
  return Error{Code::out_of_range, "dp group " + std::to_string(*chosen) + " was chosen, the instance has " +
                                       std::to_string(dp_size) + " (0 to " + std::to_string(dp_size - 1) + ")"};
}

}  // namespace kvferry::layout
