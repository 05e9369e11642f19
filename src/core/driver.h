// Where core meets the world. The runtime and the simulator drive the cores through this very class.
#pragma once

#include <vector>

#include "base/time.h"
#include "core/events.h"

namespace kvferry::core {

// The outside world as core orders it about. Every order has one function, so that a new one does not compile before it
// is performed. Orders are performed one by one, in order, outside of the core; none of them may turn the driver.
class Ports {
 public:
  virtual ~Ports() = default;
  virtual void perform(effect::Send& e) = 0;
  virtual void perform(effect::SendInline& e) = 0;
  virtual void perform(effect::CloseSession& e) = 0;
  virtual void perform(effect::FetchSizes& e) = 0;
  virtual void perform(effect::FetchRoute& e) = 0;
  virtual void perform(effect::Dial& e) = 0;
  virtual void perform(effect::OpenWindow& e) = 0;
  virtual void perform(effect::CloseWindow& e) = 0;
  virtual void perform(effect::Move& e) = 0;
  virtual void perform(effect::Sum& e) = 0;
  virtual void perform(effect::StopMoves& e) = 0;
  virtual void perform(effect::CloseMoverSession& e) = 0;
  virtual void perform(effect::RoomChanged& e) = 0;
  virtual void perform(effect::PagesReleased& e) = 0;
  virtual void perform(effect::PrefixKnown& e) = 0;
  virtual void perform(effect::ChunksTaken& e) = 0;
  virtual void perform(effect::BytesMoved& e) = 0;
  virtual void perform(effect::LayersReceived& e) = 0;
  virtual void perform(effect::HandleDone& e) = 0;
  virtual void perform(effect::Note& e) = 0;
  // Called last in every turn: turn again at `deadline` at the latest (Instant::max(): not by time).
  virtual void wake_at(Instant deadline) = 0;
};

template <class Core, class Event>
class Driver {
 public:
  Driver(Core core, Ports& ports) : core_(std::move(core)), ports_(ports) {}

  // Hands the events over in order (they are consumed), then what is due, then performs what came out.
  void turn(std::vector<Event>& events, Instant now) {
    for (Event& event : events) core_.on(std::move(event), now, effects_);
    events.clear();
    if (core_.next_deadline() <= now) core_.on_time(now, effects_);
    for (Effect& effect : effects_) {
      std::visit([&](auto& order) { ports_.perform(order); }, effect);
    }
    effects_.clear();
    ports_.wake_at(core_.next_deadline());
  }
  const Core& core() const { return core_; }

 private:
  Core core_;
  Ports& ports_;
  Effects effects_;  // kept for its memory
};

}  // namespace kvferry::core
