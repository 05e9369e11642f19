// The prefill process of `bench copy`.
#pragma once

#include <cstddef>

#include "bench/child.h"

namespace kvferry::tools {

// Chunks are as large as a prefill engine's: 8,192 tokens of 4 KiB.
inline constexpr std::size_t bench_chunk_bytes = std::size_t{32} << 20;

// Runs in the forked child until the leader goes; `shared` says whether a mappable region is needed too.
int run_copy_source(const bench::Channel& channel, std::size_t bytes, bool shared);

}  // namespace kvferry::tools
