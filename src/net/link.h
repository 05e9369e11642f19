// One control connection: framed messages over TCP, on the control thread's loop. Nothing is queued past its life.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/ids.h"
#include "kvferry/result.h"
#include "kvferry/settings.h"
#include "layout/pages.h"
#include "os/fd.h"
#include "protocol/messages.h"

namespace kvferry::net {

class Link;

// Called on the control thread only. A handler may close or release the link from inside any of these calls; it
// destroys it only outside of them.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // `payload` is valid during the call only.
  virtual void on_message(Link& link, protocol::Message message, std::span<const std::byte> payload) = 0;
  // Every message that one read brought has been handed over: time to turn the core and flush.
  virtual void on_batch_end(Link& link) = 0;
  // Once: the connection ended (`peer_lost`), or the peer said what cannot be (`protocol`). Not after close().
  virtual void on_closed(Link& link, Error error) = 0;
};

class Link {
 public:
  // Takes over a connected socket (TCP_NODELAY and keep-alive are set here) and starts to read at start().
  Link(LinkId id, boost::asio::ip::tcp::socket socket);
  ~Link();
  Link(const Link&) = delete;

  void start(LinkHandler& handler);
  // From the next message on; also from inside a callback of the handler before it.
  void set_handler(LinkHandler& handler);
  LinkId id() const;
  // The peer's address as the kernel sees it, "10.0.0.7:41822".
  const std::string& peer() const;
  bool peer_is_private() const;

  // Frames above this size end the link; small until the handshake has proven the peer.
  void set_body_bytes_max(std::uint32_t bytes);
  // Appends a frame to the output; the payload's pieces are copied. Leaves with the next flush(). Dropped after close.
  void send(const protocol::Message& message, std::span<const layout::Piece> payload = {});
  // Writes what the socket takes now, the rest as it becomes writable.
  void flush();
  std::size_t bytes_queued() const;
  // Ends the connection at once; what was flushed before is still delivered where the kernel has taken it. Idempotent.
  void close();
  // Stops reading and hands the socket over, non-blocking, for a data stream. `protocol` where bytes arrived too early.
  Result<os::Fd> release_socket();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the completion handlers that are under way
};

// Connects, trying every address of the name in turn, `timeout` for all of them together. `done` is called once on the
// loop, with a connected socket or `unreachable` (resolve, refused, timeout) naming the address. The returned call
// cancels: `done` is not called after it.
std::function<void()> dial(boost::asio::io_context& loop, const Address& address, Settings::Millis timeout,
                           std::function<void(Result<boost::asio::ip::tcp::socket>)> done);

// Listens for links. Takes its address back at once after a restart; `unreachable` where it cannot be bound (port in
// use named), `unauthorized` for a public address without a token and without allow_public.
class Listener {
 public:
  using Accept = std::function<void(boost::asio::ip::tcp::socket)>;
  static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& loop, const Address& address,
                                                const Settings& settings, Accept accept);
  ~Listener();
  // The address that was really bound.
  Address address() const;

 private:
  struct Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the accept handler that is under way
};

}  // namespace kvferry::net
