#include "sim/process.h"

#include <algorithm>

#include "base/assert.h"
#include "base/crc32c.h"
#include "sim/world.h"

namespace kvferry::sim {

using std::chrono::microseconds;

namespace {

// Grows from process to process, but for a wall clock that has gone back.
std::uint64_t draw_start_number(World& world, std::uint64_t number) {
  const std::uint64_t now = 1000 * number;
  return world.swarm.jump && world.prng.percent(50) ? world.prng.between(1, now) : now;
}

}  // namespace

Process::Process(World& in, bool prefill_role, std::size_t place, std::uint64_t number, Address where)
    : world(in),
      is_prefill(prefill_role),
      slot(place),
      id(number),
      start_number(draw_start_number(in, number)),
      address(std::move(where)),
      mover(in, *this) {
  listens = is_prefill;
  if (is_prefill) {
    sender_.emplace(core::SenderCore(world.limits, shape()), *this);
  } else {
    receiver_.emplace(core::ReceiverCore(world.limits, shape(), identity().place), *this);
  }
}

std::string Process::name() const { return (is_prefill ? "P" : "D") + std::to_string(slot) + "." + std::to_string(id); }

protocol::Identity Process::identity() const {
  protocol::Identity identity;
  identity.instance = is_prefill ? world.instance_of(slot) : "decode-" + std::to_string(slot);
  if (is_prefill && world.swarm.one_instance) identity.place.dp = static_cast<std::uint32_t>(slot);
  identity.incarnation = Incarnation{{0xabc, id}};
  identity.start_number = start_number;
  return identity;
}

layout::Shape Process::shape() const {
  layout::Shape shape = layout::shape_of(memory.regions(), KvFormat{}, Parallel{});
  if (is_prefill) shape.parallel.dp = world.dp_size();
  return shape;
}

Network& Process::network() { return world.network; }

std::optional<std::string> Process::pending() const {
  return is_prefill ? sender_->core().pending() : receiver_->core().pending();
}

std::optional<std::string> Process::held() const {
  if (const auto held = is_prefill ? sender_->core().held() : receiver_->core().held()) return held;
  const core::Counters counters = is_prefill ? sender_->core().counters() : receiver_->core().counters();
  if (counters.quarantined_pages != 0) return std::to_string(counters.quarantined_pages) + " quarantined pages";
  if (counters.rooms_live != 0) return std::to_string(counters.rooms_live) + " rooms that are counted live";
  if (!inline_windows_.empty()) return std::to_string(inline_windows_.size()) + " windows of the control thread";
  return std::nullopt;
}

void Process::kill() {
  world.judge.tell(0, name() + " is killed");
  alive = false;
  paused_.clear();
  world.network.died(*this);
}

void Process::stop() {
  world.judge.tell(0, name() + " is stopped");
  stopped = true;
}

void Process::go_on() {
  if (!alive || !stopped) return;
  world.judge.tell(0, name() + " goes on");
  stopped = false;
  turn_soon();
  // Data threads and sockets have much to do at once; the order among them is the kernel's.
  for (std::function<void()>& what : std::exchange(paused_, {})) {
    run_at(world.schedule.now() + microseconds(1), std::move(what));
  }
}

void Process::run(std::function<void()> what) {
  if (!alive) return;
  if (stopped) {
    paused_.push_back(std::move(what));
  } else {
    what();
  }
}

void Process::run_at(Instant when, std::function<void()> what) {
  world.schedule.at(when, [this, then = std::move(what)]() mutable { run(std::move(then)); });
}

void Process::met(const Process& peer, core::DataPath path) {
  if (path == core::DataPath::pull) met_[peer.id] = peer.identity().incarnation;
}

void Process::peer_exited(const Process& peer) {
  const auto entry = met_.find(peer.id);
  if (entry == met_.end()) return;
  run_at(world.schedule.now() + world.latency(),
         [this, incarnation = entry->second] { post(core::event::PeerExited{incarnation}); });
}

void Process::turn_soon() {
  if (std::exchange(turn_asked_, true)) return;
  run_at(world.schedule.now() + microseconds(world.prng.between(1, 60)), [this] { turn(); });
}

void Process::turn() {
  turn_asked_ = false;
  world.judge.mix(id);
  world.judge.mix(static_cast<std::uint64_t>(world.schedule.now().time_since_epoch().count()));
  try {
    if (is_prefill) {
      sender_->turn(sender_events_, world.schedule.now());
      sender_->core().check();
    } else {
      receiver_->turn(receiver_events_, world.schedule.now());
      receiver_->core().check();
    }
  } catch (const AssertionFailed& failed) {
    world.judge.violation(
        0, name() + " failed an assertion: " + failed.what + " at " + failed.file + ":" + std::to_string(failed.line));
  }
}

void Process::wake_at(Instant deadline) {
  if (world.options.plant == Plant::deaf_to_time) return;
  if (deadline == wake_) return;
  wake_ = deadline;
  if (deadline == Instant::max()) return;
  run_at(deadline, [this, deadline] {
    if (wake_ != deadline) return;
    wake_ = Instant::max();
    turn();
  });
}

void Process::receive(SessionId session, protocol::Message message, const std::vector<std::uint64_t>& payload) {
  if (world.judge.telling()) world.tell_message(*this, message, "receives");
  if (const auto* inlined = std::get_if<protocol::Inline>(&message)) return place_inline(session, *inlined, payload);
  post(core::event::Received{session, std::move(message)});
}

// Small rooms are placed by the control thread itself.
void Process::place_inline(SessionId session, const protocol::Inline& message,
                           const std::vector<std::uint64_t>& payload) {
  const auto entry = inline_windows_.find(message.transfer);
  if (entry == inline_windows_.end() || entry->second.session != session) return;
  const core::Window& window = entry->second;
  core::Placed placed{session, message.transfer, message.span};
  placed.state_items.resize(1, 0);
  std::size_t at = 0;
  for (const core::ItemList& list : window.lists) {
    const bool kv = list.component == layout::component_kv;
    if (!kv && !message.span.last) continue;
    std::vector<std::int32_t> items = list.items;
    if (kv) {
      const auto begin = static_cast<std::ptrdiff_t>(message.span.position_begin - window.first_position);
      const auto end = static_cast<std::ptrdiff_t>(message.span.position_end - window.first_position);
      if (begin < 0 || end > static_cast<std::ptrdiff_t>(items.size())) {
        return post_mover(core::Rejected{session, message.transfer, Error{Code::out_of_range, "past its window"}});
      }
      items.assign(list.items.begin() + begin, list.items.begin() + end);
    }
    const std::size_t words = items.size() * layout::component_regions(memory.regions(), list.component).size();
    if (at + words > payload.size()) {
      return post_mover(core::Rejected{session, message.transfer, Error{Code::protocol, "fewer bytes than granted"}});
    }
    const auto first = payload.begin() + static_cast<std::ptrdiff_t>(at);
    world.judge.on_write(*this, list.component, items, message.transfer);
    memory.write(list.component, items, {first, first + static_cast<std::ptrdiff_t>(words)});
    at += words;
    if (list.component == layout::component_aux) placed.with_aux = true;
    if (list.component == layout::component_state) placed.state_items[0] = items.size();
  }
  placed.bytes = at * sizeof(std::uint64_t);
  post_mover(std::move(placed));
}

void Process::perform(core::effect::Send& e) {
  if (world.judge.telling()) world.tell_message(*this, e.message, "sends");
  world.network.send(*this, e.session, e.message);
}

void Process::perform(core::effect::SendInline& e) {
  std::vector<std::uint64_t> payload;
  for (const core::ItemList& list : e.order.lists) {
    world.judge.on_read(*this, list.component, list.items, e.order.transfer);
    const std::vector<std::uint64_t> values = memory.read(list.component, list.items);
    payload.insert(payload.end(), values.begin(), values.end());
  }
  const protocol::Message message{protocol::Inline{e.order.transfer, e.order.span}};
  if (world.judge.telling()) world.tell_message(*this, message, "sends");
  world.network.send(*this, e.order.session, message, payload);
}

void Process::perform(core::effect::CloseSession& e) {
  world.network.close(*this, e.session);
  if (world.options.plant != Plant::prefix_addresses || is_prefill) return;
  for (const SessionId session : world.sessions_with_prefix_of(*this, e.session)) {
    post(core::event::SessionDown{session, Error{Code::peer_lost, "its address begins alike"}});
  }
}

void Process::perform(core::effect::FetchSizes& e) { world.bootstrap_sizes(*this, e.bootstrap); }
void Process::perform(core::effect::FetchRoute& e) { world.bootstrap_route(*this, e.key); }
void Process::perform(core::effect::Dial& e) { world.network.dial(*this, e.key, e.route); }

void Process::perform(core::effect::OpenWindow& e) {
  if (e.inlined) {
    const TransferId transfer = e.window.transfer;
    inline_windows_[transfer] = std::move(e.window);
  } else {
    mover.open_window(std::move(e.window));
  }
}

void Process::perform(core::effect::CloseWindow& e) {
  if (!e.inlined) return mover.close_window(e.session, e.transfer);
  inline_windows_.erase(e.transfer);
  post_mover(core::WindowClosed{e.session, e.transfer});
}

void Process::perform(core::effect::Move& e) { mover.move(std::move(e.order)); }
// Reads all of it a little later, when whoever was given the pages too early would have written there.
void Process::perform(core::effect::Sum& e) {
  run_at(world.schedule.now() + world.copy_time(), [this, order = std::move(e.order)] {
    std::uint32_t sum = 0;
    for (const core::ItemList& list : order.lists) {
      world.judge.on_read(*this, list.component, list.items, order.transfer);
      for (const std::uint64_t word : memory.read(list.component, list.items)) {
        sum = crc32c(std::as_bytes(std::span(&word, 1)), sum);
      }
    }
    post_mover(core::Summed{order.session, order.transfer, sum});
  });
}

void Process::perform(core::effect::StopMoves& e) { mover.stop(e.session, e.transfer); }
void Process::perform(core::effect::CloseMoverSession& e) { mover.close_session(e.session); }

void Process::perform(core::effect::RoomChanged& e) { world.engine.changed(*this, e.handle, e.state, e.error); }
void Process::perform(core::effect::PagesReleased& e) { world.engine.released(*this, e.handle); }
void Process::perform(core::effect::PrefixKnown& e) { world.engine.prefix_known(*this, e.handle, e.prefix_pages); }
void Process::perform(core::effect::ChunksTaken& e) { world.judge.mix(e.count); }
void Process::perform(core::effect::BytesMoved& e) { world.judge.mix(e.bytes); }
void Process::perform(core::effect::LayersReceived& e) { world.judge.mix(e.count); }
void Process::perform(core::effect::HandleDone& e) { world.judge.mix(e.handle.value); }
void Process::perform(core::effect::Note& e) { world.judge.tell(0, name() + " notes: " + e.text); }

}  // namespace kvferry::sim
