// The engine: requests in, tokens out. Prefill reads prompts and sends the cache, decode receives it and goes on; an
// engine of both roles does all alone. One thread, which sleeps in poll(2) when there is nothing to compute.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/alone.h"
#include "engine/kv_cache.h"
#include "engine/model.h"
#include "engine/page_allocator.h"
#include "engine/wire.h"
#include "kvferry/kvferry.h"

namespace kvferry::engine {

enum class Part : std::uint8_t { prefill, decode, both };

struct EngineOptions {
  Part part = Part::both;
  std::string bootstrap = {};  // prefill: where to register
  std::string instance = {};
  std::uint64_t seed = 1;
  std::uint32_t pages = 4096;
  std::uint32_t aux_items = 1024;
  std::uint32_t chunk_tokens = 64;  // of a prompt that are computed at once
  std::optional<Transport> transport{};
  bool shared = false;  // KV memory that same-host peers can map
  ModelConfig model{};
};

// The memory and the model of one engine.
class Parts {
 public:
  static Result<std::unique_ptr<Parts>> make(const EngineOptions& options);

  EngineOptions options;
  Model model;
  Model::Workspace work{};
  std::unique_ptr<PrivateMemory> private_memory;
  std::optional<SharedMemory> shared_memory;
  KvCache cache;
  PageAllocator pages;
  PageAllocator aux;

  // Computes tokens [from, to) of a prompt; the logits of the last one where `logits` is not empty.
  void prefill(std::span<const std::int32_t> prompt, std::uint32_t from, std::uint32_t to,
               std::span<const std::int32_t> pages_of, std::span<float> logits);
  Result<KvManager> make_manager(Role role);

 private:
  Parts(const EngineOptions& the_options, std::unique_ptr<PrivateMemory> own, std::optional<SharedMemory> shared,
        std::span<std::byte> storage);
};

// What makes a request impossible for this engine, with its room.
Result<void> check_request(const Parts& parts, const Request& request);

// One role's work. Called by the loop of run_engine.
class Worker {
 public:
  virtual ~Worker() = default;
  virtual void take(Request request) = 0;
  virtual void abort(std::uint64_t id) = 0;
  // Looks at the rooms that changed.
  virtual void on_rooms_changed() = 0;
  // Computes one step. False where there is nothing to compute until something comes.
  virtual bool step() = 0;
  // Readable when rooms have changed; -1 where there are none.
  virtual int event_fd() const = 0;
  virtual std::string address() const { return {}; }
};
Result<std::unique_ptr<Worker>> make_prefill(Parts& parts);
Result<std::unique_ptr<Worker>> make_decode(Parts& parts);
std::unique_ptr<Worker> make_alone(Parts& parts);

// Serves stdin until quit or its end. The exit status of the process.
int run_engine(const EngineOptions& options);

}  // namespace kvferry::engine
