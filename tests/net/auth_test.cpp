#include "net/auth.h"

#include <gtest/gtest.h>

#include <set>

#include "net/http_auth.h"

namespace kvferry::net {
namespace {

TEST(Auth, a_proof_is_the_hmac_of_the_length_prefixed_parts) {
  // printf '\1\0\0\0\0\0\0\0p\1\0\0\0\0\0\0\0a' | openssl dgst -sha256 -hmac key
  EXPECT_EQ(prove("key", "p", {"a"}), "f96e29f549ca815e8e0954fa81537704bdd89ca3c1ab309ff498d2721fcfced0");
}

TEST(Auth, no_two_lists_of_parts_give_one_proof) {
  const std::set<std::string> proofs{prove("t", "p", {"ab", "c"}), prove("t", "p", {"a", "bc"}),
                                     prove("t", "p", {"abc"}),     prove("t", "p", {"abc", ""}),
                                     prove("t", "pa", {"bc"}),     prove("u", "p", {"abc"})};
  EXPECT_EQ(proofs.size(), 6u);
}

TEST(Auth, only_the_whole_equal_proof_matches) {
  const std::string proof = prove("t", "p", {"x"});
  EXPECT_EQ(proof.size(), 64u);
  EXPECT_TRUE(proof_matches(proof, proof));
  EXPECT_FALSE(proof_matches(proof, proof.substr(1)));
  EXPECT_FALSE(proof_matches(proof, ""));
  EXPECT_FALSE(proof_matches("", ""));
  EXPECT_FALSE(proof_matches(proof, prove("t", "p", {"y"})));
}

TEST(Auth, random_bits_do_not_repeat) {
  std::set<Bits128> seen;
  for (int i = 0; i < 1'000; ++i) seen.insert(random_bits());
  EXPECT_EQ(seen.size(), 1'000u);
}

TEST(Challenges, one_works_once_and_for_its_client_only) {
  Challenges challenges;
  const Instant start{};
  const Bits128 nonce{1, 2};
  challenges.add(nonce, "client", start);
  EXPECT_FALSE(challenges.take(to_hex(Bits128{3, 4}), "client", start));
  EXPECT_TRUE(challenges.take(to_hex(nonce), "client", start));
  EXPECT_FALSE(challenges.take(to_hex(nonce), "client", start));
  challenges.add(nonce, "client", start);
  EXPECT_FALSE(challenges.take(to_hex(nonce), "another", start));
  EXPECT_FALSE(challenges.take(to_hex(nonce), "client", start)) << "a wrong try uses it up";
}

TEST(Challenges, they_run_out_and_are_bounded) {
  Challenges challenges(2);
  const Instant start{};
  challenges.add({0, 1}, "c", start);
  EXPECT_FALSE(challenges.take(to_hex(Bits128{0, 1}), "c", start + std::chrono::minutes(1)));
  EXPECT_EQ(challenges.size(), 0u);
  for (std::uint64_t i = 1; i <= 3; ++i) challenges.add({0, i}, "c", start);
  EXPECT_EQ(challenges.size(), 2u);
  EXPECT_FALSE(challenges.take(to_hex(Bits128{0, 1}), "c", start)) << "the oldest went";
  EXPECT_TRUE(challenges.take(to_hex(Bits128{0, 3}), "c", start));
}

}  // namespace
}  // namespace kvferry::net
