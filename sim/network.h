// Control links with their data streams: ordered each way, late with a long tail, cut, clogged or reset.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/events.h"
#include "sim/options.h"

namespace kvferry::sim {

class Process;
class World;

// One part of a pushed chunk, or its end. Values are region after region.
struct DataFrame {
  TransferId transfer;
  protocol::ChunkSpan span;
  std::uint32_t component = 0;
  std::uint64_t begin = 0;  // position, or index into the granted list of aux and state
  std::uint64_t count = 0;
  std::vector<std::uint64_t> values = {};
  bool end = false;
  bool with_aux = false;
  std::vector<std::uint64_t> state_items = {};
  std::uint64_t bytes = 0;
};

struct Link {
  struct End {
    Process* process = nullptr;
    SessionId session;
    bool open = false;
  };
  End decode;
  End prefill;
  core::DataPath path = core::DataPath::push;
  core::PeerKey key;
  bool broken = false;       // nothing is delivered any more
  bool data_broken = false;  // nothing of the data stream
  bool deaf[2] = {};         // nothing to prefill, nothing to decode
  bool fin = false;          // the prefill end closed before the decode end was up
  Instant last[3] = {};      // of what is under way to prefill, to decode, and on the data stream
};

class Network {
 public:
  explicit Network(World& world) : world_(world) {}

  // Connect, shake hands: SessionUp at both ends or DialFailed at the decode end.
  void dial(Process& decode, const core::PeerKey& key, const core::Route& route);
  void send(Process& from, SessionId session, const protocol::Message& message,
            const std::vector<std::uint64_t>& payload = {});
  void send_data(Process& from, SessionId session, DataFrame frame);
  void close(Process& from, SessionId session);
  // The process has died: its kernel closes its ends.
  void died(Process& process);
  // The other end's process while the link stands at this end.
  Process* peer(const Process& process, SessionId session) const;
  core::DataPath path(const Process& process, SessionId session) const;

  // Planted: the sessions of this process whose bootstrap address begins like that of the lost one.
  std::vector<SessionId> sessions_with_prefix_of(const Process& process, SessionId lost) const;

  // ---- Trouble of a pair of slots. ----
  void cut(std::size_t prefill, std::size_t decode, Instant until);
  // What the links that stand carry to one end is lost from here on; nobody is told.
  void deafen(std::size_t prefill, std::size_t decode, bool prefill_end);
  void clog(std::size_t prefill, std::size_t decode, Instant until);
  void reset(std::size_t prefill, std::size_t decode);
  void break_stream(std::size_t prefill, std::size_t decode);
  void heal();

 private:
  enum Way : std::size_t { to_prefill, to_decode, data };
  struct Pair {
    Instant cut_until{};
    Instant clog_until{};
    std::vector<std::pair<Way, std::vector<std::byte>>> letters;  // planted: what lost links did not deliver
  };
  Pair& pair_of(const Link& link);
  Instant arrival(Link& link, Way way);
  void handshake(Process& decode, const core::PeerKey& key, Process& prefill);
  void deliver(const std::shared_ptr<Link>& link, Way way, std::vector<std::byte> frame);
  void tell_down(const std::shared_ptr<Link>& link, bool decode_end, Instant when, const char* text);
  std::vector<std::shared_ptr<Link>> links_of(std::size_t prefill, std::size_t decode) const;
  std::shared_ptr<Link> find(const Process& process, SessionId session) const;

  World& world_;
  std::map<std::pair<std::uint64_t, SessionId>, std::shared_ptr<Link>> links_;  // by process and session, both ends
  std::vector<std::shared_ptr<Link>> all_;                                      // in the order of their making
  std::map<std::pair<std::size_t, std::size_t>, Pair> pairs_;
  std::uint64_t session_ = 0;
};

}  // namespace kvferry::sim
