#include <algorithm>
#include <string>
#include <utility>

#include "net/auth.h"
#include "os/log.h"
#include "runtime/handshake.h"

namespace kvferry::runtime {

PrefillHandshake::PrefillHandshake(LocalRank& local, std::unique_ptr<net::Link> link, FindLink find_link, Done done)
    : Handshake(local, std::move(done)), find_link_(std::move(find_link)), nonce_(net::random_bits()) {
  link_ = std::move(link);
}

PrefillHandshake::~PrefillHandshake() {
  if (local_.memory_server != nullptr && secret_ != Bits128{}) local_.memory_server->forget(secret_);
}

void PrefillHandshake::start() {
  start_deadline(link_->peer());
  link_->start(*this);
}

void PrefillHandshake::on_message(net::Link& link, protocol::Message message, std::span<const std::byte> /*payload*/) {
  if (finished()) return;
  if (auto* m = std::get_if<protocol::Refuse>(&message)) {
    link.close();
    return finish(Error{m->code, "decode refused: " + m->text, {}, link.peer()});
  }
  const bool hello_seen = hello_.identity.incarnation != Incarnation{};
  const bool join_seen = join_.decode != Incarnation{};
  if (!hello_seen && !join_seen) {
    if (auto* hello = std::get_if<protocol::Hello>(&message)) return on_hello(*hello);
    if (auto* join = std::get_if<protocol::Join>(&message)) return on_join(*join);
  } else if (join_seen) {
    if (auto* proof = std::get_if<protocol::JoinProof>(&message)) return on_join_proof(*proof);
  } else if (auto* proof = std::get_if<protocol::Proof>(&message); proof != nullptr && secret_ == Bits128{}) {
    return on_proof(*proof);
  } else if (auto* ready = std::get_if<protocol::Ready>(&message); ready != nullptr && !ready_ && !offered_.empty()) {
    return on_ready(*ready);
  }
  refuse(
      Error{Code::protocol, std::string("sent ") + protocol::message_name(message) + " out of turn in the handshake"});
}

void PrefillHandshake::on_hello(const protocol::Hello& hello) {
  if (hello.version < protocol::version_min || hello.version_min > protocol::version) {
    return refuse(Error{Code::unsupported, "decode speaks protocol versions " + std::to_string(hello.version_min) +
                                               " to " + std::to_string(hello.version) + ", prefill " +
                                               std::to_string(protocol::version_min) + " to " +
                                               std::to_string(protocol::version) + ": update the older side"});
  }
  if (hello.identity.incarnation == Incarnation{}) {
    return refuse(Error{Code::protocol, "a decode rank without an incarnation"});
  }
  hello_ = hello;
  made_.peer = hello.identity;
  protocol::Challenge challenge;
  challenge.version = std::min(hello.version, protocol::version);
  challenge.identity = local_.identity;
  challenge.nonce = nonce_;
  challenge.proof = link_proof(local_.settings, true, hello.identity, hello.nonce, local_.identity, nonce_);
  challenge.shape = local_.shape;
  link_->send(challenge);
}

void PrefillHandshake::on_proof(protocol::Proof& proof) {
  const std::string expected =
      link_proof(local_.settings, false, hello_.identity, hello_.nonce, local_.identity, nonce_);
  if (!proven(expected, proof.proof)) {
    return refuse(Error{Code::unauthorized, proof.proof.empty()
                                                ? "prefill has a token (KVFERRY_TOKEN), decode has none"
                                                : "the tokens of prefill and decode differ (KVFERRY_TOKEN)"});
  }
  if (!pair({local_.shape, local_.identity.place}, {proof.shape, made_.peer.place}, Role::prefill)) return;
  secret_ = net::random_bits();
  const std::vector<std::string> ours = allowed_transports(local_.settings.transport);
  const bool same_host = std::ranges::find(ours, "samehost") != ours.end() &&
                         std::ranges::find(proof.transports, "samehost") != proof.transports.end();
  if (!same_host) return welcome(Error{Code::unsupported, "one side does not allow samehost"}, proof.transports);
  probe([peer = proof.same_host] { return transport::verify_process(peer); },
        [this, theirs = proof.transports](Result<os::Fd> pid_fd) {
          if (!finished()) welcome(std::move(pid_fd), theirs);
          if (link_) link_->flush();
        });
}

// `same_host` is the decode process's pidfd, or why it is not reached. Not being able to read decode's memory does not
// forbid that decode reads ours, unless it is on another host; so only the pid counts here.
void PrefillHandshake::welcome(Result<os::Fd> same_host, const std::vector<std::string>& theirs) {
  if (same_host) made_.pid_fd = std::move(*same_host);
  protocol::Welcome welcome;
  for (const std::string& name : allowed_transports(local_.settings.transport)) {
    if (std::ranges::find(theirs, name) == theirs.end()) continue;
    if (name == "samehost" && !same_host) continue;
    welcome.transports.push_back(name);
  }
  if (welcome.transports.empty()) {
    return refuse(Error{
        Code::unsupported,
        "no transport in common: " +
            (same_host ? std::string("the settings of the two sides exclude each other") : same_host.error().text)});
  }
  welcome.stream_secret = secret_;
  if (welcome.transports.front() == "samehost") {
    welcome.same_host = transport::own_same_host();
    welcome.regions = transport::describe_regions(local_.memory);
    if (local_.memory_server != nullptr) {
      welcome.memory_socket = local_.memory_server->socket_name();
      local_.memory_server->expect(secret_);
    }
  }
  offered_ = welcome.transports;
  link_->send(welcome);
}

void PrefillHandshake::on_ready(protocol::Ready& ready) {
  if (std::ranges::find(offered_, ready.transport) == offered_.end()) {
    return refuse(Error{Code::protocol, "picked the transport \"" + ready.transport + "\", which was not offered"});
  }
  ready_ = true;
  made_.transport = ready.transport;
  made_.detail = ready.detail.substr(0, 512);
  link_if_complete();
}

bool PrefillHandshake::waits_for_stream_of(const Incarnation& decode) const {
  return !finished() && !offered_.empty() && !secret_used_ && hello_.identity.incarnation == decode;
}

// This connection is a data stream: it must know the secret of a link that waits for one.
void PrefillHandshake::on_join(const protocol::Join& join) {
  PrefillHandshake* owner = join.prefill == local_.identity.incarnation ? find_link_(join.decode) : nullptr;
  if (owner == nullptr) {
    return refuse(Error{Code::unauthorized, join.prefill == local_.identity.incarnation
                                                ? "a data stream for a session that waits for none"
                                                : "a data stream for an earlier process at this address"});
  }
  join_ = join;
  secret_ = owner->secret_;
  link_->send(protocol::JoinChallenge{nonce_, stream_proof(local_.settings, true, secret_, join.nonce, nonce_)});
}

void PrefillHandshake::on_join_proof(const protocol::JoinProof& proof) {
  const std::string expected = stream_proof(local_.settings, false, secret_, join_.nonce, nonce_);
  if (!proven(expected, proof.proof)) {
    return refuse(Error{Code::unauthorized, "a data stream that does not know its session's secret"});
  }
  PrefillHandshake* owner = find_link_(join_.decode);
  if (owner == nullptr) return refuse(Error{Code::unauthorized, "a data stream that came too late for its session"});
  auto fd = link_->release_socket();
  if (!fd) return refuse(fd.error());
  owner->secret_used_ = true;
  owner->take_stream(std::move(*fd));
  finish(Established{});
}

void PrefillHandshake::take_stream(os::Fd stream) {
  made_.stream = std::move(stream);
  link_if_complete();
}

void PrefillHandshake::link_if_complete() {
  if (!ready_ || (made_.transport == "tcp" && !made_.stream)) return;
  link_->send(protocol::Linked{});
  link_->flush();
  made_.link = std::move(link_);
  finish(std::move(made_));
}

}  // namespace kvferry::runtime
