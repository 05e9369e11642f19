#include "tools/replay_messages.h"

#include <boost/json.hpp>

namespace kvferry::tools {

namespace {

namespace json = boost::json;

// Reads one message; Boost.JSON throws where a field is absent or of another kind, which ends here.
template <class T, class Read>
Result<T> parsed(std::string_view line, const char* what, Read read) {
  try {
    return read(json::parse({line.data(), line.size()}).as_object());
  } catch (const std::exception& problem) {
    return Error{.code = Code::protocol, .text = std::string(what) + " cannot be read: " + problem.what()};
  }
}

std::uint64_t number(const json::object& object, const char* name) {
  return object.at(name).to_number<std::uint64_t>();
}
std::string text(const json::object& object, const char* name) { return std::string(object.at(name).as_string()); }

}  // namespace

std::string to_line(const ReplaySetup& setup) {
  return json::serialize(json::object{{"role", setup.role == Role::prefill ? "prefill" : "decode"},
                                      {"model", setup.model},
                                      {"layers", setup.layers},
                                      {"page_tokens", setup.page_tokens},
                                      {"pages", setup.pages},
                                      {"seed", setup.seed},
                                      {"transport", setup.transport},
                                      {"host", setup.host},
                                      {"instance", setup.instance},
                                      {"bootstrap", setup.bootstrap}});
}

std::string to_line(const Assignment& assignment) {
  json::array hashes(assignment.hashes.begin(), assignment.hashes.end());
  return json::serialize(json::object{{"room", assignment.room},
                                      {"tokens", assignment.tokens},
                                      {"hashes", std::move(hashes)},
                                      {"bootstrap", assignment.bootstrap}});
}

std::string to_line(const GiveUp& order) { return json::serialize(json::object{{"give_up", order.room}}); }

std::string to_line(const RoomOutcome& outcome) {
  return json::serialize(json::object{{"room", outcome.room},
                                      {"error", outcome.error},
                                      {"wrong_items", outcome.wrong_items},
                                      {"bytes", outcome.bytes},
                                      {"prefix_tokens", outcome.prefix_tokens},
                                      {"us", outcome.us}});
}

Result<ReplaySetup> setup_of(std::string_view line) {
  return parsed<ReplaySetup>(line, "the worker's setup", [](const json::object& object) {
    return ReplaySetup{.role = text(object, "role") == "prefill" ? Role::prefill : Role::decode,
                       .model = text(object, "model"),
                       .layers = static_cast<std::uint32_t>(number(object, "layers")),
                       .page_tokens = static_cast<std::uint32_t>(number(object, "page_tokens")),
                       .pages = number(object, "pages"),
                       .seed = number(object, "seed"),
                       .transport = text(object, "transport"),
                       .host = text(object, "host"),
                       .instance = text(object, "instance"),
                       .bootstrap = text(object, "bootstrap")};
  });
}

Result<Order> order_of(std::string_view line) {
  return parsed<Order>(line, "an order", [](const json::object& object) -> Order {
    if (object.contains("give_up")) return GiveUp{number(object, "give_up")};
    Assignment assignment{.room = number(object, "room"), .tokens = number(object, "tokens")};
    for (const json::value& hash : object.at("hashes").as_array()) {
      assignment.hashes.push_back(hash.to_number<std::uint64_t>());
    }
    assignment.bootstrap = text(object, "bootstrap");
    return assignment;
  });
}

Result<RoomOutcome> outcome_of(std::string_view line) {
  return parsed<RoomOutcome>(line, "an outcome", [](const json::object& object) {
    return RoomOutcome{.room = number(object, "room"),
                       .error = text(object, "error"),
                       .wrong_items = number(object, "wrong_items"),
                       .bytes = number(object, "bytes"),
                       .prefix_tokens = number(object, "prefix_tokens"),
                       .us = object.at("us").to_number<double>()};
  });
}

}  // namespace kvferry::tools
