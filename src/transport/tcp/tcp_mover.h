// Moves chunks over long-lived TCP streams: the sender pushes, the receiver places every frame straight into the
// granted pages. One stream a session, served by one of the data threads; sockets never block, so no session holds up
// another.
#pragma once

#include <cstdint>
#include <memory>

#include "layout/view.h"
#include "os/fd.h"
#include "transport/mover.h"

namespace kvferry::transport {

class TcpMover : public Mover {
 public:
  // `sink` outlives the mover. Data threads start with the first session.
  static std::unique_ptr<TcpMover> create(std::uint32_t data_threads, MoverSink& sink);
  // Takes over a connected stream socket that has nothing unread. Sender or receiver alike.
  // The memory behind `view` outlives the session.
  virtual void open_session(SessionId session, os::Fd stream, layout::View view) = 0;
};

}  // namespace kvferry::transport
