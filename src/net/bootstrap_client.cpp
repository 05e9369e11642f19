#include "net/bootstrap_client.h"

#include "base/try.h"
#include "net/bootstrap_call.h"
#include "net/registration_json.h"

namespace kvferry::net {
namespace {

template <class Value>
Result<Value> parse_reply(const Address& server, const Result<HttpReply>& reply,
                          Result<Value> (*parse)(std::string_view)) {
  KVF_TRY(body, body_of(server, reply));
  Result<Value> value = parse(body);
  if (value) return value;
  return Error{value.error().code,
               "bootstrap server " + server.text() + " answered what cannot be: " + value.error().text,
               {},
               server.text()};
}

}  // namespace

void fetch_sizes(boost::asio::io_context& loop, const Address& server, const Settings& settings,
                 std::function<void(Result<InstanceSizes>)> done) {
  http_request(
      loop, server, {.method = "GET", .target = "/route?engine_rank=-1&target_dp_group=-1"}, settings.connect_timeout,
      [server, done = std::move(done)](Result<HttpReply> reply) { done(parse_reply(server, reply, &parse_sizes)); });
}

void fetch_route(boost::asio::io_context& loop, const Address& server, const Settings& settings, const Place& place,
                 std::function<void(Result<Route>)> done) {
  std::string target =
      "/route?engine_rank=" + std::to_string(place.tp) + "&target_dp_group=" + std::to_string(place.dp);
  if (place.pp != 0) target += "&pp_rank=" + std::to_string(place.pp);
  if (place.cp != 0) target += "&cp_rank=" + std::to_string(place.cp);
  http_request(
      loop, server, {.method = "GET", .target = std::move(target)}, settings.connect_timeout,
      [server, done = std::move(done)](Result<HttpReply> reply) { done(parse_reply(server, reply, &parse_route)); });
}

}  // namespace kvferry::net
