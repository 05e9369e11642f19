// What core orders of a mover and what a mover reports: values that cross the threads.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "kvferry/result.h"
#include "protocol/messages.h"

namespace kvferry::core {

// The items of one component: item i of the list is the i-th granted or sent one.
struct ItemList {
  std::uint32_t component = 0;
  std::vector<std::int32_t> items;
};

// The memory that a grant opens on the receiver. For kv, items[i] is where position `first_position + i` goes.
struct Window {
  SessionId session;
  TransferId transfer;
  std::uint64_t first_position = 0;
  std::vector<ItemList> lists;  // one a granted component
};

// One chunk to move: pushed from these items (tcp, on the sender) or pulled from the peer's (samehost, on the
// receiver).
struct ChunkOrder {
  SessionId session;
  TransferId transfer;
  protocol::ChunkSpan span;
  std::vector<ItemList> lists;  // source items; kv: one a position of the span. aux and state only with the last chunk
};

// Memory of this side to be summed up: the CRC32C of the CRC32Cs of all items, in the order of lists, regions, items.
struct SumOrder {
  SessionId session;
  TransferId transfer;
  std::vector<ItemList> lists;
};

// ---- What movers report. ----
struct Placed {  // receiver: every byte of this chunk is in place
  SessionId session;
  TransferId transfer;
  protocol::ChunkSpan span;
  bool with_aux = false;                        // the chunk brought aux
  std::vector<std::uint64_t> state_items = {};  // items it brought of each state component
  std::uint64_t bytes = 0;
};
struct Progress {  // either side: bytes moved since the last report of this transfer, at most one a MiB
  SessionId session;
  TransferId transfer;
  std::uint64_t bytes = 0;
};
struct Pushed {  // sender: the chunk has left; its pages are not read any more
  SessionId session;
  TransferId transfer;
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
};
struct Stopped {  // sender, the answer to `stop`: nothing of the transfer is read any more
  SessionId session;
  TransferId transfer;
};
struct WindowClosed {  // receiver, the answer to `close_window`: nothing can be written for the transfer any more
  SessionId session;
  TransferId transfer;
};
struct Rejected {  // receiver: something of this transfer does not fit its window, or its source cannot be read
  SessionId session;
  TransferId transfer;
  Error error;
};
struct SessionLost {  // the session's stream or process is gone, or sent what cannot be; once a session
  SessionId session;
  Error error;
};
struct SessionClosed {  // the answer to `close_session`: nothing is read or written for the session any more
  SessionId session;
};
struct Summed {  // the answer to a SumOrder: nothing is read for it any more
  SessionId session;
  TransferId transfer;
  std::uint32_t crc32c = 0;
};
using MoverEvent =
    std::variant<Placed, Progress, Pushed, Stopped, WindowClosed, Rejected, SessionLost, SessionClosed, Summed>;

}  // namespace kvferry::core
