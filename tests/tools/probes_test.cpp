#include "tools/probes.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "os/fd.h"
#include "tools/http_get.h"
#include "tools/read_file.h"

namespace {

using namespace kvferry;
using kvferry::tools::Finding;
using kvferry::tools::Findings;

const Finding* find(const Findings& findings, std::string_view name) {
  auto found = std::ranges::find(findings, name, &Finding::name);
  return found == findings.end() ? nullptr : &*found;
}

// A made-up machine: the files that a probe reads, below a folder of its own.
class Machine {
 public:
  Machine() { std::filesystem::create_directories(root()); }
  ~Machine() { std::filesystem::remove_all(root()); }
  std::string root() const { return ::testing::TempDir() + "kvferry-machine-" + std::to_string(::getpid()) + "/"; }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    std::ofstream(root() + path) << text << '\n';
  }
};

// Accepts one connection, reads the request and says `answer`.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, text = std::move(answer)] {
      os::Fd taken(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char block[4096];
      [[maybe_unused]] auto got = ::recv(taken.get(), block, sizeof block, 0);
      if (!text.empty()) ::send(taken.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (text.empty()) got = ::recv(taken.get(), block, sizeof block, 0);  // silent until the other side goes
    });
  }
  ~OneAnswer() { thread_.join(); }
  Address address() const { return {.host = "127.0.0.1", .port = port_}; }

 private:
  os::Fd listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

TEST(probes, what_the_transports_need_is_tried_and_told) {
  Findings findings;
  tools::Ways ways = tools::probe_transports("/", findings);
  EXPECT_TRUE(ways.tcp);
  for (const char* name : {"process_vm_readv", "memfd", "pidfd"}) {
    const Finding* finding = find(findings, name);
    ASSERT_NE(finding, nullptr) << name;
    EXPECT_FALSE(finding->found.empty());
    EXPECT_EQ(finding->state == Finding::State::good, finding->advice.empty()) << name;
  }
  EXPECT_EQ(ways.memfd, find(findings, "memfd")->state == Finding::State::good);
}

TEST(probes, a_machine_without_rdma_is_fine) {
  Machine machine;
  Findings findings;
  tools::probe_devices(machine.root(), findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].state, Finding::State::info);
}

TEST(probes, rdma_ports_are_listed_with_their_state) {
  Machine machine;
  machine.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  machine.write("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  machine.write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
  Findings findings;
  tools::probe_devices(machine.root(), findings);
  const Finding* port = find(findings, "mlx5_0 port 1");
  ASSERT_NE(port, nullptr);
  EXPECT_NE(port->found.find("400 Gb/sec"), std::string::npos);
}

TEST(probes, limits_are_read_and_absent_files_do_no_harm) {
  Machine machine;
  Findings empty;
  tools::probe_limits(machine.root(), empty);
  EXPECT_NE(find(empty, "yama ptrace_scope")->found.find("absent"), std::string::npos);
  machine.write("proc/sys/kernel/yama/ptrace_scope", "1");
  machine.write("proc/self/status", "Name:\tx\nCapEff:\t0000000000080000\nSeccomp:\t2");
  machine.write("sys/fs/cgroup/memory.max", "1073741824");
  machine.write("sys/fs/cgroup/cpu.max", "150000 100000");
  Findings full;
  tools::probe_limits(machine.root(), full);
  EXPECT_TRUE(find(full, "yama ptrace_scope")->found.starts_with("1:"));
  EXPECT_EQ(find(full, "CAP_SYS_PTRACE")->found, "held");
  EXPECT_EQ(find(full, "seccomp")->found, "a filter is in force");
  EXPECT_NE(find(full, "memory")->found.find("1.0 GiB"), std::string::npos);
  EXPECT_NE(find(full, "cores")->found.find("1.5"), std::string::npos);
}

TEST(probes, loopback_is_listed_and_a_host_that_is_not_ours_is_a_problem) {
  Findings findings;
  tools::probe_addresses(Settings{}, findings);
  EXPECT_EQ(find(findings, "KVFERRY_HOST"), nullptr);
  ASSERT_FALSE(findings.empty());
  Settings settings;
  settings.host = "192.0.2.1";
  tools::probe_addresses(settings, findings);
  ASSERT_NE(find(findings, "KVFERRY_HOST"), nullptr);
  EXPECT_EQ(find(findings, "KVFERRY_HOST")->state, Finding::State::problem);
}

TEST(probes, loopback_routes_to_loopback_and_an_unknown_name_is_an_error) {
  EXPECT_EQ(tools::route_source({.host = "127.0.0.1", .port = 80}).value(), "127.0.0.1");
  EXPECT_EQ(tools::route_source({.host = "no-such-host.invalid", .port = 80}).error().code, Code::unreachable);
}

TEST(probes, a_misspelt_variable_is_found) {
  ::setenv("KVFERRY_PING_INTERVALL", "1", 1);
  Findings findings;
  tools::probe_variables(findings);
  ::unsetenv("KVFERRY_PING_INTERVALL");
  EXPECT_NE(find(findings, "KVFERRY_PING_INTERVALL"), nullptr);
}

TEST(probes, the_token_is_never_shown) {
  Settings settings;
  settings.token = "open sesame";
  for (const auto& setting : tools::settings_in_force(settings))
    EXPECT_EQ(setting.value.find("sesame"), std::string::npos);
}

TEST(probes, an_http_answer_is_read_whole) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nOK\n");
  auto answer = tools::http_get(server.address(), "/health", std::chrono::seconds(20));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "OK");
}

TEST(probes, a_server_that_says_nothing_is_a_timeout) {
  OneAnswer server("");
  auto answer = tools::http_get(server.address(), "/health", std::chrono::milliseconds(20));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::timeout);
}

TEST(probes, a_server_that_speaks_no_http_is_a_problem_in_words) {
  OneAnswer server("\x01\x02garbage\r\n\r\n");
  Findings findings;
  tools::probe_bootstrap(server.address(), std::chrono::seconds(20), findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].state, Finding::State::problem);
  EXPECT_FALSE(findings[0].found.empty());
}

TEST(probes, a_field_is_found_by_its_whole_name) {
  EXPECT_EQ(tools::field_of("MemTotalX: 1\nMemTotal:   42 kB\n", "MemTotal"), "42 kB");
  EXPECT_EQ(tools::field_of("MemTotal:\n", "MemTotal"), "");
  EXPECT_EQ(tools::field_of("", "MemTotal"), "");
}

}  // namespace
