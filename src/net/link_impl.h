// The inside of a link. Reading is in link_read.cpp, writing in link_write.cpp, its life in link.cpp.
#pragma once

#include "net/input_buffer.h"
#include "net/link.h"
#include "protocol/codec.h"

namespace kvferry::net {

// Shared by the completion handlers that are under way; a closed one does nothing any more.
struct Link::Impl : std::enable_shared_from_this<Link::Impl> {
  Impl(Link& owner, LinkId id, boost::asio::ip::tcp::socket socket);

  bool open() const { return owner_ != nullptr; }
  void close();
  void fail(Error error);
  Result<os::Fd> release_socket();

  // link_read.cpp
  void wait_readable();
  void read_once();
  // Hands over every whole frame; how many there were.
  std::size_t parse();
  void refuse_bytes(Error error);

  // link_write.cpp
  void append(const protocol::Message& message, std::span<const layout::Piece> payload);
  void flush();
  void write_some();
  void wait_writable();
  void write_failed(int error);

 private:
  friend class Link;  // the handle looks at what it holds

  Link* owner_;  // null once closed
  LinkHandler* handler_ = nullptr;
  const LinkId id_;
  boost::asio::ip::tcp::socket socket_;
  Address peer_address_;
  std::string peer_;
  bool heard_ = false;  // at least one frame was understood
  std::uint32_t body_bytes_max_ = protocol::handshake_body_bytes_max;
  InputBuffer input_;
  std::vector<std::byte> collecting_;  // frames since the last flush
  std::vector<std::byte> leaving_;     // frames that the socket has not taken yet, from leaving_begin_ on
  std::size_t leaving_begin_ = 0;
  bool waiting_writable_ = false;
  bool flush_wanted_ = false;  // a flush came while leaving_ was not empty
  bool write_failed_ = false;
};

}  // namespace kvferry::net
