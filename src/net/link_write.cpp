#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <system_error>

#include "net/link_impl.h"

namespace kvferry::net {
namespace {

constexpr std::size_t bytes_kept_max = 1024 * 1024;  // above this an empty buffer is given back

}  // namespace

void Link::Impl::append(const protocol::Message& message, std::span<const layout::Piece> payload) {
  std::size_t bytes = 0;
  for (const layout::Piece& piece : payload) bytes += piece.bytes;
  protocol::append_frame(message, static_cast<std::uint32_t>(bytes), collecting_);
  for (const layout::Piece& piece : payload)
    collecting_.insert(collecting_.end(), piece.data, piece.data + piece.bytes);
}

void Link::Impl::flush() {
  if (waiting_writable_) {
    flush_wanted_ = true;
    return;
  }
  if (collecting_.empty() || write_failed_) return;
  std::swap(collecting_, leaving_);
  leaving_begin_ = 0;
  write_some();
}

void Link::Impl::write_some() {
  while (leaving_begin_ < leaving_.size()) {
    const ssize_t taken = ::send(socket_.native_handle(), leaving_.data() + leaving_begin_,
                                 leaving_.size() - leaving_begin_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (error == EAGAIN || error == EWOULDBLOCK) return wait_writable();
      return write_failed(error);
    }
    leaving_begin_ += static_cast<std::size_t>(taken);
  }
  leaving_begin_ = 0;
  leaving_.clear();
  if (leaving_.capacity() > bytes_kept_max) leaving_.shrink_to_fit();
}

void Link::Impl::wait_writable() {
  waiting_writable_ = true;
  socket_.async_wait(boost::asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](boost::system::error_code failed) {
                       self->waiting_writable_ = false;
                       if (!self->open() || failed) return;
                       self->write_some();
                       if (self->waiting_writable_ || !std::exchange(self->flush_wanted_, false)) return;
                       self->flush();
                     });
}

// Told later, not from inside flush(): and first whatever the peer said before it left, which may be its reason.
void Link::Impl::write_failed(int error) {
  write_failed_ = true;
  boost::asio::post(socket_.get_executor(), [self = shared_from_this(), error] {
    if (!self->open()) return;
    if (self->handler_ != nullptr) self->read_once();
    self->fail({Code::peer_lost, "the connection broke: " + std::generic_category().message(error)});
  });
}

}  // namespace kvferry::net
