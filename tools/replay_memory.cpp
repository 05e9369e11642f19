#include "tools/replay_memory.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/try.h"
#include "tools/replay_trace.h"

namespace kvferry::tools {

ReplayMemory::ReplayMemory(ReplaySetup setup, ModelShape model)
    : setup_(std::move(setup)),
      model_(std::move(model)),
      content_(model_.region_token_bytes() * setup_.page_tokens),
      aux_content_(aux_item_bytes),
      aux_(aux_slots * aux_item_bytes) {
  for (std::size_t slot = aux_slots; slot > 0; --slot) free_aux_.push_back(static_cast<std::int32_t>(slot - 1));
}

Result<ReplayMemory> ReplayMemory::make(const ReplaySetup& setup) {
  KVF_TRY(model, model_shape(setup.model, setup.layers));
  ReplayMemory made(setup, model);
  const std::size_t bytes = setup.pages * made.page_bytes();
  if (setup.transport == "shared" && setup.role == Role::prefill) {
    KVF_TRY(memory, SharedMemory::allocate(bytes));
    made.shared_.emplace(std::move(memory));
    made.base_ = made.shared_->data();
  } else {
    KVF_TRY(memory, bench::Buffer::allocate(bytes));
    made.private_ = std::move(memory);
    made.base_ = made.private_.data();
  }
  return made;
}

Result<KvManager> ReplayMemory::make_manager() const {
  KVF_TRY(settings, Settings::from_environment());
  settings.host = setup_.host;
  if (setup_.transport == "tcp") settings.transport = Transport::tcp;
  if (setup_.transport == "samehost" || setup_.transport == "shared") settings.transport = Transport::samehost;
  ManagerOptions options;
  options.role = setup_.role;
  const std::size_t item_bytes = content_.item_bytes();
  for (std::size_t region = 0; region < model_.regions(); ++region) {
    options.memory.kv.push_back(
        {.base = item(region, 0), .length = setup_.pages * item_bytes, .item_bytes = item_bytes});
  }
  auto* aux = const_cast<std::byte*>(aux_.data());
  options.memory.aux.push_back({.base = aux, .length = aux_.size(), .item_bytes = aux_item_bytes});
  options.format = model_.format(setup_.page_tokens);
  options.instance = setup_.instance;
  options.bootstrap = setup_.bootstrap;
  options.settings = settings;
  return KvManager::create(std::move(options));
}

std::size_t ReplayMemory::block_pages() const { return trace_block_tokens / page_tokens(); }

RequestPage ReplayMemory::place(const Assignment& request, std::size_t page) const {
  return {.hash = request.hashes[page / block_pages()],
          .page_in_block = static_cast<std::uint32_t>(page % block_pages())};
}

std::byte* ReplayMemory::item(std::size_t region, std::int32_t slot) const {
  return base_ + (region * setup_.pages + static_cast<std::size_t>(slot)) * content_.item_bytes();
}

void ReplayMemory::write_page(const Assignment& request, std::size_t page, std::int32_t slot) {
  const RequestPage at = place(request, page);
  for (std::uint32_t region = 0; region < model_.regions(); ++region) {
    content_.write(item(region, slot), {.hash = at.hash, .page = at.page_in_block, .region = region});
  }
}

void ReplayMemory::spoil_page(std::int32_t slot) {
  for (std::size_t region = 0; region < model_.regions(); ++region) {
    std::memset(item(region, slot) + content_.item_bytes() - ItemContent::tail_bytes, 0xee, ItemContent::tail_bytes);
  }
}

void ReplayMemory::check_page(ItemCheck& check, const Assignment& request, std::size_t page, std::int32_t slot) const {
  const RequestPage at = place(request, page);
  for (std::uint32_t region = 0; region < model_.regions(); ++region) {
    check.add(item(region, slot), {.hash = at.hash, .page = at.page_in_block, .region = region});
  }
}

void ReplayMemory::write_aux(std::uint64_t room, std::int32_t slot) {
  aux_content_.write(aux_.data() + static_cast<std::size_t>(slot) * aux_item_bytes,
                     {.hash = room, .page = 0, .region = ItemId::aux_region});
}

void ReplayMemory::spoil_aux(std::int32_t slot) {
  std::memset(aux_.data() + static_cast<std::size_t>(slot) * aux_item_bytes, 0xee, aux_item_bytes);
}

bool ReplayMemory::aux_is_right(std::uint64_t room, std::int32_t slot) const {
  const std::span record(aux_.data() + static_cast<std::size_t>(slot) * aux_item_bytes, aux_item_bytes);
  return crc32c(record) == aux_content_.expected_crc({.hash = room, .page = 0, .region = ItemId::aux_region});
}

std::optional<std::int32_t> ReplayMemory::take_aux() {
  if (free_aux_.empty()) return {};
  const std::int32_t slot = free_aux_.back();
  free_aux_.pop_back();
  return slot;
}

}  // namespace kvferry::tools
