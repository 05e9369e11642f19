#include "net/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "base/assert.h"

namespace kvferry::net {
namespace {

void append_part(std::string& input, std::string_view part) {
  std::uint64_t length = part.size();
  for (int i = 0; i < 8; ++i, length >>= 8) input.push_back(static_cast<char>(length & 0xff));
  input.append(part);
}

}  // namespace

std::string prove(std::string_view token, std::string_view purpose, std::initializer_list<std::string_view> parts) {
  std::string input;
  append_part(input, purpose);
  for (const std::string_view part : parts) append_part(input, part);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(input.data()), input.size(), digest.data(), &length);
  KVF_ASSERT(made != nullptr && length == 32);
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * length);
  for (unsigned i = 0; i < length; ++i) {
    text.push_back(digits[digest[i] >> 4]);
    text.push_back(digits[digest[i] & 15]);
  }
  return text;
}

bool proof_matches(std::string_view expected, std::string_view given) {
  // An empty expectation would let anybody in: it never stands for a proof.
  if (expected.empty() || expected.size() != given.size()) return false;
  return CRYPTO_memcmp(expected.data(), given.data(), expected.size()) == 0;
}

Bits128 random_bits() {
  Bits128 bits;
  std::array<std::uint64_t, 2> words{};
  auto* bytes = reinterpret_cast<unsigned char*>(words.data());
  std::size_t have = 0;
  while (have < sizeof words) {
    const ssize_t got = getrandom(bytes + have, sizeof words - have, 0);
    // Without randomness every id and nonce would be a guess: better to end than to go on.
    KVF_ASSERT(got > 0 || errno == EINTR);
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  bits.high = words[0];
  bits.low = words[1];
  return bits;
}

}  // namespace kvferry::net
