#include "runtime/handshake.h"

#include <algorithm>
#include <utility>

#include "net/auth.h"

namespace kvferry::runtime {
namespace {

std::string identity_text(const protocol::Identity& identity) {
  return identity.instance + "/" + std::to_string(identity.place.dp) + "/" + std::to_string(identity.place.pp) + "/" +
         std::to_string(identity.place.tp) + "/" + std::to_string(identity.place.cp) + "/" +
         to_hex(identity.incarnation) + "/" + std::to_string(identity.start_number);
}

}  // namespace

std::vector<std::string> allowed_transports(Transport setting) {
  switch (setting) {
    case Transport::tcp:
      return {"tcp"};
    case Transport::samehost:
      return {"samehost"};
    case Transport::automatic:
      break;
  }
  return {"samehost", "tcp"};
}

std::string link_proof(const Settings& settings, bool by_prefill, const protocol::Identity& decode,
                       const Bits128& decode_nonce, const protocol::Identity& prefill, const Bits128& prefill_nonce) {
  if (settings.token.empty()) return {};
  return net::prove(settings.token, by_prefill ? "link-prefill" : "link-decode",
                    {identity_text(decode), to_hex(decode_nonce), identity_text(prefill), to_hex(prefill_nonce)});
}

std::string stream_proof(const Settings& settings, bool by_prefill, const Bits128& secret, const Bits128& decode_nonce,
                         const Bits128& prefill_nonce) {
  return net::prove(settings.token + to_hex(secret), by_prefill ? "stream-prefill" : "stream-decode",
                    {to_hex(decode_nonce), to_hex(prefill_nonce)});
}

bool proven(const std::string& expected, const std::string& given) {
  return expected.empty() ? given.empty() : net::proof_matches(expected, given);
}

Handshake::Handshake(LocalRank& local, Done done) : local_(local), done_(std::move(done)), deadline_(local.loop) {}

void Handshake::start_deadline(const std::string& peer) {
  deadline_.expires_after(local_.settings.connect_timeout);
  deadline_.async_wait([this, peer, alive = std::weak_ptr<bool>(alive_)](boost::system::error_code stopped) {
    if (stopped || !alive.lock() || finished()) return;
    if (link_) link_->close();
    finish(Error{Code::timeout,
                 "the handshake was not finished within the connect timeout of " +
                     std::to_string(local_.settings.connect_timeout.count()) + " ms",
                 {},
                 peer});
  });
}

void Handshake::finish(Result<Established> result) {
  if (finished()) return;
  deadline_.cancel();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

void Handshake::refuse(Error error) {
  if (finished()) return;
  if (link_) {
    link_->send(protocol::Refuse{error.code, error.text});
    link_->flush();
    if (error.peer.empty()) error.peer = link_->peer();
    link_->close();
  }
  finish(std::move(error));
}

bool Handshake::pair(const layout::Rank& prefill, const layout::Rank& decode, Role own_role) {
  auto pairing = layout::pair_ranks(prefill, decode);
  if (!pairing) {
    refuse(std::move(pairing.error()));
    return false;
  }
  const std::uint64_t items = local_.memory.kv.empty() ? 0 : local_.memory.kv.front().items();
  if (auto fits = layout::check_units(items, own_role == Role::prefill ? pairing->source_units : pairing->target_units);
      !fits) {
    refuse(std::move(fits.error()));
    return false;
  }
  made_.pairing = std::move(*pairing);
  return true;
}

void Handshake::on_closed(net::Link& /*link*/, Error error) { finish(std::move(error)); }

}  // namespace kvferry::runtime
