#include <algorithm>
#include <string>
#include <utility>

#include "net/auth.h"
#include "os/log.h"
#include "runtime/handshake.h"

namespace kvferry::runtime {

DecodeHandshake::DecodeHandshake(LocalRank& local, core::Route route, Done done)
    : Handshake(local, std::move(done)), route_(std::move(route)), nonce_(net::random_bits()) {}

DecodeHandshake::~DecodeHandshake() {
  if (cancel_dial_) cancel_dial_();
}

void DecodeHandshake::start() {
  cancel_dial_ = net::dial(local_.loop, route_.address, local_.settings.connect_timeout, [this](auto socket) {
    cancel_dial_ = nullptr;
    if (!socket) return finish(socket.error());
    link_ = std::make_unique<net::Link>(local_.next_link(), std::move(*socket));
    start_deadline(link_->peer());
    if (local_.settings.token.empty() && !local_.settings.allow_public && !link_->peer_is_private()) {
      return refuse(
          Error{Code::unauthorized,
                "the prefill rank has a public address and no token is set; set KVFERRY_TOKEN on both sides or "
                "KVFERRY_ALLOW_PUBLIC=1"});
    }
    link_->start(*this);
    link_->send(protocol::Hello{protocol::version, protocol::version_min, local_.identity, nonce_});
    link_->flush();
  });
}

void DecodeHandshake::on_message(net::Link& link, protocol::Message message, std::span<const std::byte> /*payload*/) {
  if (finished()) return;
  if (auto* m = std::get_if<protocol::Refuse>(&message)) {
    link.close();
    return finish(Error{m->code, m->text, {}, link.peer()});
  }
  if (&link == stream_.get()) {
    if (auto* m = std::get_if<protocol::JoinChallenge>(&message)) return on_join_challenge(*m);
  } else if (auto* challenge = std::get_if<protocol::Challenge>(&message)) {
    return on_challenge(*challenge);
  } else if (auto* welcome = std::get_if<protocol::Welcome>(&message)) {
    return on_welcome(*welcome);
  } else if (std::holds_alternative<protocol::Linked>(message) && linked_expected_) {
    made_.link = std::move(link_);
    return finish(std::move(made_));
  }
  refuse(
      Error{Code::protocol, std::string("sent ") + protocol::message_name(message) + " out of turn in the handshake"});
}

void DecodeHandshake::on_closed(net::Link& link, Error error) {
  if (&link == stream_.get()) error.text = "data stream: " + error.text;
  Handshake::on_closed(link, std::move(error));
}

void DecodeHandshake::on_challenge(protocol::Challenge& challenge) {
  if (challenge.version < protocol::version_min || challenge.version > protocol::version) {
    return refuse(Error{Code::unsupported, "prefill speaks protocol version " + std::to_string(challenge.version) +
                                               ", decode " + std::to_string(protocol::version_min) + " to " +
                                               std::to_string(protocol::version) + ": update the older side"});
  }
  const std::string proof =
      link_proof(local_.settings, true, local_.identity, nonce_, challenge.identity, challenge.nonce);
  if (!proven(proof, challenge.proof)) {
    return refuse(Error{Code::unauthorized,
                        challenge.proof.empty()         ? "decode has a token (KVFERRY_TOKEN), prefill has none"
                        : local_.settings.token.empty() ? "prefill has a token (KVFERRY_TOKEN), decode has none"
                                                        : "the tokens of prefill and decode differ (KVFERRY_TOKEN)"});
  }
  if (route_.incarnation != Incarnation{} && route_.incarnation != challenge.identity.incarnation) {
    // Another process answers than the one that was looked up: not for good, the next try asks for the route again.
    return refuse(Error{Code::peer_lost, "another process answers at this address than the one that registered"});
  }
  if (!pair({challenge.shape, challenge.identity.place}, {local_.shape, local_.identity.place}, Role::decode)) return;
  made_.peer = std::move(challenge.identity);
  protocol::Proof answer;
  answer.proof = link_proof(local_.settings, false, local_.identity, nonce_, made_.peer, challenge.nonce);
  answer.shape = local_.shape;
  answer.transports = allowed_transports(local_.settings.transport);
  answer.same_host = transport::own_same_host();
  link_->send(answer);
  link_->flush();
}

void DecodeHandshake::on_welcome(protocol::Welcome& welcome) {
  welcome_ = std::move(welcome);
  const auto& offered = welcome_.transports;
  if (std::ranges::find(offered, "samehost") == offered.end()) return pick(Error{Code::unsupported, "not offered"});
  // Leave most of the handshake's time for what follows.
  const int timeout_ms = static_cast<int>(local_.settings.connect_timeout.count() / 4);
  probe(
      [welcome = welcome_, timeout_ms, &prober = local_.prober] {
        return transport::open_peer_memory(
            welcome.same_host, welcome.memory_socket, welcome.regions, welcome.stream_secret, timeout_ms,
            [&prober](std::function<void()> unmap) { boost::asio::post(prober, std::move(unmap)); });
      },
      [this](Result<std::unique_ptr<transport::PeerMemory>> memory) { pick(std::move(memory)); });
}

void DecodeHandshake::pick(Result<std::unique_ptr<transport::PeerMemory>> memory) {
  if (finished()) return;
  if (memory) {
    made_.peer_memory = std::move(*memory);
    const layout::Pairing& pairing = made_.pairing;
    auto seen = made_.peer_memory->see(pairing.source, pairing.state.prefill);
    if (!seen) return refuse(seen.error());
    made_.detail = made_.peer_memory->method();
    return ready("samehost");
  }
  const auto& offered = welcome_.transports;
  const bool asked = std::ranges::find(offered, "samehost") != offered.end();
  if (asked) made_.detail = "same host, but its memory cannot be read: " + memory.error().text;
  if (std::ranges::find(offered, "tcp") == offered.end()) {
    return refuse(Error{Code::unsupported, asked ? made_.detail : "prefill and decode have no transport in common"});
  }
  dial_stream();
}

void DecodeHandshake::dial_stream() {
  cancel_dial_ = net::dial(local_.loop, route_.address, local_.settings.connect_timeout, [this](auto socket) {
    cancel_dial_ = nullptr;
    if (!socket) return refuse(socket.error());
    stream_ = std::make_unique<net::Link>(local_.next_link(), std::move(*socket));
    stream_->start(*this);
    stream_nonce_ = net::random_bits();
    stream_->send(protocol::Join{local_.identity.incarnation, made_.peer.incarnation, stream_nonce_});
    stream_->flush();
  });
}

void DecodeHandshake::on_join_challenge(const protocol::JoinChallenge& challenge) {
  const Bits128& secret = welcome_.stream_secret;
  if (!proven(stream_proof(local_.settings, true, secret, stream_nonce_, challenge.nonce), challenge.proof)) {
    return refuse(Error{Code::unauthorized, "the data stream was answered by somebody who does not know its secret"});
  }
  stream_->send(protocol::JoinProof{stream_proof(local_.settings, false, secret, stream_nonce_, challenge.nonce)});
  stream_->flush();
  auto fd = stream_->release_socket();
  if (!fd) return refuse(fd.error());
  made_.stream = std::move(*fd);
  ready("tcp");
}

void DecodeHandshake::ready(const std::string& transport) {
  made_.transport = transport;
  linked_expected_ = true;
  link_->send(protocol::Ready{transport, made_.detail});
  link_->flush();
}

}  // namespace kvferry::runtime
