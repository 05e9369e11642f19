#include "net/link.h"

#include <utility>

#include "base/assert.h"
#include "net/link_impl.h"
#include "net/sockets.h"

namespace kvferry::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

Link::Link(LinkId id, tcp::socket socket) : impl_(std::make_shared<Impl>(*this, id, std::move(socket))) {}
Link::~Link() { impl_->close(); }

void Link::start(LinkHandler& handler) {
  KVF_ASSERT(impl_->handler_ == nullptr);
  impl_->handler_ = &handler;
  if (impl_->open()) impl_->wait_readable();
}
void Link::set_handler(LinkHandler& handler) {
  if (impl_->open()) impl_->handler_ = &handler;
}
LinkId Link::id() const { return impl_->id_; }
const std::string& Link::peer() const { return impl_->peer_; }
bool Link::peer_is_private() const { return is_private_or_loopback(impl_->peer_address_.host); }
void Link::set_body_bytes_max(std::uint32_t bytes) { impl_->body_bytes_max_ = bytes; }
void Link::send(const protocol::Message& message, std::span<const layout::Piece> payload) {
  if (impl_->open()) impl_->append(message, payload);
}
void Link::flush() {
  if (impl_->open()) impl_->flush();
}
std::size_t Link::bytes_queued() const {
  return impl_->collecting_.size() + impl_->leaving_.size() - impl_->leaving_begin_;
}
void Link::close() { impl_->close(); }
Result<os::Fd> Link::release_socket() { return impl_->release_socket(); }

Link::Impl::Impl(Link& owner, LinkId id, tcp::socket socket) : owner_(&owner), id_(id), socket_(std::move(socket)) {
  boost::system::error_code gone;
  peer_address_ = address_of(socket_.remote_endpoint(gone));
  peer_ = gone ? "a peer that is gone" : peer_address_.text();
  boost::system::error_code failed;
  socket_.native_non_blocking(true, failed);
  tune(socket_.native_handle());
}

void Link::Impl::close() {
  if (!open()) return;
  owner_ = nullptr;
  handler_ = nullptr;
  collecting_ = {};
  leaving_ = {};
  leaving_begin_ = 0;
  if (!socket_.is_open()) return;
  close_gently(socket_.native_handle());
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Link::Impl::fail(Error error) {
  if (!open()) return;
  error.peer = peer_;
  Link& owner = *owner_;
  LinkHandler* handler = handler_;
  close();
  if (handler != nullptr) handler->on_closed(owner, std::move(error));
}

Result<os::Fd> Link::Impl::release_socket() {
  if (!open()) return Error{Code::closed, "the link is closed", {}, peer_};
  if (!input_.filled().empty()) {
    return Error{Code::protocol,
                 std::to_string(input_.filled().size()) + " bytes came before the stream was ready for them",
                 {},
                 peer_};
  }
  boost::system::error_code failed;
  os::Fd fd(socket_.release(failed));
  if (failed) return Error{Code::peer_lost, failed.message(), {}, peer_};
  close();
  return fd;
}

}  // namespace kvferry::net
