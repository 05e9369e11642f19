// Which memory of this process lies in a memfd that peers can map.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "kvferry/layout.h"

namespace kvferry::transport {

struct SharedBlock {
  const std::byte* base = nullptr;
  std::size_t bytes = 0;
  int fd = -1;  // owned by its SharedMemory
};

// The block that holds all of [data, data + bytes). Any thread.
std::optional<SharedBlock> find_shared(const void* data, std::size_t bytes);

// The blocks that hold regions of `memory`, each once, in the order in which MemoryServer numbers them.
std::vector<SharedBlock> shared_blocks(const Memory& memory);

}  // namespace kvferry::transport
