// The test binary is also the engine that its tests start: `test_demo engine ...` answers like one, and misbehaves
// where the first token of a prompt tells it to.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "fake_engine.h"

namespace {

namespace json = boost::json;

std::string option(const std::vector<std::string>& arguments, const std::string& name) {
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == name) return arguments[i + 1];
  }
  return {};
}

// True for the first process that ever had this path.
bool first_life(const std::string& path) {
  if (path.empty()) return true;
  bool first = !std::filesystem::exists(path);
  std::ofstream(path) << "lived";
  return first;
}

void say(const json::object& object) { std::cout << json::serialize(object) << std::endl; }

void answer(const json::object& request, const std::string& role, bool first) {
  if (request.at("type") == "abort") {
    return say({{"type", "failed"}, {"id", request.at("id")}, {"error", "aborted here"}, {"code", "aborted"}});
  }
  const json::array& prompt = request.at("prompt").as_array();
  const auto order = prompt.at(0).as_int64();
  if (order == fake::hang || (order == fake::hang_in_first_life && role == "decode" && first)) return;
  if (order == fake::fail && role == "prefill") return;
  if (order == fake::fail) {
    return say({{"type", "failed"}, {"id", request.at("id")}, {"error", "made to fail"}, {"code", "internal"}});
  }
  if (order == fake::end && role == "decode") std::_Exit(7);
  std::int64_t sum = order == fake::lie && role == "decode" ? 1 : 0;
  for (const json::value& token : prompt) sum += token.as_int64();
  say({{"type", "done"},
       {"id", request.at("id")},
       {"tokens", json::array{sum, request.at("max_tokens")}},
       {"bytes", 4096},
       {"handoff_us", 12.5},
       {"transport", "fake"}});
}

int engine_main(const std::vector<std::string>& arguments) {
  const std::string role = option(arguments, "--role");
  const bool first = first_life(option(arguments, "--state"));
  say({{"type", "ready"}, {"pid", 1}, {"address", ""}});
  for (std::string line; std::getline(std::cin, line);) {
    json::object message = json::parse(line).as_object();
    if (message.at("type") == "quit") return 0;
    answer(message, role, first);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "engine") return engine_main({argv + 1, argv + argc});
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
