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
  bool shared = false;      // KV memory that same-host peers can map
  Parallel split{};         // sizes of this engine; every rank is a process of its own
  Place place{};            // of this rank
  bool layer_wise = false;  // prefill: layers are sent while later ones are still computed
  ModelConfig model{};
};

// The memory and the model of one rank.
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
class Group;
std::unique_ptr<Worker> make_prefill(Group& group);
std::unique_ptr<Worker> make_decode(Group& group);
std::unique_ptr<Worker> make_alone(Parts& parts);

// Serves stdin until quit or its end. The exit status of the process. Starts the processes of the other ranks, and
// where there are several data-parallel groups one such process a group, before any thread.
int run_engine(const EngineOptions& options);

}  // namespace kvferry::engine
