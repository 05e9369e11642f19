// The mover's contract: finished copy orders go in, completions come out; a mover knows no rooms' states.
//
// Threads: every function of Mover is called by the control thread and never blocks; a mover's own data threads do the
// work and report through MoverSink. Windows are the only permission to write: a mover places nothing outside of one.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "core/orders.h"

namespace kvferry::transport {

// The values are core's: what it orders is what a mover does.
using core::ChunkOrder;
using core::ItemList;
using core::MoverEvent;
using core::Placed;
using core::Progress;
using core::Pushed;
using core::Rejected;
using core::SessionClosed;
using core::SessionLost;
using core::Stopped;
using core::Window;
using core::WindowClosed;

// Takes completions from data threads; may be called from any of them, does not block on the control thread.
class MoverSink {
 public:
  virtual ~MoverSink() = default;
  virtual void post(MoverEvent event) = 0;
};

class Mover {
 public:
  virtual ~Mover() = default;  // joins the data threads; no event is posted after it

  // Receiver. A window is open when the call returns (a frame that arrives later finds it). One a transfer.
  virtual void open_window(Window window) = 0;
  // Answered by WindowClosed, also for a transfer that is not open. Frames of it are dropped from then on.
  virtual void close_window(SessionId session, TransferId transfer) = 0;

  // Queues a chunk of the session; chunks of one transfer are moved in order, sessions are served fairly by bytes.
  virtual void move(ChunkOrder order) = 0;
  // Sender. Answered by Stopped. What is queued for the transfer is dropped.
  virtual void stop(SessionId session, TransferId transfer) = 0;

  // Drops what is queued, closes windows and channel. Answered by SessionClosed, once no byte of the session can move.
  virtual void close_session(SessionId session) = 0;
};

}  // namespace kvferry::transport
