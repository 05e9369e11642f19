// Looks names up without holding up the loop, nor each other: a name whose server is dead costs a thread, nothing else.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <vector>

#include "base/address.h"
#include "kvferry/result.h"

namespace kvferry::net {

using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

// `done` is called once on the loop, never from inside this call; not after the loop is gone. An address needs no
// look-up. `unreachable` with the host and the resolver's words; `try_later` where too many look-ups are under way.
void resolve(boost::asio::io_context& loop, const Address& address, std::function<void(Result<Endpoints>)> done);

}  // namespace kvferry::net
