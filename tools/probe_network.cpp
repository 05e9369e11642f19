#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "os/fd.h"
#include "tools/http_get.h"
#include "tools/probes.h"
#include "tools/read_file.h"

namespace kvferry::tools {
namespace {

using State = Finding::State;

std::string literal(const sockaddr& address) {
  std::array<char, NI_MAXHOST> text{};
  socklen_t length = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  ::getnameinfo(&address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

std::string kind_of(const std::string& ip, bool loopback, const Settings& settings) {
  if (loopback) return "this machine only";
  if (ip.starts_with("fe80:")) return "link-local: peers need the scope too";
  if (is_private_or_loopback(ip)) return "private";
  if (!settings.token.empty()) return "public, guarded by the token";
  return settings.allow_public ? "public, without a token, as KVFERRY_ALLOW_PUBLIC says"
                               : "public: refused without KVFERRY_TOKEN";
}

void probe_port(const std::filesystem::path& port, const std::string& device, Findings& out) {
  auto read = [&](const char* name) { return read_file(port / name).value_or("unknown"); };
  std::string state = read("state");
  bool active = state.find("ACTIVE") != std::string::npos;
  out.push_back(
      {.area = "device",
       .name = device + " port " + port.filename().string(),
       .found = fmt::format("{}, {}, {}; this version moves no bytes by RDMA", read("link_layer"), state, read("rate")),
       .advice = active ? "" : "the port is down"});
}

}  // namespace

void probe_addresses(const Settings& settings, Findings& out) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    out.push_back({.area = "address",
                   .name = "interfaces",
                   .state = State::problem,
                   .found = ::strerror(errno),
                   .advice = "allow netlink sockets, or name the address in KVFERRY_HOST"});
    return;
  }
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  bool named_is_here =
      settings.host.empty() || !is_ip_literal(settings.host) || settings.host == "0.0.0.0" || settings.host == "::";
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::string ip = literal(*entry->ifa_addr);
    bool up = (entry->ifa_flags & IFF_RUNNING) != 0;
    named_is_here = named_is_here || ip == settings.host;
    out.push_back(
        {.area = "address",
         .name = fmt::format("{} {}", entry->ifa_name, ip),
         .found = kind_of(ip, (entry->ifa_flags & IFF_LOOPBACK) != 0, settings) + (up ? "" : ", interface is down"),
         .advice = ""});
  }
  if (!named_is_here) {
    out.push_back({.area = "address",
                   .name = "KVFERRY_HOST",
                   .state = State::problem,
                   .found = settings.host + " is no address of this machine",
                   .advice = "set KVFERRY_HOST to one of the addresses above, or unset it"});
  }
}

void probe_devices(const std::string& root, Findings& out) {
  std::size_t before = out.size();
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(root + "sys/class/infiniband", error)) {
    std::error_code no_ports;
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", no_ports)) {
      probe_port(port.path(), device.path().filename().string(), out);
    }
  }
  if (out.size() == before) {
    out.push_back({.area = "device", .name = "RDMA", .found = "none; pairs on two hosts use tcp", .advice = ""});
  }
}

Result<std::string> route_source(const Address& server) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  int failure = ::getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &hints, &found);
  if (failure != 0) return Error{.code = Code::unreachable, .text = server.host + ": " + ::gai_strerror(failure)};
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  int number = 0;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    os::Fd socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage source{};
    socklen_t length = sizeof source;
    auto* address = reinterpret_cast<sockaddr*>(&source);
    if (socket && ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), address, &length) == 0) {
      return literal(*address);
    }
    number = errno;
  }
  return Error{.code = Code::unreachable, .text = fmt::format("no route to {}: {}", server.text(), ::strerror(number))};
}

void probe_bootstrap(const Address& server, std::chrono::milliseconds limit, Findings& out) {
  auto health = http_get(server, "/health", limit);
  if (!health || health->status != 200) {
    std::string found = health ? fmt::format("answered {} {}", health->status, health->body) : health.error().text;
    out.push_back({.area = "bootstrap",
                   .name = server.text(),
                   .state = State::problem,
                   .found = found,
                   .advice = "check that `kvferry bootstrap` runs there and that no firewall or proxy stands between"});
    return;
  }
  out.push_back({.area = "bootstrap", .name = server.text(), .state = State::good, .found = "healthy", .advice = ""});
  auto sizes = http_get(server, "/route?engine_rank=-1&target_dp_group=-1", limit);
  if (!sizes) {
    out.push_back({.area = "bootstrap",
                   .name = "instance",
                   .state = State::problem,
                   .found = sizes.error().text,
                   .advice = "the server answers /health but not /route: is it a kvferry bootstrap server?"});
    return;
  }
  bool complete = sizes->status == 200;
  out.push_back({.area = "bootstrap",
                 .name = "instance",
                 .state = complete ? State::good : State::warning,
                 .found = fmt::format("{} {}", sizes->status, sizes->body.substr(0, 200)),
                 .advice = complete ? "" : "start the prefill engine, or the ranks of it that are missing"});
}

}  // namespace kvferry::tools
