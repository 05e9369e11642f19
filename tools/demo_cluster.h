// The demo's processes: one bootstrap server a prefill instance, and the engines.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvferry/result.h"
#include "tools/engine_process.h"
#include "tools/process.h"

namespace kvferry::tools {

// How the ranks of the engines of one side share the work, each in a process of its own.
struct Split {
  std::uint32_t tp = 1;
  std::uint32_t pp = 1;
  std::uint32_t dp = 1;
  std::uint32_t page_tokens = 16;
};

struct ClusterOptions {
  std::size_t prefills = 2;
  std::size_t decodes = 2;
  std::uint64_t seed = 0;   // of the model's weights
  std::string transport{};  // empty: each engine's own choice
  bool shared = false;      // KV caches in shared memory
  Split prefill{};
  Split decode{};
  bool mla = false;
  bool layer_wise = false;
  std::uint32_t chunk_tokens = 64;
};

// Lives in one place: engines refer to its folder of logs, which goes with it unless it is kept.
class Cluster {
 public:
  // Starts every process. Does not wait for the engines to be ready.
  static Result<std::unique_ptr<Cluster>> start(const ClusterOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Prefill engines first, then decode engines.
  std::vector<EngineProcess*> engines();
  // One engine more, which does both sides.
  Result<EngineProcess*> start_alone();
  // Asks every engine to quit. The names of those that did not go by themselves.
  std::vector<std::string> quit(std::chrono::milliseconds limit);
  // Leaves the logs where they are and says where.
  const std::string& keep_logs();

 private:
  Cluster() = default;
  Result<std::string> add_bootstrap(std::size_t index);
  std::unique_ptr<EngineProcess> make(const std::string& name, std::vector<std::string> arguments,
                                      const std::string& bootstrap) const;
  std::string log_path(const std::string& name) const { return logs_ + "/" + name + ".log"; }

  ClusterOptions options_;
  std::string logs_;
  bool keep_logs_ = false;
  std::vector<Child> bootstraps_;
  std::vector<std::unique_ptr<EngineProcess>> engines_;
  std::unique_ptr<EngineProcess> alone_;
};

}  // namespace kvferry::tools
