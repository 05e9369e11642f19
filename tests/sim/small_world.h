// One sender core, one receiver core and what lies between them, small enough to try every order of events.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/receiver_core.h"
#include "core/sender_core.h"

namespace kvferry::sim {

enum class Trouble : std::uint8_t { none, sender_aborts, receiver_aborts, link_lost };

struct Story {
  core::DataPath path = core::DataPath::push;
  std::vector<std::uint64_t> chunks = {1};  // pages each
  std::size_t uses = 1;                     // of the one room number, one after the other
  bool linked = false;                      // the story begins when the receiver has opened the room and is linked
  std::vector<Trouble> troubles = {};       // that may come, at any moment
  std::size_t troubles_max = 0;
};

class SmallWorld {
 public:
  explicit SmallWorld(const Story& story);
  // How many things could happen next; 0 at the end.
  std::size_t enabled();
  // Lets the n-th of them happen.
  void happen(std::size_t n);
  // Time passes until every limit has; then nothing may be under way. Empty, or what did not hold.
  std::string finish();
  const std::string& wrong() const { return wrong_; }

 private:
  struct Use {
    Poll state = Poll::bootstrapping;
    std::size_t step = 0;  // of its engine's script
    bool released = false;
    bool cleared = false;
    std::uint64_t placed = 0;  // pages, by the mover
  };
  struct Frame {
    TransferId transfer;
    protocol::ChunkSpan span;
  };
  enum class Act : std::uint8_t {
    sender_engine,
    receiver_engine,
    to_sender,
    to_receiver,
    sender_mover,
    receiver_mover,
    data,
    trouble
  };

  void on_sender(core::SenderEvent event);
  void on_receiver(core::ReceiverEvent event);
  void perform(core::Effects& effects, bool at_sender);
  void changed(bool at_sender, core::HandleId handle, Poll state);
  void link_lost();
  bool engine_step(bool at_sender, bool only_ask);
  void trouble(Trouble kind);
  void fault(std::string text);
  bool linked(bool at_sender, SessionId session) const;

  const Story story_;
  Limits limits_;
  Instant now_{std::chrono::seconds(1)};
  core::SenderCore sender_;
  core::ReceiverCore receiver_;
  std::uint64_t session_ = 0;  // of the live link at both ends; 0: none
  std::uint64_t sessions_ = 0;
  std::deque<core::SenderEvent> to_sender_, sender_mover_;
  std::deque<core::ReceiverEvent> to_receiver_, receiver_mover_;
  std::deque<Frame> data_;
  std::set<TransferId> windows_;  // open at the receiver's mover
  std::vector<Use> sending_, receiving_;
  std::size_t troubles_ = 0;
  std::vector<std::pair<Act, Trouble>> acts_;
  std::string wrong_;
};

}  // namespace kvferry::sim
