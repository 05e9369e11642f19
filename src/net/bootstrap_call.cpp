#include "net/bootstrap_call.h"

#include <memory>

#include "net/auth.h"
#include "net/http_auth.h"
#include "net/json_fields.h"
#include "net/registration_json.h"

namespace kvferry::net {
namespace {

Error about(const Address& server, Code code, const std::string& what) {
  return Error{code, "bootstrap server " + server.text() + " " + what, {}, server.text()};
}

Code code_of(const HttpReply& reply) {
  switch (reply.status) {
    case 400:
      return Code::invalid_argument;
    case 401:
      return Code::unauthorized;
    case 404:
      return Code::unreachable;
    case 503:
      return Code::try_later;
    case 409: {
      const auto fields = JsonFields::parse(reply.body, Code::protocol);
      const auto code = fields ? fields->text("code", 64) : Result<std::string>(std::string());
      return code && *code == code_name(Code::mismatch) ? Code::mismatch : Code::already_exists;
    }
    default:
      return Code::protocol;
  }
}

// What a request with a token carries through its two rounds.
struct ProvenCall {
  boost::asio::io_context& loop;
  Address server;
  Settings settings;
  HttpCall call;
  std::string nonce;
  std::string challenge;
  std::function<void(Result<std::string>)> done;
};

void check_proof(const ProvenCall& round, const Result<HttpReply>& reply) {
  if (!reply) return round.done(reply.error());
  const std::string expected =
      prove_answer(round.settings.token, reply->status, reply->body, round.nonce, round.challenge);
  const bool proven = proof_matches(expected, reply->proof);
  if (proven || reply->status == 401 || reply->status == 503) return round.done(body_of(round.server, reply));
  round.done(about(round.server, Code::unauthorized,
                   "does not prove the shared token: it has another one or none; nothing it says is believed"));
}

void answer_challenge(std::shared_ptr<ProvenCall> round, const Result<HttpReply>& reply) {
  if (!reply || reply->status == 503) return round->done(body_of(round->server, reply));
  if (reply->status != 401 || !parse_hex(reply->challenge)) {
    return round->done(about(round->server, Code::unauthorized,
                             "did not ask for the shared token (status " + std::to_string(reply->status) +
                                 "): set KVFERRY_TOKEN there too, or unset it here"));
  }
  round->challenge = reply->challenge;
  HttpCall call = round->call;
  call.headers.emplace_back(header_challenge, round->challenge);
  call.headers.emplace_back(header_proof, prove_request(round->settings.token, call.method, call.target, call.body,
                                                        round->nonce, round->challenge));
  http_request(round->loop, round->server, std::move(call), round->settings.connect_timeout,
               [round](Result<HttpReply> last) { check_proof(*round, last); });
}

}  // namespace

Result<std::string> body_of(const Address& server, const Result<HttpReply>& reply) {
  if (!reply) return reply.error();
  if (reply->status == 200) return reply->body;
  return about(server, code_of(*reply),
               "answers " + std::to_string(reply->status) + ": " + parse_error_text(reply->body));
}

void prove_and_request(boost::asio::io_context& loop, const Address& server, const Settings& settings, HttpCall call,
                       std::function<void(Result<std::string>)> done) {
  if (settings.token.empty()) {
    http_request(loop, server, std::move(call), settings.connect_timeout,
                 [server, done = std::move(done)](Result<HttpReply> reply) { done(body_of(server, reply)); });
    return;
  }
  // Shared by the two requests, one after the other.
  auto round = std::make_shared<ProvenCall>(
      ProvenCall{loop, server, settings, std::move(call), to_hex(random_bits()), {}, std::move(done)});
  round->call.headers.emplace_back(header_nonce, round->nonce);
  http_request(loop, server, round->call, settings.connect_timeout,
               [round](Result<HttpReply> reply) { answer_challenge(round, reply); });
}

}  // namespace kvferry::net
