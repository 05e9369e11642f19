// Requests to a bootstrap server as both parts of the client need them: errors from statuses, and the shared token.
#pragma once

#include "net/http_client.h"

namespace kvferry::net {

// The reply's body where it says 200, else the error that its status stands for.
Result<std::string> body_of(const Address& server, const Result<HttpReply>& reply);

// A writing request. With a token the server's challenge is answered, and nothing but a proven reply is believed:
// `unauthorized` for a server that cannot prove the token, whatever else it says (but 503, which takes nothing).
void prove_and_request(boost::asio::io_context& loop, const Address& server, const Settings& settings, HttpCall call,
                       std::function<void(Result<std::string>)> done);

}  // namespace kvferry::net
