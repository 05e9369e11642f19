#include "sim/network.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/assert.h"
#include "layout/check.h"
#include "protocol/codec.h"
#include "sim/process.h"
#include "sim/world.h"

namespace kvferry::sim {

using std::chrono::microseconds;
using std::chrono::seconds;

Network::Pair& Network::pair_of(const Link& link) {
  return pairs_[{link.prefill.process->slot, link.decode.process->slot}];
}

// Later than what was sent before it the same way.
Instant Network::arrival(Link& link, Way way) {
  Instant at = world_.schedule.now() + world_.latency();
  at = std::max({at, link.last[way], pair_of(link).clog_until});
  return link.last[way] = at;
}

void Network::dial(Process& decode, const core::PeerKey& key, const core::Route& route) {
  const Instant connected = world_.schedule.now() + world_.latency();
  const auto failed = [&decode, key](const char* text) {
    decode.post(core::event::DialFailed{key, Error{Code::unreachable, text, {}, key.bootstrap.text()}});
  };
  decode.run_at(connected, [this, &decode, key, address = route.address, failed] {
    Process* prefill = world_.listening(address);
    if (prefill == nullptr) return failed("connection refused");
    if (prefill->stopped || pairs_[{prefill->slot, decode.slot}].cut_until > world_.schedule.now()) {
      return decode.run_at(world_.schedule.now() + world_.connect_timeout, [failed] { failed("no answer in time"); });
    }
    handshake(decode, key, *prefill);
  });
}

void Network::handshake(Process& decode, const core::PeerKey& key, Process& prefill) {
  const auto pairing =
      layout::pair_ranks({prefill.shape(), prefill.identity().place}, {decode.shape(), decode.identity().place});
  if (!pairing) return decode.post(core::event::DialFailed{key, pairing.error()});
  auto link = std::make_shared<Link>();
  link->decode = {&decode, SessionId{++session_}, false};
  link->prefill = {&prefill, SessionId{++session_}, true};
  link->path = world_.path(prefill.slot, decode.slot);
  link->key = key;
  links_[{prefill.id, link->prefill.session}] = link;
  links_[{decode.id, link->decode.session}] = link;
  all_.push_back(link);
  prefill.met(decode, link->path);
  prefill.post(
      core::event::SessionUp{link->prefill.session, decode.identity(), decode.name(), link->path, {}, *pairing});
  // Its last message tells the decode rank that rooms may be granted.
  decode.run_at(arrival(*link, to_decode), [this, link, &decode, key, pairing = *pairing] {
    if (link->broken || (link->fin && !link->prefill.process->alive)) {
      return decode.post(core::event::DialFailed{key, Error{Code::peer_lost, "the link broke in the handshake"}});
    }
    link->decode.open = true;
    decode.post(core::event::SessionUp{link->decode.session, link->prefill.process->identity(),
                                       link->prefill.process->name(), link->path, key, pairing});
    Pair& pair = pair_of(*link);
    for (auto& [way, frame] : std::exchange(pair.letters, {})) deliver(link, way, std::move(frame));
    if (link->fin) tell_down(link, true, world_.schedule.now(), "connection closed");
  });
}

void Network::send(Process& from, SessionId session, const protocol::Message& message,
                   const std::vector<std::uint64_t>& payload) {
  const auto link = find(from, session);
  if (link == nullptr) return;
  const bool decode_end = link->decode.process == &from;
  if (!(decode_end ? link->decode : link->prefill).open) return;
  if (world_.options.plant == Plant::confirm_lost && std::holds_alternative<protocol::Confirm>(message) &&
      world_.prng.percent(10)) {
    return;
  }
  std::vector<std::byte> frame;
  const auto payload_bytes = static_cast<std::uint32_t>(payload.size() * sizeof(std::uint64_t));
  protocol::append_frame(message, payload_bytes, frame);
  const std::size_t at = frame.size();
  frame.resize(at + payload_bytes);
  if (payload_bytes > 0) std::memcpy(frame.data() + at, payload.data(), payload_bytes);
  const Way way = decode_end ? to_prefill : to_decode;
  world_.schedule.at(arrival(*link, way),
                     [this, link, way, bytes = std::move(frame)]() mutable { deliver(link, way, std::move(bytes)); });
}

void Network::deliver(const std::shared_ptr<Link>& link, Way way, std::vector<std::byte> frame) {
  Link::End& end = way == to_prefill ? link->prefill : link->decode;
  if (link->broken || !end.open) {
    if (world_.options.plant == Plant::dead_letters) pair_of(*link).letters.emplace_back(way, std::move(frame));
    return;
  }
  if (link->deaf[way]) return;
  end.process->run([this, &end, bytes = std::move(frame)] {
    if (!end.open) return;
    for (const std::byte byte : bytes) world_.judge.mix(static_cast<std::uint64_t>(byte));
    std::array<std::byte, protocol::frame_header_bytes> start{};
    std::memcpy(start.data(), bytes.data(), start.size());
    const auto header = protocol::read_frame_header(start, protocol::body_bytes_max);
    KVF_ASSERT(header.has_value());
    auto message = protocol::decode_body(std::span(bytes).subspan(start.size(), header->body_bytes));
    KVF_ASSERT(message.has_value());
    std::vector<std::uint64_t> payload(header->payload_bytes / sizeof(std::uint64_t));
    if (!payload.empty()) {
      std::memcpy(payload.data(), bytes.data() + start.size() + header->body_bytes, header->payload_bytes);
    }
    end.process->receive(end.session, std::move(*message), payload);
  });
}

void Network::send_data(Process& from, SessionId session, DataFrame frame) {
  const auto link = find(from, session);
  if (link == nullptr || !link->prefill.open) return;
  world_.schedule.at(arrival(*link, data), [link, sent = std::move(frame)]() mutable {
    // Bytes that the kernel holds come in, whether or not the control link has ended meanwhile.
    if (link->broken || link->data_broken || link->deaf[to_decode] || link->decode.process == nullptr) return;
    Process* process = link->decode.process;
    process->run([process, session_there = link->decode.session, frame_there = std::move(sent)] {
      process->mover.on_frame(session_there, frame_there);
    });
  });
}

void Network::tell_down(const std::shared_ptr<Link>& link, bool decode_end, Instant when, const char* text) {
  Link::End& end = decode_end ? link->decode : link->prefill;
  end.process->run_at(when, [&end, link, text] {
    if (!end.open || link->deaf[&end == &link->decode ? to_decode : to_prefill]) return;
    end.open = false;
    end.process->post(core::event::SessionDown{end.session, Error{Code::peer_lost, text}});
  });
}

void Network::close(Process& from, SessionId session) {
  const auto link = find(from, session);
  if (link == nullptr) return;
  const bool decode_end = link->decode.process == &from;
  (decode_end ? link->decode : link->prefill).open = false;
  if (!decode_end) link->fin = true;
  if (link->broken) return;
  tell_down(link, !decode_end, arrival(*link, decode_end ? to_prefill : to_decode), "connection closed");
}

void Network::died(Process& process) {
  for (const auto& link : std::vector(all_)) {
    if (link->decode.process == &process && (link->decode.open || link->prefill.open)) {
      close(process, link->decode.session);
    }
    if (link->prefill.process == &process && link->prefill.open) close(process, link->prefill.session);
  }
}

Process* Network::peer(const Process& process, SessionId session) const {
  const auto link = find(process, session);
  if (link == nullptr) return nullptr;
  const bool decode_end = link->decode.process == &process;
  if (!(decode_end ? link->decode : link->prefill).open) return nullptr;
  return decode_end ? link->prefill.process : link->decode.process;
}

core::DataPath Network::path(const Process& process, SessionId session) const {
  const auto link = find(process, session);
  return link == nullptr ? core::DataPath::push : link->path;
}

std::vector<SessionId> Network::sessions_with_prefix_of(const Process& process, SessionId lost) const {
  std::vector<SessionId> sessions;
  const auto there = find(process, lost);
  if (there == nullptr) return sessions;
  for (const auto& link : all_) {
    if (link->decode.process != &process || !link->decode.open) continue;
    if (link->key.bootstrap.text().starts_with(there->key.bootstrap.text())) sessions.push_back(link->decode.session);
  }
  return sessions;
}

void Network::cut(std::size_t prefill, std::size_t decode, Instant until) {
  pairs_[{prefill, decode}].cut_until = until;
  for (const auto& link : links_of(prefill, decode)) link->broken = true;
}

void Network::deafen(std::size_t prefill, std::size_t decode, bool prefill_end) {
  for (const auto& link : links_of(prefill, decode)) link->deaf[prefill_end ? to_prefill : to_decode] = true;
}

void Network::clog(std::size_t prefill, std::size_t decode, Instant until) {
  pairs_[{prefill, decode}].clog_until = until;
}

void Network::reset(std::size_t prefill, std::size_t decode) {
  for (const auto& link : links_of(prefill, decode)) {
    if (link->broken) continue;
    link->broken = true;
    tell_down(link, true, world_.schedule.now() + world_.latency(), "connection reset");
    tell_down(link, false, world_.schedule.now() + world_.latency(), "connection reset");
  }
}

void Network::break_stream(std::size_t prefill, std::size_t decode) {
  for (const auto& link : links_of(prefill, decode)) {
    if (link->broken || !link->decode.open || !link->prefill.open) continue;
    link->data_broken = true;
    for (const Link::End* end : {&link->decode, &link->prefill}) {
      end->process->run_at(world_.schedule.now() + world_.latency(), [end, link] {
        if (!end->open) return;
        end->process->post_mover(core::SessionLost{end->session, Error{Code::peer_lost, "data stream reset"}});
      });
    }
  }
}

void Network::heal() {
  for (auto& [slots, pair] : pairs_) pair.cut_until = pair.clog_until = Instant{};
}

std::vector<std::shared_ptr<Link>> Network::links_of(std::size_t prefill, std::size_t decode) const {
  std::vector<std::shared_ptr<Link>> links;
  for (const auto& link : all_) {
    const bool open = link->decode.open || link->prefill.open;
    if (open && link->prefill.process->slot == prefill && link->decode.process->slot == decode) links.push_back(link);
  }
  return links;
}

std::shared_ptr<Link> Network::find(const Process& process, SessionId session) const {
  const auto link = links_.find({process.id, session});
  return link == links_.end() ? nullptr : link->second;
}

}  // namespace kvferry::sim
