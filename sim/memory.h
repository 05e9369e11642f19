// The pages of one simulated process: real bytes behind real regions, and who owns each page.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/pages.h"
#include "sim/prng.h"

namespace kvferry::sim {

using RequestId = std::uint64_t;  // 0: nobody

inline constexpr std::size_t kv_pages = 96;
inline constexpr std::size_t kv_regions = 2;
inline constexpr std::size_t aux_items = 32;
inline constexpr std::size_t state_items = 48;

// What stands in one item of one region: whose it is and where it belongs. One word is one item.
std::uint64_t content(RequestId request, std::uint32_t component, std::uint64_t position, std::size_t region);

class PageMemory {
 public:
  PageMemory();
  PageMemory(const PageMemory&) = delete;

  const kvferry::Memory& regions() const { return memory_; }
  // Takes free items at random; nothing where there are not enough.
  std::optional<std::vector<std::int32_t>> take(std::uint32_t component, std::size_t count, RequestId owner,
                                                Prng& prng);
  // Gives them back; what stood there is overwritten, as the next user would.
  void give_back(std::uint32_t component, const std::vector<std::int32_t>& items, Prng& prng);
  RequestId owner(std::uint32_t component, std::int32_t item) const;

  // Bytes of the items, region after region, through the pieces that movers use.
  std::vector<std::uint64_t> read(std::uint32_t component, const std::vector<std::int32_t>& items) const;
  void write(std::uint32_t component, const std::vector<std::int32_t>& items, const std::vector<std::uint64_t>& values);
  // Copies runs of items out of another process's memory.
  void copy(std::uint32_t component, const PageMemory& from, const std::vector<layout::Run>& runs);
  // Items hold positions from `first` on of `request`. The sender's engine computes; the receiver's checks.
  void fill(std::uint32_t component, const std::vector<std::int32_t>& items, RequestId request, std::uint64_t first);
  // The first position that does not hold what it should.
  std::optional<std::uint64_t> first_wrong(std::uint32_t component, const std::vector<std::int32_t>& items,
                                           RequestId request, std::uint64_t first) const;

 private:
  std::vector<std::vector<std::uint64_t>> words_;  // a region each: kv, kv, aux, state
  std::vector<std::vector<RequestId>> owners_;     // a component each
  kvferry::Memory memory_;
};

}  // namespace kvferry::sim
