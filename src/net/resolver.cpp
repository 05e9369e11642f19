#include "net/resolver.h"

#include <netdb.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
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

// Where a look-up leaves its answer. A look-up cannot be cancelled, so it may come home after the loop is gone.
struct Mailbox {
  std::mutex mutex;
  asio::io_context* loop = nullptr;  // null once the loop goes down
};

// Lives in the loop and learns of its end.
class MailboxService : public asio::execution_context::service {
 public:
  using key_type = MailboxService;
  static inline asio::execution_context::id id;

  explicit MailboxService(asio::execution_context& context) : service(context), mailbox_(std::make_shared<Mailbox>()) {
    mailbox_->loop = static_cast<asio::io_context*>(&context);
  }
  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }

 private:
  void shutdown() override {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->loop = nullptr;
  }
  std::shared_ptr<Mailbox> mailbox_;  // shared with the look-ups that are under way
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

void look_up_and_post(const std::shared_ptr<Mailbox>& mailbox, const Address& address, std::shared_ptr<Done> done) {
  Result<Endpoints> answer = look_up(address);
  lookups.fetch_sub(1);
  const std::lock_guard lock(mailbox->mutex);
  if (mailbox->loop == nullptr) return;
  asio::post(*mailbox->loop,
             [done = std::move(done), answer = std::move(answer)]() mutable { (*done)(std::move(answer)); });
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
  // The closure is shared with the look-up thread, but only the loop ever calls it.
  auto shared_done = std::make_shared<Done>(std::move(done));
  auto mailbox = asio::use_service<MailboxService>(loop).mailbox();
  os::start_thread("kvf-resolve", [mailbox, address, shared_done]() mutable {
    look_up_and_post(mailbox, address, std::move(shared_done));
  }).detach();
}

}  // namespace kvferry::net
