#include "tools/replay_trace.h"

#include <gtest/gtest.h>

#include <sstream>

namespace kvferry::tools {
namespace {

Result<std::vector<TraceRequest>> read(const std::string& text, std::size_t limit = 100) {
  std::istringstream in(text);
  return read_trace(in, "t.jsonl", limit);
}

std::string line(const std::string& timestamp, const std::string& tokens, const std::string& hashes) {
  return R"({"timestamp": )" + timestamp + R"(, "input_length": )" + tokens + R"(, "output_length": 5, "hash_ids": [)" +
         hashes + "]}\n";
}

// The error of a trace whose second line is `bad`.
std::string error_of(const std::string& bad) {
  auto trace = read(line("10", "512", "0") + bad);
  return trace ? "read without an error" : trace.error().text;
}

TEST(ReplayTrace, every_field_of_a_line_is_read) {
  auto trace = read(line("27", "1025", "0, 7, 18446744073709551615"));
  ASSERT_TRUE(trace) << trace.error().text;
  ASSERT_EQ(trace->size(), 1u);
  const TraceRequest& request = trace->front();
  EXPECT_EQ(request.line, 1u);
  EXPECT_EQ(request.timestamp_ms, 27u);
  EXPECT_EQ(request.input_tokens, 1025u);
  EXPECT_EQ(request.output_tokens, 5u);
  EXPECT_EQ(request.hash_ids, (std::vector<std::uint64_t>{0, 7, 18446744073709551615u}));
}

TEST(ReplayTrace, blank_lines_are_skipped_and_still_counted) {
  auto trace = read("\n" + line("0", "1", "4") + " \r\n" + line("0", "2", "5"));
  ASSERT_TRUE(trace) << trace.error().text;
  ASSERT_EQ(trace->size(), 2u);
  EXPECT_EQ(trace->back().line, 4u);
}

TEST(ReplayTrace, reading_stops_at_the_limit_before_a_bad_line) {
  auto trace = read(line("0", "1", "4") + "{", 1);
  ASSERT_TRUE(trace) << trace.error().text;
  EXPECT_EQ(trace->size(), 1u);
}

TEST(ReplayTrace, an_error_names_the_file_and_the_line) {
  EXPECT_NE(error_of("{\"timestamp\": 11").find("t.jsonl, line 2: no JSON"), std::string::npos);
}

TEST(ReplayTrace, a_line_that_cannot_be_is_refused_in_words) {
  EXPECT_NE(error_of("[1]").find("no JSON object"), std::string::npos);
  EXPECT_NE(error_of(R"({"input_length": 1})").find("\"timestamp\" is missing"), std::string::npos);
  EXPECT_NE(error_of(line("-1", "1", "0")).find("not -1"), std::string::npos);
  EXPECT_NE(error_of(line("11", "1.5", "0")).find("whole number"), std::string::npos);
  EXPECT_NE(error_of(line("11", "0", "")).find("\"input_length\" is 0"), std::string::npos);
  EXPECT_NE(error_of(line("11", "99999999999", "0")).find("expected 1 to"), std::string::npos);
  EXPECT_NE(error_of(line("11", "513", "0")).find("1 entries, but 513 input tokens are 2 blocks"), std::string::npos);
  EXPECT_NE(error_of(line("11", "1", "\"a\"")).find("an entry of \"hash_ids\""), std::string::npos);
  EXPECT_NE(error_of(line("9", "1", "0")).find("earlier than 10"), std::string::npos);
}

TEST(ReplayTrace, an_empty_trace_is_an_error) { EXPECT_FALSE(read("\n\n")); }

}  // namespace
}  // namespace kvferry::tools
