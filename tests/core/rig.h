// One core under test: events go in, effects come out as lines, the invariants are checked after every turn.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/effect_text.h"
#include "core/receiver_core.h"
#include "core/sender_core.h"

namespace kvferry::core {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

template <class Core, class Event>
class Rig {
 public:
  explicit Rig(Core core) : core_(std::move(core)) {}

  Lines on(Event event) {
    Effects effects;
    core_.on(std::move(event), now_, effects);
    core_.check();
    return texts(effects);
  }
  Lines hear(std::uint64_t session, protocol::Message message) {
    return on(event::Received{SessionId{session}, std::move(message)});
  }
  // Lets time pass from deadline to deadline. Pings are answered at once and not shown, unless the peers are silent.
  Lines wait(Duration duration) {
    const Instant until = now_ + duration;
    Lines lines;
    while (core_.next_deadline() <= until) {
      now_ = std::max(now_, core_.next_deadline());
      Effects effects;
      core_.on_time(now_, effects);
      core_.check();
      for (Effect& effect : effects) {
        const auto* send = std::get_if<effect::Send>(&effect);
        const auto* ping = send == nullptr ? nullptr : std::get_if<protocol::Ping>(&send->message);
        if (ping != nullptr && !silent) {
          Effects none;
          core_.on(event::Received{send->session, protocol::Pong{ping->number}}, now_, none);
          EXPECT_TRUE(none.empty());
        } else {
          lines.push_back(effect_text(effect));
        }
      }
    }
    now_ = until;
    return lines;
  }
  // The driver is late: what was due in between is done once, at the end.
  Lines late(Duration duration) {
    now_ += duration;
    Effects effects;
    core_.on_time(now_, effects);
    core_.check();
    return texts(effects);
  }

  const Core& core() const { return core_; }
  Instant now() const { return now_; }
  bool silent = false;  // nobody answers pings

 private:
  static Lines texts(const Effects& effects) {
    Lines lines;
    for (const Effect& effect : effects) lines.push_back(effect_text(effect));
    return lines;
  }

  Core core_;
  Instant now_{seconds(1000)};
};

// Two kv regions of 100-byte pages, an aux record of 10 bytes, one state component of 20-byte items.
inline layout::Shape small_shape();
// Between two ranks of that shape.
inline layout::Pairing whole_pairing() {
  return *layout::pair_ranks({small_shape(), Place{}}, {small_shape(), Place{}});
}
inline layout::Shape small_shape() {
  layout::Shape shape;
  shape.kv_item_bytes = {100, 100};
  shape.aux_item_bytes = {10};
  shape.state = {{.item_bytes = {20}}};
  return shape;
}

// Rooms of these tests travel by the session's path, unless a test says otherwise.
inline Limits no_inline() {
  Limits limits;
  limits.inline_bytes_max = 0;
  limits.queued_interval = std::chrono::hours(10);  // notices are shown by the test that is about them
  return limits;
}

inline Limits verifying() {
  Limits limits = no_inline();
  limits.verify = true;
  return limits;
}

class SenderRig : public Rig<SenderCore, SenderEvent> {
  struct Counts {
    std::uint64_t announced = 0;
    std::uint64_t sent = 0;
  };
  std::map<std::uint64_t, Counts> counts_;

 public:
  explicit SenderRig(const Limits& limits = no_inline()) : Rig(SenderCore(limits, small_shape())) {}

  // A decode rank links: session n is incarnation n of "decode", place tp n, unless said otherwise.
  Lines link(std::uint64_t session, DataPath path = DataPath::push, std::string instance = "decode") {
    return link_as(session, identity(session, std::move(instance)), path);
  }
  Lines link_as(std::uint64_t session, protocol::Identity peer, DataPath path = DataPath::push) {
    return link_paired(session, std::move(peer), path, whole_pairing());
  }
  Lines link_paired(std::uint64_t session, protocol::Identity peer, DataPath path, layout::Pairing pairing) {
    return on(event::SessionUp{SessionId{session}, std::move(peer), "d" + number(session), path, std::nullopt,
                               std::move(pairing)});
  }
  static protocol::Identity identity(std::uint64_t n, std::string instance = "decode") {
    protocol::Identity peer;
    peer.instance = std::move(instance);
    peer.place.tp = static_cast<std::uint32_t>(n);
    peer.incarnation = Incarnation{{0, n}};
    peer.start_number = 100;
    return peer;
  }
  Lines down(std::uint64_t session) {
    return on(event::SessionDown{SessionId{session}, Error{Code::peer_lost, "connection reset"}});
  }
  // Handle h is room h unless a second use is meant.
  Lines open(std::uint64_t handle, std::uint64_t room) { return on(event::OpenSender{HandleId{handle}, RoomId{room}}); }
  Lines init(std::uint64_t handle, std::uint64_t pages, std::optional<std::int32_t> aux = {}) {
    counts_[handle].announced = pages;
    return on(event::InitSender{HandleId{handle}, pages, aux});
  }
  // The next pages; the last ones of those that were announced end the room.
  Lines send(std::uint64_t handle, std::vector<std::int32_t> pages, std::vector<std::vector<std::int32_t>> state = {}) {
    Counts& counts = counts_[handle];
    const std::uint64_t first = std::exchange(counts.sent, counts.sent + pages.size());
    return on(event::SendChunk{.handle = HandleId{handle},
                               .pages = std::move(pages),
                               .first_page = first,
                               .state = std::move(state),
                               .last = counts.sent == counts.announced});
  }
  // Pages of some layers; the caller says where they belong.
  Lines send_layers(std::uint64_t handle, std::vector<std::int32_t> pages, std::uint64_t first_page,
                    const layout::Range& layers, bool last = false) {
    return on(event::SendChunk{.handle = HandleId{handle},
                               .pages = std::move(pages),
                               .first_page = first_page,
                               .layers = layers,
                               .last = last});
  }
  Lines abort(std::uint64_t handle) { return on(event::AbortRoom{HandleId{handle}, "gone"}); }
  Lines clear(std::uint64_t handle) { return on(event::ClearRoom{HandleId{handle}}); }
  static protocol::Grant make_grant(std::uint64_t room, std::uint64_t transfer, std::uint64_t total,
                                    std::uint64_t prefix = 0) {
    protocol::Grant grant;
    grant.room = RoomId{room};
    grant.transfer = TransferId{transfer};
    grant.total_pages = total;
    grant.prefix_pages = prefix;
    return grant;
  }
  Lines grant(std::uint64_t session, std::uint64_t room, std::uint64_t transfer, std::uint64_t total,
              std::uint64_t prefix = 0) {
    return hear(session, make_grant(room, transfer, total, prefix));
  }
  // Opens, grants over `session` and announces: the room waits for its first chunk.
  void ready(std::uint64_t handle, std::uint64_t room, std::uint64_t session, std::uint64_t transfer,
             std::uint64_t pages) {
    open(handle, room);
    grant(session, room, transfer, pages);
    init(handle, pages);
  }
  Lines pushed(std::uint64_t session, std::uint64_t transfer, std::uint32_t chunk, std::uint64_t bytes = 0) {
    return on(MoverEvent{Pushed{SessionId{session}, TransferId{transfer}, chunk, bytes}});
  }
  Lines stopped(std::uint64_t session, std::uint64_t transfer) {
    return on(MoverEvent{Stopped{SessionId{session}, TransferId{transfer}}});
  }
};

inline Address bootstrap_address(std::string host = "10.0.0.1", std::uint16_t port = 80) {
  return Address{std::move(host), port};
}

class ReceiverRig : public Rig<ReceiverCore, ReceiverEvent> {
 public:
  explicit ReceiverRig(const Limits& limits = no_inline(), layout::Shape shape = small_shape())
      : Rig(ReceiverCore(limits, std::move(shape), Place{})) {}

  Lines open(std::uint64_t handle, std::uint64_t room, Address bootstrap = bootstrap_address(),
             std::optional<std::uint32_t> dp_rank = {}) {
    return on(
        event::OpenReceiver{HandleId{handle}, RoomId{room}, TransferId{handle * 10}, std::move(bootstrap), dp_rank});
  }
  Lines init(std::uint64_t handle, std::vector<std::int32_t> pages, std::optional<std::int32_t> aux = {},
             std::uint64_t prefix = 0, std::vector<std::vector<std::int32_t>> state = {}) {
    return on(event::InitReceiver{HandleId{handle}, std::move(pages), aux, prefix, std::move(state)});
  }
  Lines abort(std::uint64_t handle) { return on(event::AbortRoom{HandleId{handle}, "gone"}); }
  Lines clear(std::uint64_t handle) { return on(event::ClearRoom{HandleId{handle}}); }

  static PeerKey key(const Address& bootstrap = bootstrap_address(), std::uint32_t dp = 0) {
    return PeerKey{bootstrap, Place{.dp = dp}};
  }
  Lines sizes(const Address& bootstrap = bootstrap_address(), std::uint32_t dp = 1, std::string instance = "prefill") {
    return on(event::SizesFetched{bootstrap, InstanceSizes{Parallel{.dp = dp}, std::move(instance)}});
  }
  Lines sizes_failed(Error error, const Address& bootstrap = bootstrap_address()) {
    return on(event::SizesFetched{bootstrap, std::move(error)});
  }
  Lines route(std::uint64_t incarnation, const PeerKey& peer = key(), std::string instance = "prefill") {
    return on(event::RouteFetched{
        peer, Route{Address{"10.0.0.9", 9000}, std::move(instance), Incarnation{{0, incarnation}}}});
  }
  Lines route_failed(Error error, const PeerKey& peer = key()) {
    return on(event::RouteFetched{peer, std::move(error)});
  }
  Lines up(std::uint64_t session, std::uint64_t incarnation, DataPath path = DataPath::push,
           const PeerKey& peer = key()) {
    return up_paired(session, incarnation, path, peer, whole_pairing());
  }
  Lines up_paired(std::uint64_t session, std::uint64_t incarnation, DataPath path, const PeerKey& peer,
                  layout::Pairing pairing) {
    return on(event::SessionUp{SessionId{session}, identity(incarnation, peer.place), "p" + number(session), path, peer,
                               std::move(pairing)});
  }
  static protocol::Identity identity(std::uint64_t incarnation, Place place = {}) {
    protocol::Identity peer;
    peer.instance = "prefill";
    peer.place = place;
    peer.incarnation = Incarnation{{0, incarnation}};
    peer.start_number = 100;
    return peer;
  }
  Lines dial_failed(Error error, const PeerKey& peer = key()) { return on(event::DialFailed{peer, std::move(error)}); }
  Lines down(std::uint64_t session) {
    return on(event::SessionDown{SessionId{session}, Error{Code::peer_lost, "connection reset"}});
  }
  // The first room of a test: links session 1 to incarnation 1.
  void link(std::uint64_t handle, std::uint64_t room, DataPath path = DataPath::push) {
    open(handle, room);
    sizes();
    route(1);
    up(1, 1, path);
  }
  static protocol::ChunkSpan span(std::uint32_t chunk, std::uint64_t begin, std::uint64_t end, bool last) {
    return {chunk, begin, end, 0, 2, last};
  }
  Lines placed(std::uint64_t transfer, const protocol::ChunkSpan& chunk, bool aux = false,
               std::vector<std::uint64_t> state = {}, std::uint64_t session = 1) {
    return on(MoverEvent{Placed{SessionId{session}, TransferId{transfer}, chunk, aux, std::move(state),
                                (chunk.position_end - chunk.position_begin) * 200}});
  }
  Lines window_closed(std::uint64_t transfer, std::uint64_t session = 1) {
    return on(MoverEvent{WindowClosed{SessionId{session}, TransferId{transfer}}});
  }
  Lines session_closed(std::uint64_t session) { return on(MoverEvent{SessionClosed{SessionId{session}}}); }
  Lines hear_abort(std::uint64_t room, std::uint64_t transfer, Code code = Code::aborted, std::string text = "gone") {
    return hear(1, protocol::Abort{RoomId{room}, TransferId{transfer}, code, std::move(text)});
  }
};

}  // namespace kvferry::core
