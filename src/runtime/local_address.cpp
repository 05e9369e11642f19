#include "runtime/local_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "os/fd.h"

namespace kvferry::runtime {

namespace {

Result<std::string> routed_host(const std::optional<Address>& bootstrap) {
  if (!bootstrap) return std::string("127.0.0.1");
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(bootstrap->host.c_str(), std::to_string(bootstrap->port).c_str(), &hints, &found);
  if (failed != 0) {
    return Error{Code::unreachable,
                 "the bootstrap server's host \"" + bootstrap->host + "\" was not found: " + ::gai_strerror(failed) +
                     "; set KVFERRY_HOST to listen without it",
                 {},
                 bootstrap->text()};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    // Connecting a datagram socket sends nothing: the kernel only picks the route and with it the source address.
    const os::Fd socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    if (!socket || ::connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
      error = errno;
      continue;
    }
    char host[NI_MAXHOST];
    if (::getnameinfo(reinterpret_cast<sockaddr*>(&local), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) ==
        0) {
      return std::string(host);
    }
  }
  return Error{Code::unreachable,
               "no route to the bootstrap server: " + std::generic_category().message(error) +
                   "; set KVFERRY_HOST to the address to listen on",
               {},
               bootstrap->text()};
}

}  // namespace

Result<std::string> local_host(const Settings& settings, const std::optional<Address>& bootstrap) {
  return settings.host.empty() ? routed_host(bootstrap) : Result<std::string>(settings.host);
}

Result<std::string> announced_host(const std::string& listen_host, const std::optional<Address>& bootstrap) {
  return listen_host == "0.0.0.0" || listen_host == "::" ? routed_host(bootstrap) : Result<std::string>(listen_host);
}

}  // namespace kvferry::runtime
