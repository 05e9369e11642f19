// A prefill and a decode manager with a bootstrap server between them, in this process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kvferry/kvferry.h"

namespace kvferry::testing {

using namespace std::chrono_literals;
inline constexpr std::chrono::milliseconds long_enough = 20s;

// Memory of one rank: `regions` kv regions of `pages` pages, one aux region of 64 records.
struct Buffers {
  Buffers(std::size_t regions, std::size_t pages, std::size_t page_bytes, bool shared, std::uint8_t fill)
      : page_bytes_(page_bytes) {
    for (std::size_t i = 0; i < regions; ++i) memory.kv.push_back(add(pages * page_bytes, page_bytes, shared, fill));
    memory.aux.push_back(add(64 * aux_bytes, aux_bytes, shared, fill));
  }
  std::byte* page(std::size_t region, std::int32_t index) {
    return static_cast<std::byte*>(memory.kv[region].base) + static_cast<std::size_t>(index) * page_bytes_;
  }
  std::byte* aux(std::int32_t index) {
    return static_cast<std::byte*>(memory.aux[0].base) + static_cast<std::size_t>(index) * aux_bytes;
  }

  static constexpr std::size_t aux_bytes = 128;
  Memory memory;

 private:
  Region add(std::size_t bytes, std::size_t item_bytes, bool shared, std::uint8_t fill) {
    void* base = nullptr;
    if (shared) {
      auto made = SharedMemory::allocate(bytes);
      EXPECT_TRUE(made) << (made ? "" : made.error().message());
      base = made->data();
      shared_.push_back(std::move(*made));
    } else {
      private_.push_back(std::make_unique<std::byte[]>(bytes));
      base = private_.back().get();
    }
    std::memset(base, fill, bytes);
    return Region{base, bytes, item_bytes};
  }
  std::size_t page_bytes_;
  std::vector<SharedMemory> shared_;
  std::vector<std::unique_ptr<std::byte[]>> private_;
};

struct PairOptions {
  Transport transport = Transport::automatic;
  bool shared = false;
  std::size_t regions = 4;
  std::size_t pages = 256;
  std::size_t page_bytes = 4096;
  std::uint64_t inline_bytes_max = 65'536;
  std::string token = {};
  Verify verify = Verify::off;
};

inline KvFormat format_of(const PairOptions& options) {
  KvFormat format;
  format.layers = static_cast<std::uint32_t>(options.regions / 2);
  format.kv_heads = 4;
  format.head_dim = 16;
  return format;
}

class Pair {
 public:
  explicit Pair(PairOptions the_options = {})
      : options(the_options),
        prefill_memory(options.regions, options.pages, options.page_bytes, options.shared, 0xAA),
        decode_memory(options.regions, options.pages, options.page_bytes, false, 0x55) {
    settings.transport = options.transport;
    settings.inline_bytes_max = options.inline_bytes_max;
    settings.token = options.token;
    settings.verify = options.verify;
    BootstrapOptions bootstrap;
    bootstrap.settings = settings;
    auto started = BootstrapServer::start(bootstrap);
    EXPECT_TRUE(started) << (started ? "" : started.error().message());
    server.emplace(std::move(*started));
    server_address = server->address();
    start_prefill();
    start_decode();
  }

  void start_prefill() {
    prefill.reset();
    prefill.emplace(make(Role::prefill, prefill_memory.memory));
  }
  void start_decode() {
    decode.reset();
    decode.emplace(make(Role::decode, decode_memory.memory));
  }
  KvManager make(Role role, const Memory& memory) {
    ManagerOptions manager;
    manager.role = role;
    manager.memory = memory;
    manager.format = format_of(options);
    manager.instance = role == Role::prefill ? "prefill-0" : "decode-0";
    manager.settings = settings;
    if (role == Role::prefill) manager.bootstrap = server_address;
    auto made = KvManager::create(std::move(manager));
    EXPECT_TRUE(made) << (made ? "" : made.error().message());
    return std::move(*made);
  }
  Receiver receive(std::uint64_t room) {
    auto receiver = decode->open_receiver(server_address, room);
    EXPECT_TRUE(receiver) << (receiver ? "" : receiver.error().message());
    return std::move(*receiver);
  }
  Sender sending(std::uint64_t room) {
    auto sender = prefill->open_sender(room);
    EXPECT_TRUE(sender) << (sender ? "" : sender.error().message());
    return std::move(*sender);
  }

  PairOptions options;
  Settings settings;
  Buffers prefill_memory;
  Buffers decode_memory;
  std::optional<BootstrapServer> server;
  std::string server_address;  // still the address where `server` is gone
  std::optional<KvManager> prefill;
  std::optional<KvManager> decode;
};

inline std::vector<std::int32_t> shuffled_pages(std::size_t count, std::size_t total, unsigned seed) {
  std::vector<std::int32_t> pages(total);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
  pages.resize(count);
  return pages;
}

// Fills the pages with a pattern of the room, the position and the region.
inline void fill_pages(Buffers& buffers, std::size_t page_bytes, const std::vector<std::int32_t>& pages,
                       std::uint64_t first_position, std::uint64_t room) {
  for (std::size_t r = 0; r < buffers.memory.kv.size(); ++r) {
    for (std::size_t i = 0; i < pages.size(); ++i) {
      std::mt19937 values(static_cast<unsigned>(room * 1'000'003 + (first_position + i) * 101 + r));
      auto* words = reinterpret_cast<std::uint32_t*>(buffers.page(r, pages[i]));
      for (std::size_t w = 0; w < page_bytes / 4; ++w) words[w] = static_cast<std::uint32_t>(values());
    }
  }
}

inline bool pages_equal(Buffers& source, const std::vector<std::int32_t>& source_pages, Buffers& target,
                        const std::vector<std::int32_t>& target_pages, std::size_t page_bytes) {
  for (std::size_t r = 0; r < source.memory.kv.size(); ++r) {
    for (std::size_t i = 0; i < source_pages.size(); ++i) {
      if (std::memcmp(source.page(r, source_pages[i]), target.page(r, target_pages[i]), page_bytes) != 0) return false;
    }
  }
  return true;
}

}  // namespace kvferry::testing
