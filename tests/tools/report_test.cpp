#include "tools/report.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>
#include <sstream>

namespace {

using kvferry::tools::Report;
using kvferry::tools::Value;

boost::json::object parsed(const Report& report) {
  std::string text = report.json();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return boost::json::parse(text).as_object();
}

TEST(report, json_holds_ok_figures_and_rows_in_order) {
  Report report("title");
  report.figure("requests", 24);
  report.figure("gbps", 1.5, "GB/s");
  report.row({{"transport", "tcp"}, {"page_bytes", 4096U}, {"works", true}});
  boost::json::object json = parsed(report);
  EXPECT_TRUE(json.at("ok").as_bool());
  EXPECT_EQ(json.at("figures").at("requests").to_number<int>(), 24);
  EXPECT_DOUBLE_EQ(json.at("figures").at("gbps").to_number<double>(), 1.5);
  const boost::json::object& row = json.at("rows").at(0).as_object();
  EXPECT_EQ(row.begin()->key(), "transport");
  EXPECT_EQ(row.at("page_bytes").to_number<int>(), 4096);
  EXPECT_TRUE(row.at("works").as_bool());
  EXPECT_FALSE(json.contains("problems"));
}

TEST(report, an_empty_report_is_whole_json) {
  boost::json::object json = parsed(Report(""));
  EXPECT_TRUE(json.at("figures").as_object().empty());
  EXPECT_TRUE(json.at("rows").as_array().empty());
}

TEST(report, a_problem_makes_it_not_ok_and_is_told) {
  Report report("title");
  report.fail("2 answers \"wrong\"\n");
  EXPECT_FALSE(report.ok());
  boost::json::object json = parsed(report);
  EXPECT_FALSE(json.at("ok").as_bool());
  EXPECT_EQ(json.at("problems").at(0).as_string(), "2 answers \"wrong\"\n");
}

TEST(report, a_figure_set_twice_keeps_the_last_value) {
  Report report("");
  report.figure("hung", 1);
  report.figure("hung", 0);
  EXPECT_EQ(report.json(), R"({"ok":true,"figures":{"hung":0},"rows":[]})");
}

TEST(report, numbers_that_are_none_become_null) {
  EXPECT_EQ(Value(std::numeric_limits<double>::quiet_NaN()).json(), "null");
  EXPECT_EQ(Value(std::numeric_limits<double>::infinity()).json(), "null");
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()).json(), "18446744073709551615");
  EXPECT_EQ(Value(-3).json(), "-3");
}

TEST(report, numbers_are_grouped_and_rounded_for_people) {
  EXPECT_EQ(Value(1234567).text(), "1,234,567");
  EXPECT_EQ(Value(-123).text(), "-123");
  EXPECT_EQ(Value(-1234).text(), "-1,234");
  EXPECT_EQ(Value(12.345).text(), "12.35");
  EXPECT_EQ(Value(2345.6).text(), "2,346");
  EXPECT_EQ(Value(0.01234).text(), "0.0123");
}

TEST(report, rows_with_the_same_names_share_one_header) {
  Report report("title");
  report.row({{"name", "a"}, {"count", 1}});
  report.row({{"name", "long name"}, {"count", 1000}});
  report.row({{"other", "c"}});
  std::ostringstream out;
  report.write_text(out, false);
  EXPECT_EQ(out.str(),
            "\ntitle\n\n"
            "  name       count\n"
            "  a              1\n"
            "  long name  1,000\n\n"
            "  other\n"
            "  c\n\n"
            "ok\n");
}

}  // namespace
