#include "net/http_routes.h"

#include "net/auth.h"
#include "net/registration_json.h"
#include "net/sglang_json.h"
#include "os/log.h"

namespace kvferry::net {
namespace {

unsigned status_of(Code code) {
  switch (code) {
    case Code::invalid_argument:
    case Code::out_of_range:
      return 400;
    case Code::unauthorized:
      return 401;
    case Code::unreachable:
      return 404;
    case Code::already_exists:
    case Code::mismatch:
      return 409;
    case Code::try_later:
      return 503;
    default:
      return 500;
  }
}

HttpAnswer text_answer(std::string text) { return {.status = 200, .body = std::move(text), .json = false}; }
HttpAnswer json_answer(std::string text) { return {.status = 200, .body = std::move(text)}; }

HttpAnswer wrong_method(const std::string& method, const std::string& allowed) {
  HttpAnswer answer =
      answer_of({Code::invalid_argument, "method " + method + " is not allowed here; allowed: " + allowed});
  answer.status = 405;
  answer.headers.emplace_back("Allow", allowed);
  return answer;
}

}  // namespace

HttpAnswer answer_of(const Error& error) { return {.status = status_of(error.code), .body = write_error(error)}; }

HttpAnswer HttpRoutes::answer(const HttpRequest& request, Instant now) {
  const std::string_view target = request.target;
  const auto mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  const std::string_view query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  HttpAnswer answer;
  if (path == "/health") {
    answer = request.method == "GET" ? text_answer("OK") : wrong_method(request.method, "GET");
  } else if (path == "/route") {
    answer = route(request, query, now);
  } else if (path == "/register_dp_rank") {
    answer = request.method == "POST" ? proven(request, now, [&] { return put_dp_rank(request.body, now); })
                                      : wrong_method(request.method, "POST");
  } else if (path == "/query_dp_ranks") {
    answer = request.method == "POST" ? find_dp_ranks(request.body, now) : wrong_method(request.method, "POST");
  } else {
    answer = answer_of({Code::unreachable,
                        "there is nothing at this path; the paths are /route, /health, /register_dp_rank and "
                        "/query_dp_ranks"});
  }
  if (!table_.instance().empty()) answer.headers.emplace_back(header_instance, table_.instance());
  return answer;
}

HttpAnswer HttpRoutes::route(const HttpRequest& request, std::string_view query, Instant now) {
  if (request.method == "GET") return get(query, now);
  const bool is_put = request.method == "PUT";
  if (!is_put && request.method != "DELETE") return wrong_method(request.method, "GET, PUT, DELETE");
  return proven(request, now, [&] { return is_put ? put(request, now) : remove(query); });
}

HttpAnswer HttpRoutes::proven(const HttpRequest& request, Instant now, const std::function<HttpAnswer()>& write) {
  if (token_.empty()) return write();
  if (!parse_hex(request.nonce)) {
    return answer_of({Code::unauthorized, "this server asks for the shared token: set KVFERRY_TOKEN, or send " +
                                              std::string(header_nonce) +
                                              " with 32 hexadecimal digits and answer the challenge"});
  }
  if (request.challenge.empty()) return challenge(request, "prove the shared token against this challenge", now);
  if (!challenges_.take(request.challenge, request.nonce, now)) {
    return challenge(request, "the challenge is unknown, used or too old; here is a new one", now);
  }
  const std::string expected =
      prove_request(token_, request.method, request.target, request.body, request.nonce, request.challenge);
  if (!proof_matches(expected, request.proof)) {
    return answer_of({Code::unauthorized, "the proof is wrong: KVFERRY_TOKEN differs from the server's"});
  }
  HttpAnswer answer = write();
  answer.headers.emplace_back(header_proof,
                              prove_answer(token_, answer.status, answer.body, request.nonce, request.challenge));
  return answer;
}

HttpAnswer HttpRoutes::challenge(const HttpRequest& request, const std::string& why, Instant now) {
  const Bits128 nonce = random_bits();
  challenges_.add(nonce, request.nonce, now);
  HttpAnswer answer = answer_of({Code::unauthorized, why});
  answer.headers.emplace_back(header_challenge, to_hex(nonce));
  answer.headers.emplace_back("WWW-Authenticate", "Kvferry-HMAC-SHA256");
  return answer;
}

HttpAnswer HttpRoutes::put(const HttpRequest& request, Instant now) {
  const auto registration = parse_registration(request.body);
  if (!registration) {
    os::log().warn("refused a registration: {}", registration.error().text);
    return answer_of(registration.error());
  }
  const auto taken = table_.put(*registration, random_bits(), now);
  if (!taken) {
    os::log().warn("refused the registration of {}: {}", registration->address.text(), taken.error().text);
    return answer_of(taken.error());
  }
  if (!registration->lease || *registration->lease != taken->lease) {
    os::log().info("registered prefill rank dp {} tp {} pp {} of instance \"{}\" at {}, generation {}",
                   registration->place.dp, registration->place.tp, registration->place.pp, registration->instance,
                   registration->address.text(), taken->generation);
  }
  // An engine that knows no leases expects these two letters.
  return registration->leased ? json_answer(write_registration_answer(*taken)) : text_answer("OK");
}

HttpAnswer HttpRoutes::get(std::string_view query, Instant now) {
  const auto asked = parse_route_query(query);
  if (!asked) return answer_of(asked.error());
  if (!asked->place) {
    const auto sizes = table_.sizes(now);
    if (!sizes) return answer_of(sizes.error());
    return json_answer(asked->sglang ? write_sglang_sizes(*sizes) : write_sizes(*sizes));
  }
  const auto route = table_.route(*asked->place, now);
  if (!route) return answer_of(route.error());
  return json_answer(asked->sglang ? write_sglang_route(*route) : write_route(*route));
}

HttpAnswer HttpRoutes::remove(std::string_view query) {
  const auto lease = parse_lease_query(query);
  if (!lease) return answer_of(lease.error());
  table_.remove(*lease);
  return text_answer("OK");
}

HttpAnswer HttpRoutes::put_dp_rank(const std::string& body, Instant now) {
  const auto asked = parse_dp_rank(body);
  if (!asked) return answer_of(asked.error());
  dp_ranks_.put(asked->room, asked->dp, now);
  return text_answer("OK");
}

HttpAnswer HttpRoutes::find_dp_ranks(const std::string& body, Instant now) {
  const auto rooms = parse_rooms(body);
  if (!rooms) return answer_of(rooms.error());
  boost::json::object found;
  for (const std::uint64_t room : *rooms) {
    if (const auto dp = dp_ranks_.find(room, now)) found[std::to_string(room)] = *dp;
  }
  return json_answer(boost::json::serialize(found));
}

}  // namespace kvferry::net
