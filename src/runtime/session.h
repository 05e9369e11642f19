// A linked peer: its control link, its data path, and the watch over its process. Control thread only.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <optional>
#include <string>

#include "core/events.h"
#include "layout/view.h"
#include "net/link.h"
#include "transport/mover.h"

namespace kvferry::runtime {

struct Session {
  SessionId id;
  std::unique_ptr<net::Link> link;
  protocol::Identity peer;
  std::string address;
  std::string transport;             // for people: "tcp", "samehost (process_vm_readv)"
  std::optional<Address> bootstrap;  // decode: the server that it was found through
  // What moves of this side's memory; shared with checksums that are being computed when the session ends.
  std::shared_ptr<const layout::View> view;
  core::DataPath path = core::DataPath::push;
  transport::Mover* mover = nullptr;  // none on the side that is read from
  std::unique_ptr<boost::asio::posix::stream_descriptor> exit_watch;
  bool dirty = false;  // has output to flush
};

}  // namespace kvferry::runtime
