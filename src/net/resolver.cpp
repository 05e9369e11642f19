#include "net/resolver.h"

#include <netdb.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>

#include "os/thread.h"

namespace kvferry::net {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using Done = std::function<void(Result<Endpoints>)>;

constexpr int lookups_max = 32;  // at one time in a process; one more is told to try later
std::atomic<int> lookups{0};

// The way home of a look-up. It cannot be cancelled, so it may come back after the loop is gone.
struct Mailbox {
  std::mutex mutex;
  asio::io_context* loop = nullptr;  // null once the loop goes down
};

// Lives in the loop: whoever waits for a name is kept here and ends with the loop, never on a look-up's thread.
class Waiting : public asio::execution_context::service {
 public:
  using key_type = Waiting;
  static inline asio::execution_context::id id;

  explicit Waiting(asio::execution_context& context) : service(context), mailbox_(std::make_shared<Mailbox>()) {
    mailbox_->loop = static_cast<asio::io_context*>(&context);
  }
  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }
  std::uint64_t add(Done done) {
    waiting_.emplace(++last_ticket_, std::move(done));
    return last_ticket_;
  }
  void answer(std::uint64_t ticket, Result<Endpoints> endpoints) {
    auto waiting = waiting_.extract(ticket);
    if (waiting) waiting.mapped()(std::move(endpoints));
  }

 private:
  void shutdown() override {
    {
      const std::lock_guard lock(mailbox_->mutex);
      mailbox_->loop = nullptr;
    }
    waiting_.clear();
  }
  std::shared_ptr<Mailbox> mailbox_;       // shared with the look-ups that are under way
  std::map<std::uint64_t, Done> waiting_;  // at most lookups_max
  std::uint64_t last_ticket_ = 0;
};

Result<Endpoints> look_up(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failed != 0) {
    const std::string why = failed == EAI_SYSTEM ? std::generic_category().message(errno) : gai_strerror(failed);
    return Error{Code::unreachable, "host \"" + address.host + "\" was not found: " + why, {}, address.text()};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  Endpoints endpoints;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    tcp::endpoint endpoint;
    if (info->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), info->ai_addr, info->ai_addrlen);
    endpoint.resize(info->ai_addrlen);
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

void look_up_and_post(Mailbox& mailbox, const Address& address, std::uint64_t ticket) {
  Result<Endpoints> answer = look_up(address);
  lookups.fetch_sub(1);
  const std::lock_guard lock(mailbox.mutex);
  asio::io_context* const loop = mailbox.loop;
  if (loop == nullptr) return;
  asio::post(*loop, [loop, ticket, answer = std::move(answer)]() mutable {
    asio::use_service<Waiting>(*loop).answer(ticket, std::move(answer));
  });
}

}  // namespace

void resolve(asio::io_context& loop, const Address& address, Done done) {
  boost::system::error_code not_literal;
  const auto literal = asio::ip::make_address(address.host, not_literal);
  if (!not_literal) {
    asio::post(
        loop, [done = std::move(done), endpoint = tcp::endpoint(literal, address.port)] { done(Endpoints{endpoint}); });
    return;
  }
  if (lookups.fetch_add(1) >= lookups_max) {
    lookups.fetch_sub(1);
    asio::post(loop, [done = std::move(done), address] {
      done(Error{Code::try_later,
                 "too many names are being looked up; \"" + address.host + "\" has to wait",
                 {},
                 address.text()});
    });
    return;
  }
  auto& waiting = asio::use_service<Waiting>(loop);
  const std::uint64_t ticket = waiting.add(std::move(done));
  os::start_thread("kvf-resolve", [mailbox = waiting.mailbox(), address, ticket] {
    look_up_and_post(*mailbox, address, ticket);
  }).detach();
}

}  // namespace kvferry::net
