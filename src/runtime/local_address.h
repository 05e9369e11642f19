// Where this machine is reached: the address that routes to the peer, never a guess from a host name.
#pragma once

#include <optional>
#include <string>

#include "base/address.h"
#include "kvferry/settings.h"

namespace kvferry::runtime {

// The host to listen on and to announce: settings.host where it is set, else the source address of the route to the
// bootstrap server, else loopback. `unreachable` where the bootstrap server's name or route is not found.
Result<std::string> local_host(const Settings& settings, const std::optional<Address>& bootstrap);

// What peers are told where `listen_host` is listened on: itself, or for a wildcard the address that routes to the
// bootstrap server.
Result<std::string> announced_host(const std::string& listen_host, const std::optional<Address>& bootstrap);

}  // namespace kvferry::runtime
