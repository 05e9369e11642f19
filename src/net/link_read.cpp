#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "net/link_impl.h"
#include "net/sockets.h"

namespace kvferry::net {
namespace {

constexpr std::array<std::string_view, 9> http_beginnings{"GET ",    "PUT ",    "POST ",  "HEAD ", "DELETE ",
                                                          "OPTIONS", "CONNECT", "PATCH ", "HTTP/"};

bool looks_like_http(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::ranges::any_of(http_beginnings, [&](std::string_view beginning) { return text.starts_with(beginning); });
}

}  // namespace

// Waiting first and reading then takes as many system calls as a read that is tried first, and no byte is ever taken
// that release_socket() does not see.
void Link::Impl::wait_readable() {
  socket_.async_wait(boost::asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](boost::system::error_code failed) {
                       if (!self->open() || failed == boost::asio::error::operation_aborted) return;
                       self->read_once();
                       if (self->open()) self->wait_readable();
                     });
}

void Link::Impl::read_once() {
  const std::span<std::byte> space = input_.space();
  const ssize_t got = ::recv(socket_.native_handle(), space.data(), space.size(), MSG_DONTWAIT);
  if (got < 0) {
    const int error = errno;
    if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return;
    return fail({Code::peer_lost, "the connection broke: " + std::generic_category().message(error)});
  }
  if (got == 0) {
    const std::size_t cut = input_.filled().size();
    return fail({Code::peer_lost, cut == 0 ? "the peer closed the connection"
                                           : "the peer closed the connection in the middle of a frame, after " +
                                                 std::to_string(cut) + " bytes of it"});
  }
  input_.commit(static_cast<std::size_t>(got));
  if (parse() != 0 && open()) handler_->on_batch_end(*owner_);
}

std::size_t Link::Impl::parse() {
  std::size_t messages = 0;
  while (true) {
    const std::span<const std::byte> bytes = input_.filled();
    if (bytes.size() < protocol::frame_header_bytes) return messages;
    const auto header = protocol::read_frame_header(bytes.first<protocol::frame_header_bytes>(), body_bytes_max_);
    if (!header) {
      refuse_bytes(header.error());
      return messages;
    }
    const std::size_t body_end = protocol::frame_header_bytes + header->body_bytes;
    const std::size_t frame_bytes = body_end + header->payload_bytes;
    if (bytes.size() < frame_bytes) return messages;
    auto message = protocol::decode_body(bytes.subspan(protocol::frame_header_bytes, header->body_bytes));
    if (!message) {
      fail(message.error());
      return messages;
    }
    heard_ = true;
    ++messages;
    input_.consume(frame_bytes);
    handler_->on_message(*owner_, std::move(*message), bytes.subspan(body_end, header->payload_bytes));
    if (!open()) return messages;
  }
}

// Whoever points a browser or a probe at this port reads in its own language what the port is.
void Link::Impl::refuse_bytes(Error error) {
  if (!heard_ && looks_like_http(input_.filled())) {
    const std::string answer = wrong_door_answer(
        "This is the control port of a kvferry rank, it does not speak HTTP. The bootstrap server does: GET /health.");
    const ssize_t ignored = ::send(socket_.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    static_cast<void>(ignored);
  }
  fail(std::move(error));
}

}  // namespace kvferry::net
