// Accepts connections for the link listener and the HTTP server: refuses strangers where nothing proves who they are,
// and waits where the process is out of descriptors instead of spinning.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>

#include "base/address.h"
#include "kvferry/result.h"
#include "kvferry/settings.h"

namespace kvferry::net {

// Shared by its own handlers that are under way; close() ends them.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using Accept = std::function<void(boost::asio::ip::tcp::socket)>;
  static Result<std::shared_ptr<Acceptor>> open(boost::asio::io_context& loop, const Address& address,
                                                const Settings& settings, Accept accept);
  Acceptor(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor acceptor, bool private_peers_only,
           Accept accept);
  void close();
  Address address() const;

 private:
  void wait();
  void accept_ready();
  // False where accepting has to pause.
  bool accept_one();
  void pause(int error);
  bool refused(const boost::asio::ip::tcp::socket& socket);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer timer_;
  const bool private_peers_only_;
  Accept accept_;
  bool more_ = false;
  std::chrono::steady_clock::time_point refusal_logged_{};
  std::chrono::steady_clock::time_point exhaustion_logged_{};
};

}  // namespace kvferry::net
