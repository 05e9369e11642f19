#include "base/address.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <string>
#include <vector>

namespace kvferry {
namespace {

TEST(address, what_is_printed_is_read_back) {
  EXPECT_TRUE(rc::check("parse(text()) is the address", [] {
    const auto letter = rc::gen::elementOf(std::string("abcXYZ019-_."));
    const auto name = rc::gen::nonEmpty(rc::gen::container<std::string>(letter));
    const auto v4 = rc::gen::map(rc::gen::arbitrary<std::array<std::uint8_t, 4>>(), [](const auto& b) {
      return std::to_string(b[0]) + "." + std::to_string(b[1]) + "." + std::to_string(b[2]) + "." +
             std::to_string(b[3]);
    });
    const auto v6 = rc::gen::map(rc::gen::arbitrary<std::array<std::uint16_t, 4>>(), [](const auto& w) {
      std::array<char, 40> text{};
      std::snprintf(text.data(), text.size(), "fd00:%x:%x::%x:%x", w[0], w[1], w[2], w[3]);
      return std::string(text.data());
    });
    const auto scoped = rc::gen::map(rc::gen::inRange(0, 100), [](int n) { return "fe80::1%eth" + std::to_string(n); });
    const std::string host = *rc::gen::oneOf(name, v4, v6, scoped);
    RC_PRE(host.size() <= 253u);
    const Address address{host, *rc::gen::inRange<std::uint16_t>(1, 65'535)};
    const auto read = Address::parse(address.text());
    RC_ASSERT(read.has_value());
    RC_ASSERT(read.value() == address);
  }));
}

TEST(address, any_bytes_give_an_answer_and_never_a_crash) {
  EXPECT_TRUE(rc::check("parse of garbage", [] {
    const auto letter = rc::gen::elementOf(std::string("[]:%.0123456789abcdefxyz -\0\xff"));
    const auto text = *rc::gen::container<std::string>(letter);
    const auto read = Address::parse(text, *rc::gen::arbitrary<bool>());
    if (read) {
      RC_ASSERT(Address::parse(read->text(), true).value() == read.value());
    } else {
      RC_ASSERT(read.error().code == Code::invalid_argument);
    }
  }));
}

TEST(address, ipv6_keeps_its_colons_and_its_scope) {
  const auto address = Address::parse("[fe80::1%eth0]:8998");
  ASSERT_TRUE(address);
  EXPECT_EQ(address->host, "fe80::1%eth0");
  EXPECT_EQ(address->port, 8998);
  EXPECT_EQ(address->text(), "[fe80::1%eth0]:8998");
}

TEST(address, one_port_is_not_the_beginning_of_another) {
  EXPECT_NE(Address::parse("10.0.0.1:80").value(), Address::parse("10.0.0.1:8000").value());
}

TEST(address, bad_text_is_refused_with_itself_and_the_reason) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "port is missing"},
      {"10.0.0.1", "port is missing"},
      {"[::1]", "port is missing"},
      {"[::1]8998", "port is missing"},
      {"[::1:8998", "bracket is not closed"},
      {"[name]:80", "no IPv6 address"},
      {"[]:80", "no IPv6 address"},
      {"::1:8998", "needs brackets"},
      {"fd00::1:80", "needs brackets"},
      {":80", "not an address or a name"},
      {"na me:80", "not an address or a name"},
      {"http//x:80", "not an address or a name"},
      {"host:", "port is not a number"},
      {"host:0", "port is not a number"},
      {"host:65536", "port is not a number"},
      {"host:80x", "port is not a number"},
      {"host:-1", "port is not a number"},
      {"host:99999999999999999999", "port is not a number"},
  };
  for (const auto& [text, why] : cases) {
    const auto address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, Code::invalid_argument) << text;
    EXPECT_NE(address.error().text.find('"' + text + '"'), std::string::npos) << address.error().text;
    EXPECT_NE(address.error().text.find(why), std::string::npos) << address.error().text;
  }
}

TEST(address, port_zero_is_taken_only_where_the_kernel_may_pick) {
  EXPECT_FALSE(Address::parse("0.0.0.0:0"));
  EXPECT_TRUE(Address::parse("0.0.0.0:0", true));
}

TEST(address, private_and_loopback_addresses_are_told_from_public_ones) {
  for (const char* ip : {"127.0.0.1", "127.255.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.9.9",
                         "169.254.1.1", "100.64.0.1", "100.127.255.255", "::1", "fd12::1", "fc00::", "fe80::1",
                         "fe80::1%eth0", "febf::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_private_or_loopback(ip)) << ip;
  }
  for (const char* ip : {"8.8.8.8", "172.15.0.1", "172.32.0.1", "192.169.0.1", "100.63.0.1", "100.128.0.1", "0.0.0.0",
                         "::", "::2", "2001:db8::1", "fec0::1", "::ffff:8.8.8.8", "name", "", "1.2.3", "10.0.0.1 "}) {
    EXPECT_FALSE(is_private_or_loopback(ip)) << ip;
  }
}

TEST(address, names_are_no_literals) {
  EXPECT_TRUE(is_ip_literal("10.0.0.1"));
  EXPECT_TRUE(is_ip_literal("fe80::1%eth0"));
  EXPECT_FALSE(is_ip_literal("localhost"));
  EXPECT_FALSE(is_ip_literal("10.0.0.1:80"));
  EXPECT_FALSE(is_ip_literal("[::1]"));
}

}  // namespace
}  // namespace kvferry
