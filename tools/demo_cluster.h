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

struct ClusterOptions {
  std::size_t prefills = 2;
  std::size_t decodes = 2;
  std::uint64_t seed = 0;   // of the model's weights
  std::string transport{};  // empty: each engine's own choice
  bool shared = false;      // KV caches in shared memory
};

// Lives in one place: engines refer to its folder of logs, which goes with it unless it is kept.
class Cluster {
 public:
  // Starts every process, and one engine more that does both sides. Does not wait for the engines to be ready.
  static Result<std::unique_ptr<Cluster>> start(const ClusterOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Prefill engines first, then decode engines.
  std::vector<EngineProcess*> engines();
  EngineProcess& alone() { return *alone_; }
  // Asks every engine to quit. The names of those that did not go by themselves.
  std::vector<std::string> quit(std::chrono::milliseconds limit);
  // Leaves the logs where they are and says where.
  const std::string& keep_logs();

 private:
  Cluster() = default;
  Result<std::string> add_bootstrap(std::size_t index);
  std::string log_path(const std::string& name) const { return logs_ + "/" + name + ".log"; }

  std::string logs_;
  bool keep_logs_ = false;
  std::vector<Child> bootstraps_;
  std::vector<std::unique_ptr<EngineProcess>> engines_;
  std::unique_ptr<EngineProcess> alone_;
};

}  // namespace kvferry::tools
