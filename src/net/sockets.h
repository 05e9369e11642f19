// Sockets as this library wants them: close-on-exec from their first moment, non-blocking, bound only where it is safe.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "base/address.h"
#include "kvferry/result.h"
#include "kvferry/settings.h"
#include "os/fd.h"

namespace kvferry::net {

// A listening socket. A name is looked up before it is bound, which may block: listeners are opened before a loop runs.
// `unreachable` where it cannot be bound, `unauthorized` for a public address without a token and allow_public.
Result<boost::asio::ip::tcp::acceptor> open_acceptor(boost::asio::io_context& loop, const Address& address,
                                                     const Settings& settings);
// A socket of the endpoint's family, not connected yet.
Result<boost::asio::ip::tcp::socket> open_socket(boost::asio::io_context& loop,
                                                 const boost::asio::ip::tcp::endpoint& endpoint);
// Small messages leave at once; a peer whose host has vanished is noticed even where nobody pings; no child inherits
// it.
void tune(int fd);

// An IPv4 address that came in over an IPv6 socket is shown as what it is.
Address address_of(const boost::asio::ip::tcp::endpoint& endpoint);
// True where a peer must be on a private network because nothing proves who it is.
bool private_only(const Settings& settings);

// A whole HTTP answer that tells somebody who knocked at the wrong door.
std::string wrong_door_answer(const std::string& text);
// Reads away what has arrived, so that closing does not reset the connection under an answer that was just written.
void close_gently(int fd);

}  // namespace kvferry::net
