// A copy whose target will not be read soon: it goes past the caches, so that no line is fetched only to be
// overwritten.
#pragma once

#include <cstddef>

namespace kvferry::transport {

// Below this, a plain copy is as fast.
inline constexpr std::size_t streaming_bytes_min = 4096;

// As memcpy; the bytes are visible to other threads only after streaming_fence(). `next` is where the next copy will
// read: it is fetched meanwhile, never accessed, so any address is fine.
void streaming_copy(std::byte* target, const std::byte* source, std::size_t bytes, const std::byte* next);
void streaming_fence();

}  // namespace kvferry::transport
