// What the transport tests share: a sink that can be waited on, memory to move, and sockets to move it over.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "os/fd.h"
#include "protocol/data_frame.h"
#include "transport/mover.h"

namespace kvferry::transport {

class TestSink : public MoverSink {
 public:
  void post(MoverEvent event) override {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  // The first event of this kind, of this transfer where the kind has one, that no earlier call returned.
  template <class Kind>
  std::optional<Kind> wait(std::optional<TransferId> transfer = {},
                           std::chrono::seconds limit = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    std::optional<Kind> found;
    changed_.wait_for(lock, limit, [&] {
      for (auto at = events_.begin(); at != events_.end(); ++at) {
        const Kind* kind = std::get_if<Kind>(&*at);
        if (kind == nullptr) continue;
        if constexpr (requires { kind->transfer; }) {
          if (transfer && kind->transfer != *transfer) continue;
        }
        found = *kind;
        events_.erase(at);
        return true;
      }
      return false;
    });
    return found;
  }
  template <class Kind>
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const MoverEvent& event : events_) n += std::holds_alternative<Kind>(event) ? 1 : 0;
    return n;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<MoverEvent> events_;
};

// Buffers and the Memory that describes them. kv regions may differ in item size, all have `items` items.
struct TestMemory {
  TestMemory(std::size_t items, const std::vector<std::size_t>& kv, const std::vector<std::size_t>& aux = {},
             const std::vector<std::vector<std::size_t>>& state = {}) {
    for (std::size_t bytes : kv) memory.kv.push_back(add(items, bytes));
    for (std::size_t bytes : aux) memory.aux.push_back(add(items, bytes));
    for (const auto& list : state) {
      memory.state.emplace_back();
      for (std::size_t bytes : list) memory.state.back().regions.push_back(add(items, bytes));
    }
  }
  Region add(std::size_t items, std::size_t item_bytes) {
    buffers.emplace_back(items * item_bytes);
    return {buffers.back().data(), buffers.back().size(), item_bytes};
  }
  void fill(unsigned seed) {
    std::mt19937_64 random(seed);
    for (auto& buffer : buffers) {
      for (std::size_t at = 0; at < buffer.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(&buffer[at], &word, std::min(sizeof word, buffer.size() - at));
      }
    }
  }
  std::vector<std::vector<std::byte>> buffers;
  Memory memory;
};

inline std::vector<std::int32_t> shuffled(std::size_t count, std::size_t items, unsigned seed) {
  std::vector<std::int32_t> all(items);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  all.resize(count);
  return all;
}

// A connected pair of TCP sockets over loopback.
inline std::pair<os::Fd, os::Fd> tcp_pair() {
  const os::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  os::Fd left(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(left.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  os::Fd right(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return {std::move(left), std::move(right)};
}

inline void write_all(const os::Fd& fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd.get(), at, bytes, MSG_NOSIGNAL);
    if (n <= 0) return;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

inline void write_frame(const os::Fd& fd, const protocol::DataHeader& header, std::byte value = std::byte{0x5a}) {
  std::vector<std::byte> bytes(protocol::data_header_bytes + header.payload_bytes, value);
  protocol::write_data_header(
      header, std::span<std::byte, protocol::data_header_bytes>(bytes.data(), protocol::data_header_bytes));
  write_all(fd, bytes.data(), bytes.size());
}

inline constexpr SessionId session_1{1};
inline constexpr TransferId transfer_1{101};
inline constexpr TransferId transfer_2{102};

inline bool contains(const std::byte* data, std::size_t bytes, std::byte value) {
  return std::memchr(data, std::to_integer<int>(value), bytes) != nullptr;
}

// Whether the items of `target` hold what those of `source` hold, in every region of a component.
inline bool same_items(const std::vector<Region>& source, const std::vector<std::int32_t>& source_items,
                       const std::vector<Region>& target, const std::vector<std::int32_t>& target_items) {
  for (std::size_t r = 0; r < source.size(); ++r) {
    for (std::size_t i = 0; i < source_items.size(); ++i) {
      const std::size_t bytes = source[r].item_bytes;
      const auto* from =
          static_cast<const std::byte*>(source[r].base) + static_cast<std::size_t>(source_items[i]) * bytes;
      const auto* to =
          static_cast<const std::byte*>(target[r].base) + static_cast<std::size_t>(target_items[i]) * bytes;
      if (std::memcmp(from, to, bytes) != 0) return false;
    }
  }
  return true;
}

}  // namespace kvferry::transport
