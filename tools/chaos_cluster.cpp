#include "tools/chaos_cluster.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "base/address.h"
#include "base/try.h"

namespace kvferry::tools {

namespace {
constexpr std::chrono::seconds start_limit{60};
}

Result<ChaosCluster> ChaosCluster::start(const ClusterPlan& plan, ChaosNetwork* network) {
  ChaosCluster cluster(plan);
  for (std::size_t i = 0; i < plan.prefill; ++i) KVF_CHECK(cluster.add(Role::prefill, i, network));
  for (std::size_t i = 0; i < plan.decode; ++i) KVF_CHECK(cluster.add(Role::decode, i, network));
  for (Worker& worker : cluster.workers_) {
    KVF_TRY(line, worker.child->read_line(start_limit));
    KVF_TRY(outcome, outcome_of(line));
    if (!outcome.error.empty()) return Error{.text = "a worker could not start: " + outcome.error};
    worker.state = State::ready;
  }
  return cluster;
}

Result<void> ChaosCluster::add(Role role, std::size_t index, ChaosNetwork* network) {
  const std::size_t number = workers_.size();
  Worker worker{.setup = {.role = role,
                          .model = plan_.model.name,
                          .layers = plan_.model.layers,
                          .page_tokens = plan_.page_tokens,
                          .pages = plan_.pages(role),
                          .seed = number,
                          .transport = plan_.transport,
                          .instance = fmt::format("{}-{}", role == Role::prefill ? "prefill" : "decode", index)}};
  if (network != nullptr) {
    worker.network = network->namespace_path(number);
    worker.setup.host = network->address(number);
  }
  if (role == Role::prefill) {
    BootstrapOptions options;
    if (network != nullptr) options.host = network->hub();
    KVF_TRY(server, BootstrapServer::start(options));
    worker.setup.bootstrap = server.address();
    servers_.emplace_back(std::move(server));
  }
  workers_.push_back(std::move(worker));
  return restart(number);
}

std::string ChaosCluster::name(std::size_t worker) const {
  return role(worker) == Role::prefill ? fmt::format("prefill {}", worker)
                                       : fmt::format("decode {}", worker - plan_.prefill);
}

Result<void> ChaosCluster::restart(std::size_t number) {
  Worker& worker = workers_[number];
  KVF_TRY(child, Child::start({.arguments = {"replay-worker"}, .network_namespace = worker.network}));
  KVF_CHECK(child.write_line(to_line(worker.setup)));
  worker.child = std::move(child);
  worker.state = State::starting;
  return {};
}

void ChaosCluster::say(std::size_t worker, const Order& order) {
  if (!workers_[worker].child) return;
  const std::string line = std::visit([](const auto& what) { return to_line(what); }, order);
  (void)workers_[worker].child->write_line(line);
}

int ChaosCluster::stdout_fd(std::size_t worker) const {
  return workers_[worker].child ? workers_[worker].child->stdout_fd() : -1;
}

Result<ChaosCluster::Heard> ChaosCluster::hear(std::size_t number) {
  Worker& worker = workers_[number];
  Heard heard;
  const bool open = worker.child->fill();
  while (auto line = worker.child->next_line()) {
    KVF_TRY(outcome, outcome_of(*line));
    if (worker.state == State::starting) {
      if (!outcome.error.empty()) return Error{.text = name(number) + " could not start again: " + outcome.error};
      worker.state = State::ready;
      heard.became_ready = true;
      continue;
    }
    heard.outcomes.push_back(std::move(outcome));
  }
  if (open) return heard;
  const bool reaped = worker.child->wait(std::chrono::seconds(5));
  heard.gone = reaped ? describe_status(*worker.child->status()) : "closed its stdout";
  worker.child.reset();
  worker.state = State::dead;
  return heard;
}

void ChaosCluster::kill(std::size_t worker) {
  workers_[worker].child->kill(SIGKILL);
  workers_[worker].state = State::dead;
}

void ChaosCluster::stop(std::size_t worker) {
  workers_[worker].child->kill(SIGSTOP);
  workers_[worker].state = State::stopped;
}

void ChaosCluster::resume(std::size_t worker) {
  if (!workers_[worker].child) return;
  workers_[worker].child->kill(SIGCONT);
  workers_[worker].state = State::ready;
}

Result<void> ChaosCluster::start_server(std::size_t prefill) {
  KVF_TRY(address, Address::parse(workers_[prefill].setup.bootstrap));
  BootstrapOptions options;
  options.host = address.host;
  options.port = address.port;
  KVF_TRY(server, BootstrapServer::start(options));
  servers_[prefill].emplace(std::move(server));
  return {};
}

std::uint64_t ChaosCluster::resident_bytes(std::size_t worker) const {
  if (!workers_[worker].child) return 0;
  std::ifstream statm(fmt::format("/proc/{}/statm", workers_[worker].child->pid()));
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace kvferry::tools
