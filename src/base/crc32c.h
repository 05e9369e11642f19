// CRC32C (Castagnoli): by the processor where it can, else by table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvferry {

// The CRC32C of `bytes`; with `so_far`, of everything before and `bytes`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t so_far = 0);

// Three ranges of one length at once: about three times as fast, because the processor's instruction has a latency of
// three cycles and can start every cycle.
std::array<std::uint32_t, 3> crc32c_of_three(const std::array<const std::byte*, 3>& ranges, std::size_t bytes);

// The same by table alone; what machines without the instruction use.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t so_far = 0);

}  // namespace kvferry
