// The processes of a chaos run: workers that can be killed, stopped and started again, and their bootstrap servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvferry/kvferry.h"
#include "tools/chaos_network.h"
#include "tools/process.h"
#include "tools/replay_messages.h"
#include "tools/replay_model.h"

namespace kvferry::tools {

struct ClusterPlan {
  std::size_t prefill = 3;
  std::size_t decode = 3;
  ModelShape model{};
  std::uint32_t page_tokens = 16;
  std::uint64_t memory_bytes = 0;  // of all workers together: a third for prefill, the rest for decode
  std::string transport = "auto";

  std::uint64_t pages(Role role) const {
    const std::uint64_t share = role == Role::prefill ? memory_bytes / 3 / prefill : memory_bytes / 3 * 2 / decode;
    return share / (model.token_bytes() * page_tokens);
  }
};

// A resource: owns the processes and servers. One thread. Workers are counted prefill first, then decode.
class ChaosCluster {
 public:
  enum class State : std::uint8_t { starting, ready, stopped, dead };

  // Starts everything and waits until each worker is ready. `network` outlives the cluster; none without namespaces.
  static Result<ChaosCluster> start(const ClusterPlan& plan, ChaosNetwork* network);

  std::size_t size() const { return workers_.size(); }
  Role role(std::size_t worker) const { return worker < plan_.prefill ? Role::prefill : Role::decode; }
  std::string name(std::size_t worker) const;  // "prefill 0"
  State state(std::size_t worker) const { return workers_[worker].state; }
  // Whether a load balancer may send it rooms: one that hangs looks alive.
  bool takes_rooms(std::size_t worker) const {
    return state(worker) == State::ready || state(worker) == State::stopped;
  }
  const std::string& bootstrap(std::size_t prefill) const { return workers_[prefill].setup.bootstrap; }

  // The worker's words go unheard where its process has just gone, which its stdout tells soon.
  void say(std::size_t worker, const Order& order);
  // For poll(2); -1 while it has no process.
  int stdout_fd(std::size_t worker) const;
  struct Heard {
    std::vector<RoomOutcome> outcomes;
    bool became_ready = false;
    std::optional<std::string> gone{};  // how its process ended
  };
  Result<Heard> hear(std::size_t worker);

  void kill(std::size_t worker);
  Result<void> restart(std::size_t worker);
  void stop(std::size_t worker);
  void resume(std::size_t worker);
  void stop_server(std::size_t prefill) { servers_[prefill].reset(); }
  Result<void> start_server(std::size_t prefill);

  // Resident bytes of the worker's process, 0 where it has none.
  std::uint64_t resident_bytes(std::size_t worker) const;

 private:
  struct Worker {
    ReplaySetup setup;
    std::string network{};
    std::optional<Child> child{};
    State state = State::dead;
  };
  explicit ChaosCluster(const ClusterPlan& plan) : plan_(plan) {}
  Result<void> add(Role role, std::size_t index, ChaosNetwork* network);

  ClusterPlan plan_;
  std::vector<Worker> workers_;
  std::vector<std::optional<BootstrapServer>> servers_;  // one a prefill worker, at its `setup.bootstrap`
};

}  // namespace kvferry::tools
