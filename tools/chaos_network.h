// A network namespace for every worker of a chaos run, joined by a bridge: one worker can be cut off from all others.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "kvferry/result.h"
#include "os/fd.h"

namespace kvferry::tools {

// A resource. Everything lives in a network namespace that the calling thread enters, and goes with the process,
// however that ends.
class ChaosNetwork {
 public:
  // Call it before any other thread or socket is made. `unsupported` in words: it needs root and iproute2's `ip`.
  static Result<ChaosNetwork> make(std::size_t workers);

  const std::string& hub() const { return hub_; }  // address of this process
  std::string address(std::size_t worker) const;
  // For ChildOptions::network_namespace.
  std::string namespace_path(std::size_t worker) const;

  // From now on no packet reaches the worker or leaves it, which nobody is told of.
  Result<void> cut(std::size_t worker);
  Result<void> join(std::size_t worker);
  // Packets to the worker come late; 0 ends it. `unsupported` where the kernel has no sch_netem.
  Result<void> delay(std::size_t worker, std::chrono::milliseconds late);

 private:
  ChaosNetwork() = default;
  Result<void> add_worker(std::size_t worker);
  std::string hub_;
  std::vector<os::Fd> namespaces_;  // a worker each
};

}  // namespace kvferry::tools
