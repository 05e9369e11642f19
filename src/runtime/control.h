// The control thread of one manager: it alone touches the core, the links and the sessions. Everything that is decided
// is decided by core; this class performs. Bodies: control_loop.cpp (life, turns), control_links.cpp (meeting peers),
// control_ports.cpp (core's orders).
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/driver.h"
#include "core/receiver_core.h"
#include "core/sender_core.h"
#include "net/bootstrap_client.h"
#include "net/bootstrap_watch.h"
#include "runtime/exchange.h"
#include "runtime/handshake.h"
#include "runtime/inline_windows.h"
#include "runtime/session.h"
#include "transport/samehost/samehost_mover.h"
#include "transport/summer.h"
#include "transport/tcp/tcp_mover.h"

namespace kvferry::runtime {

struct ControlOptions {
  Role role = Role::prefill;
  Memory memory;
  KvFormat format;
  Parallel parallel;
  Place place;
  std::string instance;
  std::optional<Address> bootstrap;  // prefill: where to register
  Address listen;                    // prefill
  std::string announce_host;         // prefill: where decode ranks reach it; not a wildcard
  std::string attributes;            // a checked JSON object, or empty
  Settings settings;
};

class Control : public core::Ports, public net::LinkHandler {
 public:
  // Opens the listener and starts the thread; registration goes on in the background.
  static Result<std::unique_ptr<Control>> start(ControlOptions options, Exchange& exchange);
  // Closes links and movers, joins the thread. The exchange is closed with `closed`.
  ~Control() override;

  // Any thread.
  const std::string& address() const { return address_; }
  ManagerStats stats() const;

 private:
  Control(ControlOptions options, Exchange& exchange);

  // control_loop.cpp
  void run();
  void drain();
  void turn();
  void turn_once();
  void shut_down(const Error& error);
  void publish_stats();
  void wake_at(Instant deadline) override;
  template <class Event>
  void push(Event event);

  // control_links.cpp
  Result<void> open_listener();
  void start_registration();
  void watch_bootstraps();
  void on_accept(boost::asio::ip::tcp::socket socket);
  void on_established(Established established, std::optional<core::PeerKey> key);
  void watch_exit(Session& session, os::Fd pid_fd);
  void on_exit(SessionId session, const Incarnation& incarnation);
  void bury(std::unique_ptr<Handshake> handshake);
  void on_message(net::Link& link, protocol::Message message, std::span<const std::byte> payload) override;
  void on_batch_end(net::Link& link) override;
  void on_closed(net::Link& link, Error error) override;

  // control_ports.cpp
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
  Session* find(SessionId session);
  transport::Mover* mover_of(SessionId session);
  RoomCell* cell_of(core::HandleId handle);
  void changed(core::HandleId handle);
  void touch(Session& session);

  const ControlOptions options_;
  Exchange& exchange_;
  std::string address_;
  // What may stall in the kernel, of foreign processes. Outlives the loop, whose unheard answers end up here.
  boost::asio::thread_pool prober_{1};
  boost::asio::io_context loop_{1};
  boost::asio::steady_timer wake_timer_{loop_};
  Instant wake_instant_ = Instant::max();
  std::unique_ptr<transport::MemoryServer> memory_server_;
  LocalRank local_;
  std::uint64_t next_link_ = 1;
  std::uint64_t next_session_ = 1;
  std::mt19937_64 jitter_;

  std::optional<core::Driver<core::SenderCore, core::SenderEvent>> sender_;        // role prefill
  std::optional<core::Driver<core::ReceiverCore, core::ReceiverEvent>> receiver_;  // role decode
  std::vector<core::SenderEvent> sender_events_;
  std::vector<core::ReceiverEvent> receiver_events_;
  Incoming incoming_;
  bool turning_ = false;
  bool ended_ = false;

  std::unordered_map<std::uint64_t, std::shared_ptr<RoomCell>> cells_;  // by handle; shared with the engine's handles
  std::vector<std::shared_ptr<RoomCell>> changed_cells_;
  InlineWindows inline_windows_;
  std::vector<layout::Piece> pieces_;  // kept for its memory

  std::unique_ptr<transport::TcpMover> tcp_;
  std::unique_ptr<transport::SameHostMover> samehost_;
  std::optional<transport::Summer> summer_;
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::RegistrationKeeper> registration_;
  std::unique_ptr<net::BootstrapWatch> bootstrap_watch_;  // role decode
  std::map<SessionId, Session> sessions_;
  std::unordered_map<std::uint64_t, SessionId> session_of_link_;
  std::map<SessionId, transport::Mover*> closing_movers_;  // sessions whose link is gone, mover not yet done
  std::map<Incarnation, std::unique_ptr<boost::asio::posix::stream_descriptor>> exit_watches_;  // of lost readers
  std::vector<SessionId> dirty_;
  std::map<const Handshake*, std::unique_ptr<Handshake>> handshakes_;
  std::map<Incarnation, PrefillHandshake*> waiting_links_;
  std::string last_fallback_;  // said once

  struct Published {  // read by stats()
    std::atomic<std::uint64_t> rooms_succeeded{0}, rooms_failed{0}, bytes{0}, sessions_live{0}, sessions_lost{0},
        quarantined_pages{0}, late_messages{0}, orphan_grants{0}, rooms_live{0}, bootstraps_down{0};
  } published_;
  mutable std::mutex transports_mutex_;  // guards transports_ alone: names are no atomics
  std::vector<std::string> transports_;

  std::thread thread_;  // last: everything above is there before it runs and after it has ended
};

template <class Event>
void Control::push(Event event) {
  if (sender_) {
    if constexpr (std::is_constructible_v<core::SenderEvent, Event>) sender_events_.emplace_back(std::move(event));
  } else {
    if constexpr (std::is_constructible_v<core::ReceiverEvent, Event>) receiver_events_.emplace_back(std::move(event));
  }
}

}  // namespace kvferry::runtime
