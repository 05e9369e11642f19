// Orders to the fake engine, as the first token of a prompt.
#pragma once

#include <cstdint>

namespace fake {
inline constexpr std::int32_t hang = -1;                // nobody answers
inline constexpr std::int32_t hang_in_first_life = -2;  // decode does not answer until it was started again
inline constexpr std::int32_t fail = -3;                // decode says failed, prefill nothing until it is told to abort
inline constexpr std::int32_t lie = -4;                 // decode's tokens are wrong
inline constexpr std::int32_t end = -5;                 // decode ends
}  // namespace fake
