#include "tools/http_get.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace kvferry::tools {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

Error failure(const Address& server, const char* step, const beast::error_code& error,
              std::chrono::milliseconds limit) {
  if (error == beast::error::timeout) {
    return {.code = Code::timeout,
            .text = fmt::format("{} took longer than {} ms", step, limit.count()),
            .peer = server.text()};
  }
  return {.code = Code::unreachable, .text = fmt::format("{}: {}", step, error.message()), .peer = server.text()};
}

}  // namespace

Result<HttpAnswer> http_get(const Address& server, const std::string& target, std::chrono::milliseconds limit) {
  asio::io_context loop;
  beast::tcp_stream stream(loop);
  beast::error_code error;
  // Each step is asynchronous only because the synchronous calls know no deadline.
  auto finish = [&] {
    loop.restart();
    loop.run();
  };
  asio::ip::tcp::resolver resolver(loop);
  auto found = resolver.resolve(server.host, std::to_string(server.port), error);
  if (error) return failure(server, "finding the address", error, limit);
  stream.expires_after(limit);
  stream.async_connect(found, [&](beast::error_code result, const auto&) { error = result; });
  finish();
  if (error) return failure(server, "connecting", error, limit);

  http::request<http::empty_body> request{http::verb::get, target, 11};
  request.set(http::field::host, server.text());
  request.set(http::field::connection, "close");
  http::async_write(stream, request, [&](beast::error_code result, std::size_t) { error = result; });
  finish();
  if (error) return failure(server, "asking", error, limit);

  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  http::async_read(stream, buffer, response, [&](beast::error_code result, std::size_t) { error = result; });
  finish();
  if (error) return failure(server, "waiting for the answer", error, limit);
  std::string body = response.body();
  while (body.ends_with('\n')) body.pop_back();
  return HttpAnswer{static_cast<int>(response.result_int()), body};
}

}  // namespace kvferry::tools
