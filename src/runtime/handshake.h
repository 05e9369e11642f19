// How two ranks meet. Decode dials: Hello -> Challenge -> Proof -> Welcome -> Ready -> Linked on the control link, and
// for the tcp transport Join -> JoinChallenge -> JoinProof on a data stream, which then carries raw frames.
//
// Control thread only. A handshake calls `done` exactly once, unless it is destroyed before; it must not be destroyed
// inside of `done`. What may stall (reading a foreign process) runs on the prober's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/events.h"
#include "kvferry/settings.h"
#include "layout/pairing.h"
#include "net/link.h"
#include "os/fd.h"
#include "transport/samehost/samehost_mover.h"

namespace kvferry::runtime {

// What this rank says of itself; outlives every handshake.
struct LocalRank {
  boost::asio::io_context& loop;
  boost::asio::thread_pool& prober;
  const Settings& settings;
  const Memory& memory;
  layout::Shape shape;
  protocol::Identity identity;
  transport::MemoryServer* memory_server = nullptr;  // prefill, where regions are shared
  std::function<LinkId()> next_link;
};

// Two ranks that have met. A data stream that has found its link ends its own handshake with an empty one.
struct Established {
  std::unique_ptr<net::Link> link;
  protocol::Identity peer;
  layout::Pairing pairing;
  std::string transport;                               // "tcp" or "samehost"
  std::string detail;                                  // for people: how, and why not better
  os::Fd stream;                                       // tcp: the joined data stream
  std::unique_ptr<transport::PeerMemory> peer_memory;  // samehost, decode
  os::Fd pid_fd;                                       // same host, prefill: readable once decode's process has exited
};

std::vector<std::string> allowed_transports(Transport setting);
// Both sides compute these over the same parts; empty where no token is set.
std::string link_proof(const Settings& settings, bool by_prefill, const protocol::Identity& decode,
                       const Bits128& decode_nonce, const protocol::Identity& prefill, const Bits128& prefill_nonce);
std::string stream_proof(const Settings& settings, bool by_prefill, const Bits128& secret, const Bits128& decode_nonce,
                         const Bits128& prefill_nonce);

// Whether the peer proved what it had to: the expected proof, or none where no token is set on either side.
bool proven(const std::string& expected, const std::string& given);

// Deadline and lifetime, common to all sides.
class Handshake : public net::LinkHandler {
 public:
  using Done = std::function<void(Result<Established>)>;
  ~Handshake() override = default;

 protected:
  Handshake(LocalRank& local, Done done);
  void start_deadline(const std::string& peer);
  void finish(Result<Established> result);
  // Tells the peer why, then gives up.
  void refuse(Error error);
  // Notes what moves between the two; false where they do not fit, and the peer was told.
  bool pair(const layout::Rank& prefill, const layout::Rank& decode, Role own_role);
  bool finished() const { return done_ == nullptr; }
  // Runs `work` on the prober's thread and `then(result)` back here, if this object still lives.
  template <class Work, class Then>
  void probe(Work work, Then then);
  void on_batch_end(net::Link& link) override { link.flush(); }
  void on_closed(net::Link& link, Error error) override;

  LocalRank& local_;
  std::unique_ptr<net::Link> link_;
  Established made_;

 private:
  Done done_;
  boost::asio::steady_timer deadline_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with work that is on the prober's thread
};

// The side that dials.
class DecodeHandshake : public Handshake {
 public:
  DecodeHandshake(LocalRank& local, core::Route route, Done done);
  ~DecodeHandshake() override;
  void start();

 private:
  void on_message(net::Link& link, protocol::Message message, std::span<const std::byte> payload) override;
  void on_closed(net::Link& link, Error error) override;
  void on_challenge(protocol::Challenge& challenge);
  void on_welcome(protocol::Welcome& welcome);
  void on_join_challenge(const protocol::JoinChallenge& challenge);
  void pick(Result<std::unique_ptr<transport::PeerMemory>> memory);
  void dial_stream();
  void ready(const std::string& transport);

  core::Route route_;
  Bits128 nonce_;
  Bits128 stream_nonce_;
  protocol::Welcome welcome_;
  bool linked_expected_ = false;
  std::unique_ptr<net::Link> stream_;
  std::function<void()> cancel_dial_;
};

// The side that listens: one a connection, whose first message says whether it is a link or a data stream.
class PrefillHandshake : public Handshake {
 public:
  // Where a data stream finds the link it belongs to.
  using FindLink = std::function<PrefillHandshake*(const Incarnation& decode)>;
  PrefillHandshake(LocalRank& local, std::unique_ptr<net::Link> link, FindLink find_link, Done done);
  ~PrefillHandshake() override;
  void start();
  bool waits_for_stream_of(const Incarnation& decode) const;

 private:
  void on_message(net::Link& link, protocol::Message message, std::span<const std::byte> payload) override;
  void on_hello(const protocol::Hello& hello);
  void on_proof(protocol::Proof& proof);
  void welcome(Result<os::Fd> same_host, const std::vector<std::string>& theirs);
  void on_ready(protocol::Ready& ready);
  void on_join(const protocol::Join& join);
  void on_join_proof(const protocol::JoinProof& proof);
  void take_stream(os::Fd stream);
  void link_if_complete();

  FindLink find_link_;
  protocol::Hello hello_;
  protocol::Join join_;
  Bits128 nonce_;
  Bits128 secret_;
  bool secret_used_ = false;
  std::vector<std::string> offered_;
  bool ready_ = false;
};

template <class Work, class Then>
void Handshake::probe(Work work, Then then) {
  boost::asio::post(local_.prober, [&loop = local_.loop, alive = std::weak_ptr<bool>(alive_), work = std::move(work),
                                    then = std::move(then)]() mutable {
    auto result = work();
    boost::asio::post(loop, [alive, then = std::move(then), result = std::move(result)]() mutable {
      if (alive.lock()) then(std::move(result));
    });
  });
}

}  // namespace kvferry::runtime
