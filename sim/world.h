// A simulated cluster: prefill and decode ranks, bootstrap servers, what happens to them, and one run from a seed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine.h"
#include "sim/judge.h"
#include "sim/network.h"
#include "sim/options.h"
#include "sim/process.h"
#include "sim/schedule.h"

namespace kvferry::sim {

class World {
 public:
  explicit World(const SimOptions& options);
  SimResult run();

  const SimOptions options;
  Schedule schedule;
  Prng prng;
  Swarm swarm;
  Limits limits;
  Judge judge;
  Network network;
  Engine engine;
  Duration connect_timeout = std::chrono::seconds(2);

  // ---- What processes ask of it. ----
  Duration latency() { return prng.long_tail(std::chrono::microseconds(150)); }
  // Random numbers of one request or one piece of trouble, the same whatever else there is.
  enum class Stream : std::uint64_t { request = 1, fault = 2 };
  Prng stream(Stream kind, std::uint64_t number) const;
  Duration copy_time() { return prng.long_tail(std::chrono::microseconds(swarm.slow ? 3000 : 60)); }
  Process* listening(const Address& address) const;
  // The process that stands in a slot now; null while it is dead.
  Process* rank(bool prefill, std::size_t slot) const;
  core::DataPath path(std::size_t prefill, std::size_t decode) const { return paths_.at({prefill, decode}); }
  Address bootstrap_of(std::size_t prefill) const;
  std::string instance_of(std::size_t prefill) const;
  std::uint32_t dp_size() const { return swarm.one_instance ? options.prefill : 1; }
  void bootstrap_sizes(Process& process, const Address& bootstrap);
  void bootstrap_route(Process& process, const core::PeerKey& key);
  std::vector<SessionId> sessions_with_prefix_of(const Process& process, SessionId lost);
  void tell_message(const Process& process, const protocol::Message& message, const char* verb);
  // Why a request of this pair need not succeed now; empty where it must.
  std::string trouble(std::size_t prefill, std::size_t decode) const;

 private:
  struct Registration {
    Address address;
    Incarnation incarnation;
    std::string instance;
    bool there = false;
  };
  // ---- world_faults.cpp ----
  void fault(Prng draw);
  void kill_and_restart(bool prefill, std::size_t slot, Prng& draw);
  void stop_and_go_on(bool prefill, std::size_t slot, Prng& draw);
  void be_reborn(bool prefill, std::size_t slot, Prng& draw);
  void trouble_pair(Prng& draw);
  void outage(Prng& draw);
  void touch(std::optional<std::size_t> prefill, std::optional<std::size_t> decode, Duration lasts,
             const std::string& why);
  void start(bool prefill, std::size_t slot, bool same_address);
  void kill(Process& process);
  void heal();

  // ---- world.cpp ----
  void run_until(Instant until);
  bool run_while(Duration bound, const std::function<bool()>& wanted);
  void last_round();
  std::optional<std::size_t> registered_slot(const core::PeerKey& key) const;

  std::vector<std::unique_ptr<Process>> all_;  // the dead ones too
  std::map<std::pair<bool, std::size_t>, Process*> ranks_;
  std::vector<Registration> registered_;
  std::vector<std::uint32_t> epoch_;  // of the instance names
  std::map<std::pair<std::size_t, std::size_t>, core::DataPath> paths_;
  std::map<Address, Instant> outage_until_;
  std::map<std::pair<std::size_t, std::size_t>, std::pair<Instant, std::string>> trouble_;
  std::uint64_t processes_ = 0;
  std::uint64_t faults_ = 0;
};

}  // namespace kvferry::sim
