#include "small_world.h"

#include <algorithm>

#include "base/assert.h"
#include "base/match.h"

namespace kvferry::sim {

using core::HandleId;

namespace {

layout::Shape one_region() {
  layout::Shape shape;
  shape.kv_item_bytes = {8};
  return shape;
}

Limits small_limits() {
  Limits limits;
  limits.inline_bytes_max = 0;
  return limits;
}

const Address bootstrap{"10.0.0.1", 80};
const Incarnation prefill_process{{0, 1}};

}  // namespace

SmallWorld::SmallWorld(const Story& story)
    : story_(story),
      limits_(small_limits()),
      sender_(limits_, one_region()),
      receiver_(limits_, one_region(), Place{}),
      sending_(story.uses),
      receiving_(story.uses) {
  if (!story_.linked) return;
  engine_step(false, false);
  while (!receiver_mover_.empty() || !to_receiver_.empty() || !to_sender_.empty()) {
    enabled();
    happen(0);
  }
}

void SmallWorld::fault(std::string text) {
  if (wrong_.empty()) wrong_ = std::move(text);
}

void SmallWorld::on_sender(core::SenderEvent event) {
  core::Effects effects;
  sender_.on(std::move(event), now_, effects);
  sender_.check();
  perform(effects, true);
}

void SmallWorld::on_receiver(core::ReceiverEvent event) {
  core::Effects effects;
  receiver_.on(std::move(event), now_, effects);
  receiver_.check();
  perform(effects, false);
}

bool SmallWorld::linked(bool /*at_sender*/, SessionId session) const { return session.value == session_; }

void SmallWorld::perform(core::Effects& effects, bool at_sender) {
  using namespace core::effect;
  for (core::Effect& effect : effects) {
    std::visit(
        match{
            [&](Send& e) {
              if (!linked(at_sender, e.session)) return;
              if (at_sender) {
                to_receiver_.push_back(core::event::Received{e.session, std::move(e.message)});
              } else {
                to_sender_.push_back(core::event::Received{e.session, std::move(e.message)});
              }
            },
            [&](SendInline& e) {
              data_.push_back(Frame{e.order.transfer, e.order.span});
            },
            [&](CloseSession& e) {
              if (linked(at_sender, e.session)) link_lost();
            },
            [&](FetchSizes& e) {
              receiver_mover_.push_back(core::event::SizesFetched{e.bootstrap, core::InstanceSizes{{}, "prefill"}});
            },
            [&](FetchRoute& e) {
              receiver_mover_.push_back(
                  core::event::RouteFetched{e.key, core::Route{Address{"10.1.0.1", 9000}, "prefill", prefill_process}});
            },
            [&](Dial& e) {
              session_ = ++sessions_;
              const layout::Pairing pairing = *layout::pair_ranks({one_region(), Place{}}, {one_region(), Place{}});
              protocol::Identity decode{"decode", {}, Incarnation{{0, 2}}, 1};
              protocol::Identity prefill{"prefill", {}, prefill_process, 1};
              to_sender_.push_back(core::event::SessionUp{SessionId{session_}, decode, "d", story_.path, {}, pairing});
              to_receiver_.push_back(
                  core::event::SessionUp{SessionId{session_}, prefill, "p", story_.path, e.key, pairing});
            },
            [&](OpenWindow& e) { windows_.insert(e.window.transfer); },
            [&](CloseWindow& e) {
              receiver_mover_.push_back(core::MoverEvent{core::WindowClosed{e.session, e.transfer}});
            },
            [&](Move& e) {
              data_.push_back(Frame{e.order.transfer, e.order.span});
              if (at_sender) {
                sender_mover_.push_back(
                    core::MoverEvent{core::Pushed{e.order.session, e.order.transfer, e.order.span.number, 8}});
              }
            },
            [&](Sum& e) {
              const core::MoverEvent summed{core::Summed{e.order.session, e.order.transfer, 7}};
              if (at_sender) {
                sender_mover_.push_back(summed);
              } else {
                receiver_mover_.push_back(summed);
              }
            },
            [&](StopMoves& e) {
              sender_mover_.push_back(core::MoverEvent{core::Stopped{e.session, e.transfer}});
            },
            [&](CloseMoverSession& e) {
              if (at_sender) {
                sender_mover_.push_back(core::MoverEvent{core::SessionClosed{e.session}});
              } else {
                receiver_mover_.push_back(core::MoverEvent{core::SessionClosed{e.session}});
              }
            },
            [&](RoomChanged& e) { changed(at_sender, e.handle, e.state); },
            [&](PagesReleased& e) {
              Use& use = (at_sender ? sending_ : receiving_)[e.handle.value - 1];
              if (use.released) fault("released twice");
              use.released = true;
              if (!at_sender && windows_.contains(TransferId{e.handle.value})) fault("released with an open window");
            },
            [&](PrefixKnown&) {},
            [&](ChunksTaken&) {},
            [&](BytesMoved&) {},
            [&](LayersReceived&) {},
            [&](HandleDone&) {},
            [&](Note&) {},
        },
        effect);
  }
}

void SmallWorld::changed(bool at_sender, HandleId handle, Poll state) {
  Use& use = (at_sender ? sending_ : receiving_)[handle.value - 1];
  if (use.state == Poll::failed || use.state == Poll::success) fault("a concluded room changed");
  if (state != Poll::failed && state <= use.state) fault("a state went back");
  use.state = state;
  std::uint64_t pages = 0;
  for (const std::uint64_t chunk : story_.chunks) pages += chunk;
  if (!at_sender && state == Poll::success && use.placed != pages) fault("success without every page");
  if (at_sender && state == Poll::success && receiving_[handle.value - 1].placed != pages) {
    fault("the sender's success without every page");
  }
}

// Both ends notice, each in its time; what is under way is gone.
void SmallWorld::link_lost() {
  const SessionId session{session_};
  session_ = 0;
  const auto of_link = [](const auto& event) { return std::holds_alternative<core::event::Received>(event); };
  std::erase_if(to_sender_, of_link);
  std::erase_if(to_receiver_, of_link);
  if (story_.path == core::DataPath::push) data_.clear();
  const Error error{Code::peer_lost, "reset"};
  to_sender_.push_back(core::event::SessionDown{session, error});
  to_receiver_.push_back(core::event::SessionDown{session, error});
}

// What the engines do with each use, in order: open, init, chunks, and once it has concluded clear. True where there is
// a step to take.
bool SmallWorld::engine_step(bool at_sender, bool only_ask) {
  std::vector<Use>& uses = at_sender ? sending_ : receiving_;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    Use& use = uses[i];
    if (use.cleared) continue;
    // A number is used again once both sides have cleared it.
    if (i > 0 && !(sending_[i - 1].cleared && receiving_[i - 1].cleared)) return false;
    const HandleId handle{i + 1};
    const bool concluded = use.state == Poll::failed || use.state == Poll::success;
    const std::size_t steps = at_sender ? 2 + story_.chunks.size() : 2;
    if (!concluded && use.step == steps) return false;
    if (only_ask) return true;
    const std::size_t step = use.step++;
    if (concluded) {
      use.cleared = true;
      at_sender ? on_sender(core::event::ClearRoom{handle}) : on_receiver(core::event::ClearRoom{handle});
    } else if (!at_sender) {
      if (step == 0) {
        on_receiver(core::event::OpenReceiver{handle, RoomId{7}, TransferId{i + 1}, bootstrap, {}});
      } else {
        std::vector<std::int32_t> pages;
        for (const std::uint64_t chunk : story_.chunks) pages.resize(pages.size() + chunk);
        on_receiver(core::event::InitReceiver{handle, std::move(pages), {}, 0, {}});
      }
    } else if (step == 0) {
      on_sender(core::event::OpenSender{handle, RoomId{7}});
    } else if (step == 1) {
      std::uint64_t pages = 0;
      for (const std::uint64_t chunk : story_.chunks) pages += chunk;
      on_sender(core::event::InitSender{handle, pages, {}});
    } else {
      std::uint64_t first = 0;
      for (std::size_t before = 0; before < step - 2; ++before) first += story_.chunks[before];
      on_sender(core::event::SendChunk{.handle = handle,
                                       .pages = std::vector<std::int32_t>(story_.chunks[step - 2]),
                                       .first_page = first,
                                       .last = step - 1 == story_.chunks.size()});
    }
    return true;
  }
  return false;
}

std::size_t SmallWorld::enabled() {
  acts_.clear();
  const auto add = [&](bool on, Act act, Trouble kind = Trouble::none) {
    if (on) acts_.emplace_back(act, kind);
  };
  add(!to_sender_.empty(), Act::to_sender);
  add(!to_receiver_.empty(), Act::to_receiver);
  add(!sender_mover_.empty(), Act::sender_mover);
  add(!receiver_mover_.empty(), Act::receiver_mover);
  add(!data_.empty(), Act::data);
  add(engine_step(true, true), Act::sender_engine);
  add(engine_step(false, true), Act::receiver_engine);
  if (acts_.empty() || troubles_ == story_.troubles_max) return acts_.size();
  for (const Trouble kind : story_.troubles) {
    const bool on = kind == Trouble::link_lost       ? session_ != 0
                    : kind == Trouble::sender_aborts ? sending_[0].step > 0
                                                     : receiving_[0].step > 0;
    add(on, Act::trouble, kind);
  }
  return acts_.size();
}

void SmallWorld::happen(std::size_t n) {
  const auto take = [](auto& queue) {
    auto event = std::move(queue.front());
    queue.pop_front();
    return event;
  };
  switch (acts_[n].first) {
    case Act::sender_engine:
      engine_step(true, false);
      break;
    case Act::receiver_engine:
      engine_step(false, false);
      break;
    case Act::to_sender:
      on_sender(take(to_sender_));
      break;
    case Act::to_receiver:
      on_receiver(take(to_receiver_));
      break;
    case Act::sender_mover:
      on_sender(take(sender_mover_));
      break;
    case Act::receiver_mover: {
      core::ReceiverEvent event = take(receiver_mover_);
      if (const auto* mover = std::get_if<core::MoverEvent>(&event)) {
        if (const auto* closed = std::get_if<core::WindowClosed>(mover)) windows_.erase(closed->transfer);
        if (std::holds_alternative<core::SessionClosed>(*mover)) windows_.clear();
      }
      on_receiver(std::move(event));
      break;
    }
    case Act::data: {
      const Frame frame = take(data_);
      if (!windows_.contains(frame.transfer)) break;  // dropped
      Use& use = receiving_[frame.transfer.value - 1];
      if (use.released) fault("a write after the release");
      const std::uint64_t pages = frame.span.position_end - frame.span.position_begin;
      use.placed += pages;
      receiver_mover_.push_back(
          core::MoverEvent{core::Placed{SessionId{sessions_}, frame.transfer, frame.span, false, {}, pages * 8}});
      break;
    }
    case Act::trouble:
      ++troubles_;
      trouble(acts_[n].second);
      break;
  }
}

void SmallWorld::trouble(Trouble kind) {
  if (kind == Trouble::link_lost) return link_lost();
  if (kind == Trouble::sender_aborts) return on_sender(core::event::AbortRoom{HandleId{1}, "gone"});
  on_receiver(core::event::AbortRoom{HandleId{1}, "gone"});
}

std::string SmallWorld::finish() {
  // Nothing is under way but what waits for a limit. The last one frees the engines of both sides.
  for (int round = 0; round < 40 && wrong_.empty(); ++round) {
    while (wrong_.empty() && enabled() > 0) happen(0);
    if (!sender_.pending() && !receiver_.pending() && sending_.back().cleared && receiving_.back().cleared) break;
    const Instant next = std::min(sender_.next_deadline(), receiver_.next_deadline());
    if (next == Instant::max()) break;
    now_ = std::max(now_, next) + std::chrono::seconds(400);
    core::Effects effects;
    sender_.on_time(now_, effects);
    perform(effects, true);
    effects.clear();
    receiver_.on_time(now_, effects);
    perform(effects, false);
  }
  if (const auto pending = receiver_.pending()) fault("the receiver: " + *pending);
  if (const auto pending = sender_.pending()) {
    // A reader whose link was lost frees the pages when it links again or exits.
    on_sender(core::event::PeerExited{Incarnation{{0, 2}}});
    while (wrong_.empty() && enabled() > 0) happen(0);
    if (sender_.pending()) fault("the sender: " + *pending);
  }
  for (std::size_t i = 0; i < story_.uses; ++i) {
    if (troubles_ > 0 || (sending_[i].state == Poll::success && receiving_[i].state == Poll::success)) continue;
    fault("nothing happened, and use " + std::to_string(i + 1) + " did not succeed");
  }
  return wrong_;
}

}  // namespace kvferry::sim
