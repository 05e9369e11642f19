// The shared token on writing requests, proven both ways: the server's nonce makes a request good once, the client's
// nonce makes the answer good once. docs/reference/http.md has the exchange.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"

namespace kvferry::net {

inline constexpr const char* header_nonce = "X-Kvferry-Nonce";          // the client's, 32 hexadecimal digits
inline constexpr const char* header_challenge = "X-Kvferry-Challenge";  // the server's, 32 hexadecimal digits
inline constexpr const char* header_proof = "X-Kvferry-Proof";          // 64 hexadecimal digits
inline constexpr const char* header_instance = "X-Kvferry-Instance";

std::string prove_request(std::string_view token, std::string_view method, std::string_view target,
                          std::string_view body, std::string_view client_nonce, std::string_view server_nonce);
std::string prove_answer(std::string_view token, unsigned status, std::string_view body, std::string_view client_nonce,
                         std::string_view server_nonce);

// The nonces that the server has handed out: each works once, for the client nonce it was given for, for a while.
class Challenges {
 public:
  explicit Challenges(std::size_t challenges_max = 4'096) : challenges_max_(challenges_max) {}
  // Past the bound the oldest goes; its client starts again.
  void add(const Bits128& server_nonce, std::string_view client_nonce, Instant now);
  // True once.
  bool take(std::string_view server_nonce, std::string_view client_nonce, Instant now);
  std::size_t size() const { return given_.size(); }

 private:
  struct Given {
    std::string server_nonce;
    std::string client_nonce;
    Instant expires;
  };
  void expire(Instant now);
  std::size_t challenges_max_;
  std::deque<Given> given_;  // in the order of their expiry
};

}  // namespace kvferry::net
