// The registered memory of a replay worker: KV regions of the model's shape, one aux table, and what must stand in
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/memory.h"
#include "kvferry/kvferry.h"
#include "tools/replay_blocks.h"
#include "tools/replay_content.h"
#include "tools/replay_messages.h"
#include "tools/replay_model.h"

namespace kvferry::tools {

inline constexpr std::size_t aux_item_bytes = 64;
inline constexpr std::size_t aux_slots = 4096;

// Where the page at position `page` of a request belongs.
struct RequestPage {
  std::uint64_t hash = 0;
  std::uint32_t page_in_block = 0;
};

class ReplayMemory {
 public:
  static Result<ReplayMemory> make(const ReplaySetup& setup);

  // A manager over this memory, which must outlive it.
  Result<KvManager> make_manager() const;

  std::uint32_t page_tokens() const { return setup_.page_tokens; }
  std::size_t pages_of(std::uint64_t tokens) const { return (tokens + page_tokens() - 1) / page_tokens(); }
  std::size_t slots() const { return setup_.pages; }
  std::size_t block_pages() const;
  RequestPage place(const Assignment& request, std::size_t page) const;
  std::uint64_t page_bytes() const { return model_.token_bytes() * page_tokens(); }

  // Writes page `page` of the request into slot `slot` of every region.
  void write_page(const Assignment& request, std::size_t page, std::int32_t slot);
  // Spoils the names of the slot's items, so that bytes that stand there already cannot pass for the room's.
  void spoil_page(std::int32_t slot);
  void check_page(ItemCheck& check, const Assignment& request, std::size_t page, std::int32_t slot) const;
  void write_aux(std::uint64_t room, std::int32_t slot);
  // Spoils the record, so that one of an earlier room cannot pass.
  void spoil_aux(std::int32_t slot);
  bool aux_is_right(std::uint64_t room, std::int32_t slot) const;

  const ItemContent& content() const { return content_; }
  std::optional<std::int32_t> take_aux();
  void release_aux(std::int32_t slot) { free_aux_.push_back(slot); }

 private:
  ReplayMemory(ReplaySetup setup, ModelShape model);
  std::byte* item(std::size_t region, std::int32_t slot) const;

  ReplaySetup setup_;
  ModelShape model_;
  ItemContent content_;
  ItemContent aux_content_;
  bench::Buffer private_;
  std::optional<SharedMemory> shared_;
  std::byte* base_ = nullptr;  // of one of the two
  std::vector<std::byte> aux_;
  PageList free_aux_;
};

}  // namespace kvferry::tools
