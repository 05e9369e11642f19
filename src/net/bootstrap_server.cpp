#include "net/bootstrap_server.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <optional>
#include <set>

#include "base/try.h"
#include "net/acceptor.h"
#include "net/http_routes.h"
#include "net/sockets.h"
#include "os/clock.h"
#include "os/log.h"

namespace kvferry::net {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

namespace {
class Connection;
}  // namespace

struct HttpBootstrapServer::Impl {
  Impl(const Settings& settings, const HttpLimits& bounds) : routes(settings.token), limits(bounds) {}
  void accept(std::shared_ptr<Impl> self, tcp::socket socket);
  void close();
  // The first stranger is worth a line, the others are noise.
  void note_stranger(const std::string& peer, const std::string& what);

  HttpRoutes routes;
  const HttpLimits limits;
  std::shared_ptr<Acceptor> acceptor;  // shared with its accept handler that is under way
  std::set<Connection*> connections;   // at most limits.connections_max
  bool stranger_logged = false;
};

namespace {

// One client. Kept alive by whatever it waits for, ends when it waits for nothing.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  template <class Server>
  Connection(std::shared_ptr<Server> server, tcp::socket socket)
      : limits_(server->limits),
        peer_(peer_of(socket)),
        answer_([server](const HttpRequest& request) { return server->routes.answer(request, os::now()); }),
        stranger_([server, this](const std::string& what) { server->note_stranger(peer_, what); }),
        leave_([server, this] { server->connections.erase(this); }),
        stream_(std::move(socket)) {
    tune(stream_.socket().native_handle());
    server->connections.insert(this);
  }
  ~Connection() { leave_(); }
  Connection(const Connection&) = delete;

  void read_header() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(limits_.header_bytes_max));
    parser_->body_limit(limits_.body_bytes_max);
    stream_.expires_after(limits_.request_timeout);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](beast::error_code failed, std::size_t) {
                              if (failed) return self->read_failed(failed);
                              self->read_body();
                            });
  }
  void close() { stream_.close(); }

 private:
  static std::string peer_of(const tcp::socket& socket) {
    boost::system::error_code gone;
    return address_of(socket.remote_endpoint(gone)).text();
  }

  void read_body() {
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      parser_->get().erase(http::field::expect);
      asio::async_write(stream_, asio::buffer(go_on.data(), go_on.size()),
                        [self = shared_from_this()](beast::error_code failed, std::size_t) {
                          if (!failed) self->read_body();
                        });
      return;
    }
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code failed, std::size_t) {
      if (failed) return self->read_failed(failed);
      self->answer_request();
    });
  }

  void answer_request() {
    auto& message = parser_->get();
    const auto header = [&](const char* name) {
      const auto value = message[name];
      return std::string(value.data(), value.size());
    };
    const HttpRequest request{.method = std::string(message.method_string()),
                              .target = std::string(message.target()),
                              .body = std::move(message.body()),
                              .nonce = header(header_nonce),
                              .challenge = header(header_challenge),
                              .proof = header(header_proof)};
    respond(answer_(request), message.keep_alive());
  }

  void read_failed(beast::error_code failed) {
    static const auto& http_errors = http::make_error_code(http::error::end_of_stream).category();
    if (failed.category() != http_errors || failed == http::error::end_of_stream ||
        failed == http::error::partial_message) {
      return;  // closed by the client, silent for too long, or broken: nobody to answer
    }
    HttpAnswer answer = answer_of({Code::invalid_argument, "the request is not HTTP: " + failed.message()});
    if (failed == http::error::body_limit) {
      answer = answer_of(
          {Code::invalid_argument, "the body is larger than " + std::to_string(limits_.body_bytes_max) + " bytes"});
      answer.status = 413;
    } else if (failed == http::error::header_limit) {
      answer = answer_of(
          {Code::invalid_argument, "the header is larger than " + std::to_string(limits_.header_bytes_max) + " bytes"});
      answer.status = 431;
    } else if (speaks_control_protocol()) {
      answer =
          answer_of({Code::invalid_argument,
                     "this is a bootstrap server, it speaks HTTP; these bytes are kvferry's control protocol, which "
                     "a prefill rank's own port understands"});
      stranger_(
          "speaks kvferry's control protocol to the HTTP port; the address of a rank and that of the bootstrap "
          "server are mixed up");
    } else {
      stranger_("sent bytes that are not HTTP: " + failed.message());
    }
    respond(answer, false);
  }

  bool speaks_control_protocol() const {
    const auto bytes = buffer_.data();
    const std::string_view text(static_cast<const char*>(bytes.data()), bytes.size());
    return text.starts_with("KVF");
  }

  void respond(const HttpAnswer& answer, bool keep_alive) {
    response_ = {};
    response_.version(11);
    response_.result(answer.status);
    response_.set(http::field::server, "kvferry");
    response_.set(http::field::content_type, answer.json ? "application/json" : "text/plain; charset=utf-8");
    for (const auto& [name, value] : answer.headers) response_.set(name, value);
    response_.keep_alive(keep_alive);
    response_.body() = answer.body;
    response_.prepare_payload();
    stream_.expires_after(limits_.request_timeout);
    http::async_write(stream_, response_,
                      [self = shared_from_this(), keep_alive](beast::error_code failed, std::size_t) {
                        if (failed) return;
                        if (keep_alive) return self->read_header();
                        self->linger();
                      });
  }

  // A client that still sends must be able to read its answer: closing over unread bytes would reset the connection.
  void linger() {
    boost::system::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::chrono::seconds(1));
    drain(64);
  }
  void drain(int reads_left) {
    if (reads_left == 0) return;
    stream_.async_read_some(asio::buffer(scratch_),
                            [self = shared_from_this(), reads_left](beast::error_code failed, std::size_t) {
                              if (!failed) self->drain(reads_left - 1);
                            });
  }

  const HttpLimits limits_;
  const std::string peer_;
  // The server as this connection needs it; each holds it alive.
  std::function<HttpAnswer(const HttpRequest&)> answer_;
  std::function<void(const std::string&)> stranger_;
  std::function<void()> leave_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::array<char, 4'096> scratch_;
};

}  // namespace

void HttpBootstrapServer::Impl::accept(std::shared_ptr<Impl> self, tcp::socket socket) {
  if (connections.size() < limits.connections_max) {
    std::make_shared<Connection>(std::move(self), std::move(socket))->read_header();
    return;
  }
  const std::string body = "{\"error\":\"too many connections, try again later\",\"code\":\"try_later\"}";
  const std::string answer =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  const ssize_t ignored = ::send(socket.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  static_cast<void>(ignored);
  close_gently(socket.native_handle());
}

void HttpBootstrapServer::Impl::close() {
  acceptor->close();
  for (Connection* connection : connections) connection->close();
}

void HttpBootstrapServer::Impl::note_stranger(const std::string& peer, const std::string& what) {
  const auto level = std::exchange(stranger_logged, true) ? spdlog::level::debug : spdlog::level::warn;
  os::log().log(level, "bootstrap server: {} {}", peer, what);
}

HttpBootstrapServer::HttpBootstrapServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpBootstrapServer::~HttpBootstrapServer() { impl_->close(); }

Result<std::unique_ptr<HttpBootstrapServer>> HttpBootstrapServer::open(asio::io_context& loop, const Address& address,
                                                                       const Settings& settings, HttpLimits limits) {
  auto impl = std::make_shared<Impl>(settings, limits);
  KVF_TRY(acceptor, Acceptor::open(loop, address, settings, [weak = std::weak_ptr<Impl>(impl)](tcp::socket socket) {
            if (auto alive = weak.lock()) alive->accept(alive, std::move(socket));
          }));
  impl->acceptor = std::move(acceptor);
  return std::unique_ptr<HttpBootstrapServer>(new HttpBootstrapServer(std::move(impl)));
}

Address HttpBootstrapServer::address() const { return impl_->acceptor->address(); }

}  // namespace kvferry::net
