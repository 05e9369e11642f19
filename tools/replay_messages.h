// What the balancer and the workers of a replay tell each other: one JSON object a line, over the worker's stdin and
// stdout. The first line to a worker is its setup, which it answers with one outcome of room 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kvferry/kvferry.h"
#include "kvferry/result.h"

namespace kvferry::tools {

struct ReplaySetup {
  Role role = Role::prefill;
  std::string model{};
  std::uint32_t layers = 1;
  std::uint32_t page_tokens = 16;
  std::uint64_t pages = 0;
  std::uint64_t seed = 0;
  std::string transport = "auto";  // auto, tcp, samehost, shared
  std::string host = "127.0.0.1";  // to listen on and to announce
  std::string instance{};          // random when empty
  std::string bootstrap{};         // prefill: its own instance's server
};

// One request for one side.
struct Assignment {
  std::uint64_t room = 0;
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> hashes{};  // a block of 512 tokens each
  std::string bootstrap{};              // decode: of the prefill instance that the balancer chose
};

// The balancer gives a room up; its outcome comes all the same.
struct GiveUp {
  std::uint64_t room = 0;
};
using Order = std::variant<Assignment, GiveUp>;

// How a room ended on one side. The figures are decode's.
struct RoomOutcome {
  std::uint64_t room = 0;
  std::string error{};            // empty where it succeeded
  std::uint64_t wrong_items = 0;  // without their CRC
  std::uint64_t bytes = 0;        // moved
  std::uint64_t prefix_tokens = 0;
  double us = 0;  // from Receiver::init to Success
};

std::string to_line(const ReplaySetup& setup);
std::string to_line(const Assignment& assignment);
std::string to_line(const GiveUp& order);
std::string to_line(const RoomOutcome& outcome);
// `protocol` where the line is not what `to_line` writes.
Result<ReplaySetup> setup_of(std::string_view line);
Result<Order> order_of(std::string_view line);
Result<RoomOutcome> outcome_of(std::string_view line);

}  // namespace kvferry::tools
