#include "base/try.h"
#include "net/acceptor.h"
#include "net/link.h"

namespace kvferry::net {

struct Listener::Impl {
  std::shared_ptr<Acceptor> acceptor;  // shared with its accept handler that is under way
};

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Listener::~Listener() { impl_->acceptor->close(); }

Result<std::unique_ptr<Listener>> Listener::open(boost::asio::io_context& loop, const Address& address,
                                                 const Settings& settings, Accept accept) {
  KVF_TRY(acceptor, Acceptor::open(loop, address, settings, std::move(accept)));
  auto impl = std::make_shared<Impl>();
  impl->acceptor = std::move(acceptor);
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Address Listener::address() const { return impl_->acceptor->address(); }

}  // namespace kvferry::net
