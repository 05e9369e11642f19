// One rank: a core with the real Driver, its movers, its memory, its incarnation. Killed, stopped and continued.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/driver.h"
#include "core/receiver_core.h"
#include "core/sender_core.h"
#include "sim/memory.h"
#include "sim/mover.h"

namespace kvferry::sim {

class World;

class Process final : public core::Ports {
 public:
  Process(World& world, bool prefill_role, std::size_t place, std::uint64_t number, Address where);

  // ---- What the world does to it. ----
  void kill();
  void stop();
  void go_on();
  // Now, or when it goes on; never where it is dead.
  void run(std::function<void()> what);
  void run_at(Instant when, std::function<void()> what);
  // A same-host peer that is watched until it exits.
  void met(const Process& peer, core::DataPath path);
  void peer_exited(const Process& peer);

  // ---- Into the core: the next turn takes it. ----
  template <class Event>
  void post(Event event) {
    if (is_prefill) {
      if constexpr (std::is_constructible_v<core::SenderEvent, Event>) sender_events_.emplace_back(std::move(event));
    } else {
      if constexpr (std::is_constructible_v<core::ReceiverEvent, Event>) {
        receiver_events_.emplace_back(std::move(event));
      }
    }
    turn_soon();
  }
  template <class Event>
  void post_mover(Event event) {
    post(core::MoverEvent{std::move(event)});
  }
  void receive(SessionId session, protocol::Message message, const std::vector<std::uint64_t>& payload);

  std::string name() const;
  protocol::Identity identity() const;
  layout::Shape shape() const;
  Network& network();
  std::optional<std::string> pending() const;
  std::optional<std::string> held() const;

  World& world;
  const bool is_prefill;
  const std::size_t slot;
  const std::uint64_t id;
  const std::uint64_t start_number;
  const Address address;
  bool alive = true;
  bool stopped = false;
  bool listens = true;
  PageMemory memory;
  Mover mover;

  void perform(core::effect::Send& e) override;
  void perform(core::effect::SendInline& e) override;
  void perform(core::effect::CloseSession& e) override;
  void perform(core::effect::FetchSizes& e) override;
  void perform(core::effect::FetchRoute& e) override;
  void perform(core::effect::Dial& e) override;
  void perform(core::effect::OpenWindow& e) override;
  void perform(core::effect::CloseWindow& e) override;
  void perform(core::effect::Move& e) override;
  void perform(core::effect::Sum& e) override;
  void perform(core::effect::StopMoves& e) override;
  void perform(core::effect::CloseMoverSession& e) override;
  void perform(core::effect::RoomChanged& e) override;
  void perform(core::effect::PagesReleased& e) override;
  void perform(core::effect::PrefixKnown& e) override;
  void perform(core::effect::ChunksTaken& e) override;
  void perform(core::effect::BytesMoved& e) override;
  void perform(core::effect::LayersReceived& e) override;
  void perform(core::effect::HandleDone& e) override;
  void perform(core::effect::Note& e) override;
  void wake_at(Instant deadline) override;

 private:
  void turn_soon();
  void turn();
  void place_inline(SessionId session, const protocol::Inline& message, const std::vector<std::uint64_t>& payload);

  std::optional<core::Driver<core::SenderCore, core::SenderEvent>> sender_;
  std::optional<core::Driver<core::ReceiverCore, core::ReceiverEvent>> receiver_;
  std::vector<core::SenderEvent> sender_events_;
  std::vector<core::ReceiverEvent> receiver_events_;
  bool turn_asked_ = false;
  Instant wake_ = Instant::max();
  std::deque<std::function<void()>> paused_;           // what happens to it while it is stopped
  std::map<TransferId, core::Window> inline_windows_;  // of the control thread
  std::map<std::uint64_t, Incarnation> met_;           // same-host peers, by process
};

}  // namespace kvferry::sim
