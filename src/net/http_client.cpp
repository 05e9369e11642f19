#include "net/http_client.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <memory>
#include <optional>

#include "net/http_auth.h"
#include "net/link.h"

namespace kvferry::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

constexpr std::uint32_t header_bytes_max = 8 * 1024;
constexpr std::uint64_t body_bytes_max = 64 * 1024;

// Shared by its timer and the operation that is under way.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::io_context& loop, const Address& server, HttpCall call, Settings::Millis timeout,
           std::function<void(Result<HttpReply>)> done)
      : loop_(loop), server_(server), timeout_(timeout), done_(std::move(done)), timer_(loop) {
    request_.version(11);
    request_.method_string(call.method);
    request_.target(call.target);
    request_.set(http::field::host, server.text());
    request_.set(http::field::user_agent, "kvferry");
    if (!call.body.empty()) request_.set(http::field::content_type, "application/json");
    for (const auto& [name, value] : call.headers) request_.set(name, value);
    request_.keep_alive(false);
    request_.body() = std::move(call.body);
    request_.prepare_payload();
    parser_.header_limit(header_bytes_max);
    parser_.body_limit(body_bytes_max);
  }

  void start() {
    timer_.expires_after(timeout_);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code cancelled) {
      if (cancelled) return;
      self->finish(self->error(Code::timeout, "has not answered within the connect timeout of " +
                                                  std::to_string(self->timeout_.count()) + " ms"));
    });
    cancel_dial_ = dial(loop_, server_, timeout_, [self = shared_from_this()](Result<tcp::socket> socket) {
      if (!socket) return self->finish(self->error(socket.error().code, "is not there: " + socket.error().text));
      self->write(std::move(*socket));
    });
  }

 private:
  void write(tcp::socket socket) {
    socket_.emplace(std::move(socket));
    http::async_write(*socket_, request_, [self = shared_from_this()](beast::error_code failed, std::size_t) {
      // Also where writing failed, the server's reason may be there to be read.
      if (failed && failed != asio::error::broken_pipe && failed != asio::error::connection_reset) {
        return self->finish(self->error(Code::unreachable, "broke the connection: " + failed.message()));
      }
      self->read();
    });
  }

  void read() {
    if (!done_) return;
    http::async_read(*socket_, buffer_, parser_, [self = shared_from_this()](beast::error_code failed, std::size_t) {
      if (failed) return self->finish(self->read_error(failed));
      const auto& message = self->parser_.get();
      const auto header = [&](const char* name) {
        const auto value = message[name];
        return std::string(value.data(), value.size());
      };
      self->finish(HttpReply{.status = message.result_int(),
                             .body = message.body(),
                             .challenge = header(header_challenge),
                             .proof = header(header_proof)});
    });
  }

  Error read_error(beast::error_code failed) const {
    const bool closed = failed == http::error::end_of_stream || failed == http::error::partial_message;
    if (closed) return error(Code::unreachable, "closed the connection before its answer was complete");
    if (failed.category() == http::make_error_code(http::error::bad_version).category()) {
      return error(Code::protocol,
                   "does not answer in HTTP, is this the port of a bootstrap server? (" + failed.message() + ")");
    }
    return error(Code::unreachable, "broke the connection: " + failed.message());
  }

  Error error(Code code, const std::string& what) const {
    return Error{code, "bootstrap server " + server_.text() + " " + what, {}, server_.text()};
  }

  void finish(Result<HttpReply> reply) {
    if (!done_) return;
    auto done = std::exchange(done_, nullptr);
    timer_.cancel();
    if (cancel_dial_) cancel_dial_();
    boost::system::error_code ignored;
    if (socket_) socket_->close(ignored);
    done(std::move(reply));
  }

  asio::io_context& loop_;
  const Address server_;
  const Settings::Millis timeout_;
  std::function<void(Result<HttpReply>)> done_;  // empty once called
  std::function<void()> cancel_dial_;
  asio::steady_timer timer_;
  std::optional<tcp::socket> socket_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
};

}  // namespace

void http_request(asio::io_context& loop, const Address& server, HttpCall call, Settings::Millis timeout,
                  std::function<void(Result<HttpReply>)> done) {
  std::make_shared<Exchange>(loop, server, std::move(call), timeout, std::move(done))->start();
}

}  // namespace kvferry::net
