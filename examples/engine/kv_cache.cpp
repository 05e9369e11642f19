#include "engine/kv_cache.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace kvferry::engine {

PrivateMemory::PrivateMemory(std::size_t bytes) : size_(bytes) {
  constexpr std::size_t alignment = 4096;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!memory_) throw std::bad_alloc();
  std::memset(memory_.get(), 0, rounded);
}

void PrivateMemory::Free::operator()(std::byte* memory) const { std::free(memory); }

KvCache::KvCache(const CacheShape& shape, std::span<std::byte> storage)
    : shape_(shape),
      floats_(reinterpret_cast<float*>(storage.data())),
      aux_(reinterpret_cast<AuxRecord*>(storage.data() + shape.page_bytes_everywhere() * shape.pages)) {
  if (storage.size() < shape.total_bytes()) throw std::bad_alloc();
}

Memory KvCache::regions() const {
  Memory memory;
  memory.first_layer = shape_.first_layer;
  for (std::uint32_t region = 0; region < shape_.regions(); ++region) {
    memory.kv.push_back({page_at(region, 0), shape_.layer_floats() * sizeof(float), shape_.page_bytes()});
  }
  memory.aux.push_back({aux_, shape_.aux_items * sizeof(AuxRecord), sizeof(AuxRecord)});
  return memory;
}

}  // namespace kvferry::engine
