#include "net/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include "base/try.h"
#include "os/fork.h"

namespace kvferry::net {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

std::string words(int error) { return std::generic_category().message(error); }

Error cannot_listen(const Address& address, const std::string& why) {
  return Error{Code::unreachable, "cannot listen on " + address.text() + ": " + why, {}, address.text()};
}

Result<std::vector<tcp::endpoint>> endpoints_to_bind(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int failed = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found)) {
    return cannot_listen(address, gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<tcp::endpoint> endpoints;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    tcp::endpoint endpoint;
    if (info->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), info->ai_addr, info->ai_addrlen);
    endpoint.resize(info->ai_addrlen);
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

Result<os::Fd> bind_and_listen(const Address& address, const tcp::endpoint& endpoint) {
  os::Fd fd = os::not_for_children(
      [&] { return ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); });
  if (!fd) return cannot_listen(address, words(errno));
  const int on = 1;
  const int off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (endpoint.address().is_v6()) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      return cannot_listen(address,
                           "the address is already in use; another process listens there, choose another port");
    }
    return cannot_listen(address, words(error));
  }
  return fd;
}

}  // namespace

bool private_only(const Settings& settings) { return settings.token.empty() && !settings.allow_public; }

Address address_of(const tcp::endpoint& endpoint) {
  asio::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return Address{address.to_string(), endpoint.port()};
}

Result<tcp::acceptor> open_acceptor(asio::io_context& loop, const Address& address, const Settings& settings) {
  KVF_TRY(endpoints, endpoints_to_bind(address));
  Error last = cannot_listen(address, "the name has no address");
  for (tcp::endpoint endpoint : endpoints) {
    const bool wildcard = endpoint.address().is_unspecified();
    if (private_only(settings) && !wildcard && !is_private_or_loopback(address_of(endpoint).host)) {
      return Error{Code::unauthorized,
                   "will not listen on the public address " + address_of(endpoint).text() +
                       " without a token: set KVFERRY_TOKEN on every process, listen on a private address, or set "
                       "KVFERRY_ALLOW_PUBLIC=1",
                   {},
                   address.text()};
    }
    Result<os::Fd> fd = bind_and_listen(address, endpoint);
    if (!fd && wildcard && endpoint.address().is_v6()) {
      // A kernel without IPv6: every address that there is, is IPv4.
      const tcp::endpoint any_v4(tcp::v4(), endpoint.port());
      if (Result<os::Fd> v4 = bind_and_listen(address, any_v4)) {
        fd = std::move(v4);
        endpoint = any_v4;
      }
    }
    if (!fd) {
      last = fd.error();
      continue;
    }
    tcp::acceptor acceptor(loop);
    boost::system::error_code failed;
    acceptor.assign(endpoint.protocol(), fd->get(), failed);
    if (failed) return cannot_listen(address, failed.message());
    fd->release();
    return acceptor;
  }
  return last;
}

Result<tcp::socket> open_socket(asio::io_context& loop, const tcp::endpoint& endpoint) {
  os::Fd fd = os::not_for_children(
      [&] { return ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); });
  if (!fd) return Error{Code::unreachable, words(errno)};
  tcp::socket socket(loop);
  boost::system::error_code failed;
  socket.assign(endpoint.protocol(), fd.get(), failed);
  if (failed) return Error{Code::unreachable, failed.message()};
  fd.release();
  return socket;
}

void tune(int fd) {
  const int on = 1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

std::string wrong_door_answer(const std::string& text) {
  const std::string body = text + "\n";
  return "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

void close_gently(int fd) {
  std::array<char, 16'384> scratch;
  ::shutdown(fd, SHUT_WR);
  for (int reads = 0; reads < 64; ++reads) {
    if (::recv(fd, scratch.data(), scratch.size(), MSG_DONTWAIT) <= 0) break;
  }
}

}  // namespace kvferry::net
