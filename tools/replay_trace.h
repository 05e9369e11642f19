// Traces in the FAST'25 format: one JSON object a line, with `timestamp` (ms), `input_length` and `output_length`
// (tokens) and `hash_ids` (one for each block of 512 input tokens; the same id means the same prefix).
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "kvferry/result.h"

namespace kvferry::tools {

inline constexpr std::uint64_t trace_block_tokens = 512;
// Longer inputs than any model takes are a mistake of the trace, found before memory is asked for them.
inline constexpr std::uint64_t trace_input_tokens_max = 16'777'216;

struct TraceRequest {
  std::size_t line = 0;  // where it stands in the file, from 1
  std::uint64_t timestamp_ms = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::vector<std::uint64_t> hash_ids{};
};

// The first `limit` requests; blank lines are skipped. A line that cannot be is `invalid_argument` with `name` and the
// line's number; nothing is guessed.
Result<std::vector<TraceRequest>> read_trace(std::istream& in, const std::string& name, std::size_t limit);

}  // namespace kvferry::tools
