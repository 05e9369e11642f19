#include "net/http_auth.h"

#include <algorithm>

#include "net/auth.h"

namespace kvferry::net {
namespace {
constexpr std::chrono::seconds challenge_ttl{30};
}  // namespace

std::string prove_request(std::string_view token, std::string_view method, std::string_view target,
                          std::string_view body, std::string_view client_nonce, std::string_view server_nonce) {
  return prove(token, "http-request", {method, target, body, client_nonce, server_nonce});
}

std::string prove_answer(std::string_view token, unsigned status, std::string_view body, std::string_view client_nonce,
                         std::string_view server_nonce) {
  return prove(token, "http-answer", {std::to_string(status), body, client_nonce, server_nonce});
}

void Challenges::add(const Bits128& server_nonce, std::string_view client_nonce, Instant now) {
  expire(now);
  if (given_.size() >= challenges_max_) given_.pop_front();
  given_.push_back({to_hex(server_nonce), std::string(client_nonce), now + challenge_ttl});
}

bool Challenges::take(std::string_view server_nonce, std::string_view client_nonce, Instant now) {
  expire(now);
  const auto found =
      std::ranges::find_if(given_, [&](const Given& given) { return given.server_nonce == server_nonce; });
  if (found == given_.end()) return false;
  const bool same_client = found->client_nonce == client_nonce;
  given_.erase(found);
  return same_client;
}

void Challenges::expire(Instant now) {
  while (!given_.empty() && given_.front().expires <= now) given_.pop_front();
}

}  // namespace kvferry::net
