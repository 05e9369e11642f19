#include "layout/ranks.h"

#include <algorithm>
#include <string>

#include "base/try.h"

namespace kvferry::layout {

std::string text_of(const Parallel& parallel) {
  return "tp " + std::to_string(parallel.tp) + " dp " + std::to_string(parallel.dp) + " pp " +
         std::to_string(parallel.pp) + " cp " + std::to_string(parallel.cp);
}

Result<Feeding> feeding_ranks(const Parallel& prefill, const Parallel& decode, const Place& decode_place,
                              std::uint32_t prefill_dp_rank) {
  const auto cannot = [&](const char* why) {
    return Error{Code::mismatch,
                 "prefill with " + text_of(prefill) + " cannot feed decode with " + text_of(decode) + ": " + why};
  };
  if (std::min({prefill.tp, prefill.dp, prefill.pp, prefill.cp, decode.tp, decode.dp, decode.pp}) == 0) {
    return cannot("sizes are at least 1");
  }
  if (std::max(prefill.tp, decode.tp) % std::min(prefill.tp, decode.tp) != 0) {
    return cannot("one tensor-parallel size must be a multiple of the other");
  }
  if (decode.pp != 1 && decode.pp != prefill.pp) return cannot("decode has 1 pipeline stage or as many as prefill");
  if (decode.cp != 1) return cannot("decode ranks hold whole requests");
  if (decode_place.tp >= decode.tp || decode_place.pp >= decode.pp) {
    return Error{Code::invalid_argument, "a decode rank at tp " + std::to_string(decode_place.tp) + " pp " +
                                             std::to_string(decode_place.pp) + " is not in an instance with " +
                                             text_of(decode)};
  }
  if (prefill_dp_rank >= prefill.dp) {
    return Error{Code::out_of_range, "prefill dp rank " + std::to_string(prefill_dp_rank) +
                                         " is not in an instance with " + text_of(prefill)};
  }
  const std::uint32_t wider = std::max<std::uint32_t>(decode.tp / prefill.tp, 1);  // decode ranks of one prefill rank
  const std::uint32_t narrower = std::max<std::uint32_t>(prefill.tp / decode.tp, 1);
  const std::uint32_t first_tp = decode_place.tp / wider * narrower;
  const bool own_stage = decode.pp == prefill.pp;
  Feeding feeding{.sources = {}, .grants_awaited = wider};
  for (std::uint32_t pp = own_stage ? decode_place.pp : 0; pp < (own_stage ? decode_place.pp + 1 : prefill.pp); ++pp) {
    for (std::uint32_t cp = 0; cp < prefill.cp; ++cp) {
      for (std::uint32_t tp = first_tp; tp < first_tp + narrower; ++tp) {
        feeding.sources.push_back({.dp = prefill_dp_rank, .tp = tp, .pp = pp, .cp = cp});
      }
    }
  }
  return feeding;
}

Result<Range> heads_of(std::uint32_t kv_heads, bool mla, std::uint32_t tp, std::uint32_t tp_rank) {
  const std::uint32_t heads = mla ? 1 : kv_heads;
  if (heads == 0 || tp == 0 || std::max(heads, tp) % std::min(heads, tp) != 0) {
    return Error{Code::mismatch, std::to_string(heads) + " KV heads cannot be split over " + std::to_string(tp) +
                                     " ranks: one number must be a multiple of the other"};
  }
  if (tp > heads) {
    const std::uint64_t head = tp_rank / (tp / heads);
    return Range{head, head + 1};
  }
  const std::uint64_t each = heads / tp;
  return Range{tp_rank * each, (tp_rank + 1) * each};
}

Result<Range> heads_between(const KvFormat& format, const Parallel& prefill, std::uint32_t prefill_tp_rank,
                            const Parallel& decode, std::uint32_t decode_tp_rank) {
  KVF_TRY(there, heads_of(format.kv_heads, format.mla, prefill.tp, prefill_tp_rank));
  KVF_TRY(here, heads_of(format.kv_heads, format.mla, decode.tp, decode_tp_rank));
  Range both = intersection(there, here);
  const std::uint32_t narrower = std::max<std::uint32_t>(prefill.tp / decode.tp, 1);
  if (prefill_tp_rank % narrower == 0) return both;
  // Ranks hold ascending heads, so only the neighbour below can hold one of ours.
  KVF_TRY(below, heads_of(format.kv_heads, format.mla, prefill.tp, prefill_tp_rank - 1));
  both.begin = std::min(both.end, std::max(both.begin, below.end));
  return both;
}

Range share_of(std::uint64_t count, std::uint32_t rank, std::uint32_t size) {
  const std::uint64_t each = count / size;
  const std::uint64_t extra = count % size;
  const std::uint64_t begin = rank * each + std::min<std::uint64_t>(rank, extra);
  return {begin, begin + each + (rank < extra ? 1 : 0)};
}

Result<std::uint32_t> dp_group(std::uint64_t room, std::uint32_t dp_size, const std::uint32_t* chosen) {
  if (dp_size == 0) return Error{Code::out_of_range, "an instance with 0 dp groups has no group for a room"};
  if (chosen == nullptr) return static_cast<std::uint32_t>(room % dp_size);
  if (*chosen < dp_size) return *chosen;
  return Error{Code::out_of_range, "dp group " + std::to_string(*chosen) + " was chosen, the instance has " +
                                       std::to_string(dp_size) + " (0 to " + std::to_string(dp_size - 1) + ")"};
}

}  // namespace kvferry::layout
