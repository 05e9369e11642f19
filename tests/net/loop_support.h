// Loops in the test's own thread: nothing here sleeps, everything waits for a condition with a deadline.
#pragma once

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "base/address.h"
#include "net/link.h"

namespace kvferry::net_test {

inline constexpr std::chrono::seconds patience{20};

// A name that every resolver refuses without asking anybody: a label may have 63 characters.
inline const std::string unknown_host = "no-such-host-" + std::string(60, 'x') + ".invalid";

// Turns the loop until the condition holds; false when it does not within the deadline.
inline bool run_until(boost::asio::io_context& loop, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (loop.stopped()) loop.restart();
    loop.run_one_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Two connected sockets over loopback.
inline std::pair<boost::asio::ip::tcp::socket, boost::asio::ip::tcp::socket> socket_pair(
    boost::asio::io_context& loop) {
  using boost::asio::ip::tcp;
  tcp::acceptor acceptor(loop, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  tcp::socket first(loop);
  first.connect(acceptor.local_endpoint());
  tcp::socket second = acceptor.accept();
  return {std::move(first), std::move(second)};
}

inline boost::asio::ip::tcp::endpoint endpoint_of(const Address& address) {
  return {boost::asio::ip::make_address(address.host), address.port};
}

// A client without any protocol: writes bytes, reads what comes until the other side closes.
class RawClient {
 public:
  RawClient(boost::asio::io_context& loop, const Address& server) : loop_(loop), socket_(loop) {
    socket_.connect(endpoint_of(server));
    socket_.non_blocking(true);
  }
  explicit RawClient(boost::asio::io_context& loop, boost::asio::ip::tcp::socket socket)
      : loop_(loop), socket_(std::move(socket)) {
    socket_.non_blocking(true);
  }

  // Writes what the other side takes; turns the loop where it is full.
  void write(const std::string& bytes) {
    std::size_t sent = 0;
    run_until(loop_, [&] {
      while (sent < bytes.size()) {
        const auto taken = ::send(socket_.native_handle(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (taken < 0) return errno != EAGAIN;
        sent += static_cast<std::size_t>(taken);
      }
      return true;
    });
  }
  void shut_down_writing() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }
  void close() { socket_.close(); }

  // False once the other side has closed; what came is in `text`.
  bool read() {
    char chunk[4096];
    while (true) {
      const auto got = ::recv(socket_.native_handle(), chunk, sizeof chunk, MSG_DONTWAIT);
      if (got > 0) {
        text.append(chunk, static_cast<std::size_t>(got));
        continue;
      }
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
  }
  bool wait_closed() {
    return run_until(loop_, [&] { return !read(); });
  }
  // Until the text holds `part`.
  bool wait_for(const std::string& part) {
    return run_until(loop_, [&] {
      read();
      return text.find(part) != std::string::npos;
    });
  }

  std::string text;

 private:
  boost::asio::io_context& loop_;
  boost::asio::ip::tcp::socket socket_;
};

}  // namespace kvferry::net_test
