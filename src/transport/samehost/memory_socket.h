// What passes over a memory socket. The client sends its secret; the server answers with messages that carry memfds.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace kvferry::transport {

inline constexpr std::size_t fds_a_message_max = 64;      // the kernel takes 253
inline constexpr std::uint32_t shared_blocks_max = 4096;  // of one process

struct MemoryMessage {
  std::uint32_t total = 0;  // memfds of all messages together
  std::uint32_t count = 0;  // memfds of this one
  std::array<std::uint64_t, fds_a_message_max> bytes{};
};

// An abstract address: it lies in no folder and goes with the last socket.
inline sockaddr_un abstract_address(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t bytes = name.size() < sizeof address.sun_path - 1 ? name.size() : sizeof address.sun_path - 1;
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return address;
}

}  // namespace kvferry::transport
