#include "tools/chaos_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "base/try.h"
#include "tools/process.h"

namespace kvferry::tools {

namespace {

constexpr const char* subnet = "10.201.0";  // nobody outside of these namespaces sees it
constexpr const char* bridge = "kvf-hub";

Result<std::string> find_tool(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  return Error{.code = Code::unsupported, .text = name + " is not installed (Debian: iproute2)"};
}

Result<void> run_tool(const std::string& name, std::vector<std::string> arguments, const std::string& network = {}) {
  KVF_TRY(program, find_tool(name));
  std::string words = name;
  for (const std::string& argument : arguments) words += " " + argument;
  KVF_TRY(child, Child::start({.arguments = std::move(arguments),
                               .program = program,
                               .stderr_path = "/dev/null",
                               .network_namespace = network}));
  if (!child.wait(std::chrono::seconds(10))) return Error{.code = Code::unsupported, .text = words + " does not end"};
  if (*child.status() == 0) return {};
  return Error{.code = Code::unsupported, .text = fmt::format("`{}` {}", words, describe_status(*child.status()))};
}

// A thread can enter a new namespace and go; the descriptor keeps what it saw.
Result<os::Fd> new_namespace() {
  os::Fd made;
  int number = 0;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) == 0) made.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    number = errno;
  }).join();
  if (made) return made;
  return Error{.code = Code::unsupported,
               .text = fmt::format("cannot make a network namespace: {}", ::strerror(number))};
}

std::string veth(std::size_t worker) { return fmt::format("kvf-{}", worker); }

}  // namespace

Result<ChaosNetwork> ChaosNetwork::make(std::size_t workers) {
  ChaosNetwork network;
  if (::unshare(CLONE_NEWNET) != 0) {
    return Error{.code = Code::unsupported,
                 .text = fmt::format("cannot enter a network namespace: {} (it needs root)", ::strerror(errno))};
  }
  network.hub_ = fmt::format("{}.1", subnet);
  KVF_CHECK(run_tool("ip", {"link", "set", "lo", "up"}));
  KVF_CHECK(run_tool("ip", {"link", "add", bridge, "type", "bridge"}));
  KVF_CHECK(run_tool("ip", {"addr", "add", network.hub_ + "/24", "dev", bridge}));
  KVF_CHECK(run_tool("ip", {"link", "set", bridge, "up"}));
  for (std::size_t worker = 0; worker < workers; ++worker) KVF_CHECK(network.add_worker(worker));
  return network;
}

Result<void> ChaosNetwork::add_worker(std::size_t worker) {
  KVF_TRY(made, new_namespace());
  namespaces_.push_back(std::move(made));
  const std::string path = namespace_path(worker);
  const std::string name = veth(worker);
  KVF_CHECK(run_tool("ip", {"link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", path}));
  KVF_CHECK(run_tool("ip", {"link", "set", name, "master", bridge, "up"}));
  KVF_CHECK(run_tool("ip", {"link", "set", "lo", "up"}, path));
  KVF_CHECK(run_tool("ip", {"addr", "add", address(worker) + "/24", "dev", "eth0"}, path));
  return run_tool("ip", {"link", "set", "eth0", "up"}, path);
}

std::string ChaosNetwork::address(std::size_t worker) const { return fmt::format("{}.{}", subnet, worker + 2); }

std::string ChaosNetwork::namespace_path(std::size_t worker) const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), namespaces_[worker].get());
}

Result<void> ChaosNetwork::cut(std::size_t worker) { return run_tool("ip", {"link", "set", veth(worker), "nomaster"}); }

Result<void> ChaosNetwork::join(std::size_t worker) {
  return run_tool("ip", {"link", "set", veth(worker), "master", bridge});
}

Result<void> ChaosNetwork::delay(std::size_t worker, std::chrono::milliseconds late) {
  if (late.count() == 0) return run_tool("tc", {"qdisc", "del", "dev", veth(worker), "root"});
  auto done = run_tool(
      "tc", {"qdisc", "add", "dev", veth(worker), "root", "netem", "delay", fmt::format("{}ms", late.count())});
  if (done) return done;
  return Error{.code = Code::unsupported, .text = done.error().text + " (the kernel may lack sch_netem)"};
}

}  // namespace kvferry::tools
