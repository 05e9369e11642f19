// A link handler that keeps what it hears, for tests.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "net/link.h"

namespace kvferry::net_test {

class RecordingHandler : public net::LinkHandler {
 public:
  void on_message(net::Link& link, protocol::Message message, std::span<const std::byte> payload) override {
    messages.push_back(std::move(message));
    payloads.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
    if (then) then(link);
  }
  void on_batch_end(net::Link& link) override {
    ++batches;
    if (at_batch_end) at_batch_end(link);
  }
  void on_closed(net::Link&, Error error) override {
    ++closes;
    closed = std::move(error);
  }

  std::vector<protocol::Message> messages;
  std::vector<std::string> payloads;
  std::size_t batches = 0;
  std::size_t closes = 0;
  std::optional<Error> closed;
  std::function<void(net::Link&)> then;
  std::function<void(net::Link&)> at_batch_end;
};

}  // namespace kvferry::net_test
