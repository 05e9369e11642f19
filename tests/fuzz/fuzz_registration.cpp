// Any bytes as requests to the bootstrap server and as answers to its client: refused in words, or taken and told the
// same way again. The first byte picks what the rest is.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/http_routes.h"
#include "net/registration_json.h"

namespace {

namespace net = kvferry::net;
using kvferry::Code;

void require(bool condition) {
  if (!condition) abort();
}

void check_registration(const std::string& body) {
  const auto registration = net::parse_registration(body);
  if (!registration) return require(registration.error().code == Code::invalid_argument);
  const auto again = net::parse_registration(net::write_registration(*registration));
  require(again.has_value());
  require(again->place == registration->place && again->parallel == registration->parallel);
  require(again->address == registration->address && again->instance == registration->instance);
  require(again->lease == registration->lease && again->ttl == registration->ttl);
}

// Lines "METHOD target body", each a request to one server.
void check_requests(std::string_view rest) {
  net::HttpRoutes routes("");
  kvferry::Instant now{};
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
    const auto first = line.find(' ');
    const auto second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second == std::string_view::npos) continue;
    const auto answer = routes.answer({.method = std::string(line.substr(0, first)),
                                       .target = std::string(line.substr(first + 1, second - first - 1)),
                                       .body = std::string(line.substr(second + 1))},
                                      now);
    require(answer.status == 200 || (answer.status >= 400 && answer.status <= 503 && answer.status != 500));
    for (const auto& [name, value] : answer.headers) require(value.find_first_of("\r\n") == std::string::npos);
    now += std::chrono::milliseconds(line.size());
  }
}

void check_answers(std::string_view body) {
  if (const auto route = net::parse_route(body)) require(net::parse_route(net::write_route(*route)).has_value());
  if (const auto sizes = net::parse_sizes(body)) require(net::parse_sizes(net::write_sizes(*sizes)).has_value());
  if (const auto answer = net::parse_registration_answer(body)) require(answer->generation != 0);
  require(net::parse_error_text(body).size() <= 4'096);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 3) {
    case 0:
      check_registration(text);
      break;
    case 1:
      check_requests(text);
      break;
    default:
      check_answers(text);
  }
  return 0;
}
