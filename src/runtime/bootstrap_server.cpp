#include <boost/asio/io_context.hpp>
#include <thread>
#include <utility>

#include "base/address.h"
#include "base/try.h"
#include "kvferry/kvferry.h"
#include "net/bootstrap_server.h"
#include "os/fork.h"
#include "os/thread.h"

namespace kvferry {

// The server's loop and the thread that runs it.
struct BootstrapServer::Impl {
  boost::asio::io_context loop{1};
  std::unique_ptr<net::HttpBootstrapServer> server;
  std::string address;
  std::thread thread;
  const unsigned made_in = os::fork_generation();

  ~Impl() {
    loop.stop();
    if (thread.joinable()) thread.join();
  }
};

BootstrapServer::BootstrapServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BootstrapServer::BootstrapServer(BootstrapServer&&) noexcept = default;
BootstrapServer& BootstrapServer::operator=(BootstrapServer&& other) noexcept {
  BootstrapServer old(std::move(impl_));
  impl_ = std::move(other.impl_);
  return *this;
}
BootstrapServer::~BootstrapServer() {
  if (impl_ && impl_->made_in != os::fork_generation()) static_cast<void>(impl_.release());
}

Result<BootstrapServer> BootstrapServer::start(BootstrapOptions options) {
  if (!options.settings) {
    KVF_TRY(from_environment, Settings::from_environment());
    options.settings = std::move(from_environment);
  }
  KVF_CHECK(options.settings->check());
  auto impl = std::make_unique<Impl>();
  KVF_TRY(server, net::HttpBootstrapServer::open(impl->loop, Address{options.host, options.port}, *options.settings));
  impl->server = std::move(server);
  impl->address = impl->server->address().text();
  impl->thread = os::start_thread("kvf-bootstrap", [loop = &impl->loop] { loop->run(); });
  return BootstrapServer(std::move(impl));
}

std::string BootstrapServer::address() const { return impl_->address; }

}  // namespace kvferry
