// A prefill instance as the leading process of a bench sees it: a bootstrap server that stays, and a process that comes
// and goes. The orders are those of bench_worker.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kvferry/kvferry.h"
#include "tools/bench_worker.h"
#include "tools/process.h"

namespace kvferry::tools {

// A resource: its process is killed with it.
class BenchPrefill {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  using Numbers = std::vector<std::uint64_t>;

  // Starts the bootstrap server, not the process. `setup.bootstrap` is filled in.
  static Result<BenchPrefill> make(WorkerSetup setup, Environment environment);

  const std::string& bootstrap() const { return setup_.bootstrap; }
  Child& process() { return *process_; }
  // Runs a process, after one that was killed too. Returns before it is ready.
  Result<void> launch();
  // Waits until it is ready: when the bootstrap server got to know it, in seconds of the monotonic clock.
  Result<double> registered();
  Result<void> start();  // both

  // Gives an order and waits for its answer, or in two halves.
  Result<void> tell(const std::string& order);
  Result<Numbers> hear();
  Result<Numbers> ask(const std::string& order);

 private:
  BenchPrefill(WorkerSetup setup, Environment environment, BootstrapServer server)
      : setup_(std::move(setup)), environment_(std::move(environment)), server_(std::move(server)) {}

  WorkerSetup setup_;
  Environment environment_;
  BootstrapServer server_;
  std::optional<Child> process_;
};

}  // namespace kvferry::tools
