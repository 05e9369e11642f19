#include "kvferry/settings.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/settings_table.h"

namespace kvferry {
namespace {

using std::chrono::milliseconds;
using Environment = std::map<std::string, std::string, std::less<>>;

Result<Settings> read(const Environment& environment) {
  return Settings::from_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
}

bool says(const Error& error, const std::string& words) { return error.text.find(words) != std::string::npos; }

TEST(settings, defaults_stand_where_nothing_is_set) {
  const auto settings = read({});
  ASSERT_TRUE(settings);
  EXPECT_TRUE(settings->check());
  EXPECT_EQ(settings->bootstrap_timeout, milliseconds(300'000));
  EXPECT_EQ(settings->data_threads, 2u);
  EXPECT_EQ(settings->transport, Transport::automatic);
}

TEST(settings, every_variable_is_read_into_its_field) {
  const auto settings = read({{"KVFERRY_HOST", "[fd00::1]"},
                              {"KVFERRY_TOKEN", "secret"},
                              {"KVFERRY_ALLOW_PUBLIC", "yes"},
                              {"KVFERRY_TRANSPORT", "tcp"},
                              {"KVFERRY_BOOTSTRAP_TIMEOUT", "1"},
                              {"KVFERRY_SEND_TIMEOUT", "2"},
                              {"KVFERRY_PROGRESS_TIMEOUT", "3s"},
                              {"KVFERRY_WAITING_TIMEOUT", "4000ms"},
                              {"KVFERRY_PING_INTERVAL", "0.5"},
                              {"KVFERRY_VERIFY", "CRC32C"},
                              {"KVFERRY_PING_MISSES", "6"},
                              {"KVFERRY_CONNECT_TIMEOUT", "7"},
                              {"KVFERRY_LEASE_TTL", "8"},
                              {"KVFERRY_DATA_THREADS", "9"},
                              {"KVFERRY_INLINE_BYTES_MAX", "0"},
                              {"KVFERRY_ROOMS_MAX", "11"},
                              {"KVFERRY_ORPHAN_GRANTS_MAX", "12"},
                              {"KVFERRY_QUEUE_SIZE", "13"}});
  ASSERT_TRUE(settings) << settings.error().text;
  EXPECT_EQ(settings->host, "fd00::1");
  EXPECT_EQ(settings->token, "secret");
  EXPECT_TRUE(settings->allow_public);
  EXPECT_EQ(settings->transport, Transport::tcp);
  EXPECT_EQ(settings->verify, Verify::crc32c);
  EXPECT_EQ(settings->bootstrap_timeout, milliseconds(1'000));
  EXPECT_EQ(settings->send_timeout, milliseconds(2'000));
  EXPECT_EQ(settings->progress_timeout, milliseconds(3'000));
  EXPECT_EQ(settings->waiting_timeout, milliseconds(4'000));
  EXPECT_EQ(settings->ping_interval, milliseconds(500));
  EXPECT_EQ(settings->ping_misses_max, 6u);
  EXPECT_EQ(settings->connect_timeout, milliseconds(7'000));
  EXPECT_EQ(settings->lease_ttl, milliseconds(8'000));
  EXPECT_EQ(settings->data_threads, 9u);
  EXPECT_EQ(settings->inline_bytes_max, 0u);
  EXPECT_EQ(settings->rooms_max, 11u);
  EXPECT_EQ(settings->orphan_grants_max, 12u);
  EXPECT_EQ(settings->chunks_queued_max, 13u);
}

TEST(settings, the_names_of_sglang_are_read_where_ours_are_unset) {
  const Environment sglang{
      {"SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", "30"},    {"SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", "5.0"},
      {"SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", "2"}, {"SGLANG_DISAGGREGATION_THREAD_POOL_SIZE", "12"},
      {"SGLANG_DISAGGREGATION_QUEUE_SIZE", "4096"},         {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT", "77"}};
  auto settings = read(sglang);
  ASSERT_TRUE(settings) << settings.error().text;
  EXPECT_EQ(settings->bootstrap_timeout, milliseconds(30'000));
  EXPECT_EQ(settings->ping_interval, milliseconds(5'000));
  EXPECT_EQ(settings->ping_misses_max, 2u);
  EXPECT_EQ(settings->data_threads, 12u);
  EXPECT_EQ(settings->chunks_queued_max, 4'096u);
  EXPECT_EQ(settings->waiting_timeout, milliseconds(77'000));

  Environment both = sglang;
  both["KVFERRY_BOOTSTRAP_TIMEOUT"] = "40";
  both["KVFERRY_PING_MISSES"] = "";
  settings = read(both);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->bootstrap_timeout, milliseconds(40'000));
  EXPECT_EQ(settings->ping_misses_max, 2u) << "an empty variable is an unset one";
}

TEST(settings, sglangs_sizes_raise_ours_and_never_lower_them) {
  const auto settings =
      read({{"SGLANG_DISAGGREGATION_THREAD_POOL_SIZE", "1"}, {"SGLANG_DISAGGREGATION_QUEUE_SIZE", "4"}});
  ASSERT_TRUE(settings) << settings.error().text;
  EXPECT_EQ(settings->data_threads, 2u);
  EXPECT_EQ(settings->chunks_queued_max, 1'024u);
}

TEST(settings, an_empty_variable_is_unset) {
  const auto settings = read({{"KVFERRY_PING_MISSES", ""}, {"SGLANG_DISAGGREGATION_QUEUE_SIZE", ""}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->ping_misses_max, 3u);
}

TEST(settings, a_bad_value_is_refused_with_name_value_and_what_is_allowed) {
  const std::vector<std::vector<std::string>> cases{
      {"KVFERRY_HOST", "10.0.0.1:80", "without a port"},
      {"KVFERRY_HOST", "a host", "host name"},
      {"KVFERRY_ALLOW_PUBLIC", "maybe", "true"},
      {"KVFERRY_TRANSPORT", "rdma", "auto, tcp or samehost"},
      {"KVFERRY_BOOTSTRAP_TIMEOUT", "soon", "from 1ms to 604800s"},
      {"KVFERRY_BOOTSTRAP_TIMEOUT", "0", "from 1ms to 604800s"},
      {"KVFERRY_SEND_TIMEOUT", "-1", "ms, s, m or h"},
      {"KVFERRY_WAITING_TIMEOUT", "1000h", "from 1ms to 604800s"},
      {"KVFERRY_PING_INTERVAL", "0.0001", "from 1ms"},
      {"KVFERRY_PING_MISSES", "0", "from 1 to 1000"},
      {"KVFERRY_PING_MISSES", "4294967297", "from 1 to 1000"},
      {"KVFERRY_DATA_THREADS", "1", "from 2 to 256"},
      {"KVFERRY_DATA_THREADS", "two", "a whole number from 2 to 256"},
      {"KVFERRY_INLINE_BYTES_MAX", "16777217", "from 0 to 16777216"},
      {"KVFERRY_INLINE_BYTES_MAX", "18446744073709551616", "from 0 to 16777216"},
      {"KVFERRY_ROOMS_MAX", "0", "from 1 to"},
      {"KVFERRY_ORPHAN_GRANTS_MAX", "0x10", "from 1 to"},
      {"KVFERRY_QUEUE_SIZE", "65537", "from 1 to 65536"},
      {"SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", "never", "from 1ms"},
      {"SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", "0", "from 1 to 1000"},
      {"SGLANG_DISAGGREGATION_QUEUE_SIZE", "0", "from 1 to"},
      {"SGLANG_DISAGGREGATION_THREAD_POOL_SIZE", "0", "from 2 to"},
  };
  for (const auto& row : cases) {
    const auto settings = read({{row[0], row[1]}});
    ASSERT_FALSE(settings) << row[0] << '=' << row[1];
    EXPECT_EQ(settings.error().code, Code::invalid_argument);
    EXPECT_TRUE(says(settings.error(), row[0])) << settings.error().text;
    EXPECT_TRUE(says(settings.error(), '"' + row[1] + '"')) << settings.error().text;
    EXPECT_TRUE(says(settings.error(), row[2])) << settings.error().text;
  }
}

TEST(settings, a_token_is_never_printed) {
  const auto settings = read({{"KVFERRY_TOKEN", std::string(5'000, 'q')}});
  ASSERT_FALSE(settings);
  EXPECT_TRUE(says(settings.error(), "KVFERRY_TOKEN"));
  EXPECT_FALSE(says(settings.error(), "qqq"));
}

TEST(settings, values_set_in_code_are_checked_with_the_same_words) {
  Settings settings;
  settings.data_threads = 1;
  ASSERT_FALSE(settings.check());
  EXPECT_TRUE(
      says(settings.check().error(), "KVFERRY_DATA_THREADS=\"1\" is not allowed; allowed: a whole number from 2"));
  settings = {};
  settings.ping_interval = milliseconds(-5);
  EXPECT_TRUE(says(settings.check().error(), "KVFERRY_PING_INTERVAL=\"-5ms\""));
  settings = {};
  settings.host = "[::1]";
  EXPECT_TRUE(says(settings.check().error(), "KVFERRY_HOST"));
  settings = {};
  settings.transport = static_cast<Transport>(9);
  EXPECT_TRUE(says(settings.check().error(), "KVFERRY_TRANSPORT=\"9\""));
  settings = {};
  settings.verify = static_cast<Verify>(9);
  EXPECT_TRUE(says(settings.check().error(), "KVFERRY_VERIFY=\"9\" is not allowed; allowed: off or crc32c"));
}

TEST(settings, any_value_of_any_variable_is_taken_or_refused_by_name) {
  EXPECT_TRUE(rc::check("from_environment", [] {
    Environment environment;
    const auto letter = rc::gen::elementOf(std::string("0123456789.msh-+ eyounaftcp[]:"));
    for (const SettingRow& row : settings_table) {
      if (*rc::gen::inRange(0, 4) != 0) continue;
      environment[std::string("KVFERRY_") + row.name] = *rc::gen::container<std::string>(letter);
    }
    const auto settings = read(environment);
    if (settings) {
      RC_ASSERT(settings->check().has_value());
    } else {
      RC_ASSERT(says(settings.error(), "KVFERRY_") && says(settings.error(), "allowed: "));
    }
  }));
}

TEST(settings, the_real_environment_is_read) {
  ASSERT_EQ(setenv("KVFERRY_PING_MISSES", "17", 1), 0);
  const auto settings = Settings::from_environment();
  ASSERT_EQ(unsetenv("KVFERRY_PING_MISSES"), 0);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->ping_misses_max, 17u);
}

TEST(settings, the_reference_page_names_every_variable) {
  std::ifstream file("docs/reference/settings.md");
  ASSERT_TRUE(file) << "run from the repository's root";
  std::stringstream page;
  page << file.rdbuf();
  for (const SettingRow& row : settings_table) {
    EXPECT_NE(page.str().find(std::string("`KVFERRY_") + row.name + '`'), std::string::npos) << row.name;
    if (row.sglang_name == nullptr) continue;
    EXPECT_NE(page.str().find(std::string("`SGLANG_DISAGGREGATION_") + row.sglang_name + '`'), std::string::npos);
  }
}

}  // namespace
}  // namespace kvferry
