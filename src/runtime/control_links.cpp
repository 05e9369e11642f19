#include <fcntl.h>

#include <utility>

#include "os/log.h"
#include "protocol/codec.h"
#include "runtime/control.h"

namespace kvferry::runtime {
namespace {

// A decode rank that has not proven itself yet costs memory: more than this many at once are turned away.
constexpr std::size_t handshakes_max = 1'024;

}  // namespace

Result<void> Control::open_listener() {
  auto listener = net::Listener::open(loop_, options_.listen, options_.settings,
                                      [this](boost::asio::ip::tcp::socket socket) { on_accept(std::move(socket)); });
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  address_ = Address{options_.announce_host, listener_->address().port}.text();
  return {};
}

void Control::start_registration() {
  if (!options_.bootstrap) return;
  net::Registration registration;
  registration.instance = options_.instance;
  registration.parallel = options_.parallel;
  registration.place = options_.place;
  registration.address = Address{options_.announce_host, listener_->address().port};
  registration.incarnation = local_.identity.incarnation;
  registration.start_number = local_.identity.start_number;
  registration.attributes = options_.attributes;
  registration.leased = true;
  registration.ttl = options_.settings.lease_ttl;
  registration_ = std::make_unique<net::RegistrationKeeper>(
      loop_, *options_.bootstrap, options_.settings, registration,
      [this, server = options_.bootstrap->text()](const net::RegistrationKeeper::Status& status) {
        published_.bootstraps_down.store(status.registered ? 0 : 1, std::memory_order_relaxed);
        if (status.replaced) {
          listener_.reset();  // who is sent here meanwhile is refused at once, and asks for the route again
          push(core::event::Replaced{
              Error{Code::closed,
                    "another process has registered as this rank (instance " + options_.instance + ") at " + server +
                        ": this one is given up; a manager that is to work beside it needs another instance or place",
                    {},
                    server}});
          turn();
        } else if (status.registered) {
          os::log().info("registered with {}, generation {}", server, status.generation);
        } else if (!status.last_error.empty()) {
          os::log().warn("not registered with {}: {}", server, status.last_error);
        }
      });
}

void Control::watch_bootstraps() {
  bootstrap_watch_ = std::make_unique<net::BootstrapWatch>(
      loop_, options_.settings,
      net::BootstrapWatch::Owner{
          .has_link =
              [this](const Address& server) {
                return std::ranges::any_of(sessions_, [&](const auto& one) { return one.second.bootstrap == server; });
              },
          .changed = [this](std::size_t down) { published_.bootstraps_down.store(down, std::memory_order_relaxed); }});
}

void Control::on_accept(boost::asio::ip::tcp::socket socket) {
  if (handshakes_.size() >= handshakes_max) {
    os::log().warn("more than {} connections are shaking hands; one more was closed", handshakes_max);
    return;
  }
  auto link = std::make_unique<net::Link>(local_.next_link(), std::move(socket));
  auto slot = std::make_shared<const Handshake*>(nullptr);  // shared: the callback is made before the object it is of
  auto handshake = std::make_unique<PrefillHandshake>(
      local_, std::move(link),
      [this](const Incarnation& decode) -> PrefillHandshake* {
        for (auto& [raw, owned] : handshakes_) {
          auto* candidate = static_cast<PrefillHandshake*>(owned.get());
          if (candidate->waits_for_stream_of(decode)) return candidate;
        }
        return nullptr;
      },
      [this, slot](Result<Established> established) {
        auto node = handshakes_.extract(*slot);
        if (!node.empty()) bury(std::move(node.mapped()));
        if (!established) return os::log().info("a decode rank did not link: {}", established.error().message());
        if (established->link) on_established(std::move(*established), std::nullopt);
      });
  PrefillHandshake* raw = handshake.get();
  *slot = raw;
  handshakes_.emplace(raw, std::move(handshake));
  raw->start();
}

// A handshake ends inside of its own callback: it is destroyed once that has returned.
void Control::bury(std::unique_ptr<Handshake> handshake) {
  boost::asio::post(loop_, [handshake = std::move(handshake)] {});
}

void Control::perform(core::effect::Dial& e) {
  auto slot = std::make_shared<const Handshake*>(nullptr);  // shared: the callback is made before the object it is of
  auto handshake = std::make_unique<DecodeHandshake>(
      local_, std::move(e.route), [this, slot, key = e.key](Result<Established> established) {
        auto node = handshakes_.extract(*slot);
        if (!node.empty()) bury(std::move(node.mapped()));
        if (established) return on_established(std::move(*established), key);
        os::log().info("no link to {}: {}", key.bootstrap.text(), established.error().message());
        push(core::event::DialFailed{key, established.error()});
        turn();
      });
  DecodeHandshake* raw = handshake.get();
  *slot = raw;
  handshakes_.emplace(raw, std::move(handshake));
  raw->start();
}

void Control::on_established(Established established, std::optional<core::PeerKey> key) {
  const SessionId id{next_session_++};
  Session& session = sessions_[id];
  session.id = id;
  session.link = std::move(established.link);
  session.peer = established.peer;
  session.address = session.link->peer();
  session.transport = established.transport;
  if (!established.detail.empty()) session.transport += " (" + established.detail + ")";
  const layout::Pairing& pairing = established.pairing;
  session.view = std::make_shared<const layout::View>(
      options_.role == Role::prefill ? layout::View::of(options_.memory, pairing.source, pairing.state.prefill)
                                     : layout::View::of(options_.memory, pairing.target, pairing.state.decode));
  if (key) session.bootstrap = key->bootstrap;
  session_of_link_[session.link->id().value] = id;
  session.link->set_handler(*this);
  session.link->set_body_bytes_max(protocol::body_bytes_max);
  if (established.transport == "tcp") {
    session.path = core::DataPath::push;
    session.mover = tcp_.get();
    tcp_->open_session(id, std::move(established.stream), *session.view);
    if (!established.detail.empty() && established.detail != last_fallback_) {
      last_fallback_ = established.detail;
      os::log().warn("data goes by tcp to {}: {}", session.address, established.detail);
    }
  } else {
    session.path = core::DataPath::pull;
    if (established.peer_memory) {
      watch_exit(session, os::Fd(::fcntl(established.peer_memory->pid_fd().get(), F_DUPFD_CLOEXEC, 0)));
      session.mover = samehost_.get();
      samehost_->open_session(id, std::move(established.peer_memory), *session.view);
    } else {
      watch_exit(session, std::move(established.pid_fd));
    }
  }
  {
    const std::lock_guard lock(transports_mutex_);
    transports_.clear();
    for (const auto& [other, live] : sessions_) transports_.push_back(live.transport);
  }
  os::log().info("linked with {} by {}", session.address, session.transport);
  exit_watches_.erase(session.peer.incarnation);
  push(core::event::SessionUp{id, session.peer, session.address, session.path, std::move(key),
                              std::move(established.pairing)});
  turn();
}

// The kernel says at once when a process of this host has exited.
void Control::watch_exit(Session& session, os::Fd pid_fd) {
  if (!pid_fd) return;
  session.exit_watch = std::make_unique<boost::asio::posix::stream_descriptor>(loop_, pid_fd.release());
  session.exit_watch->async_wait(
      boost::asio::posix::stream_descriptor::wait_read,
      [this, id = session.id, incarnation = session.peer.incarnation](boost::system::error_code stopped) {
        if (!stopped && !ended_) on_exit(id, incarnation);
      });
}

void Control::on_exit(SessionId id, const Incarnation& incarnation) {
  if (find(id) != nullptr) push(core::event::SessionDown{id, Error{Code::peer_lost, "the peer's process has exited"}});
  push(core::event::PeerExited{incarnation});
  exit_watches_.erase(incarnation);
  turn();
}

void Control::on_message(net::Link& link, protocol::Message message, std::span<const std::byte> payload) {
  const auto entry = session_of_link_.find(link.id().value);
  if (entry == session_of_link_.end()) return;
  const SessionId id = entry->second;
  if (const auto* inlined = std::get_if<protocol::Inline>(&message)) {
    // Bytes are placed as they come; whether they were wanted is core's to say.
    if (auto event = inline_windows_.place(id, *sessions_.at(id).view, *inlined, payload))
      push(core::MoverEvent(std::move(*event)));
    return;
  }
  push(core::event::Received{id, std::move(message)});
}

void Control::on_batch_end(net::Link& /*link*/) { turn(); }

void Control::on_closed(net::Link& link, Error error) {
  const auto entry = session_of_link_.find(link.id().value);
  if (entry == session_of_link_.end()) return;
  push(core::event::SessionDown{entry->second, std::move(error)});
  turn();
}

}  // namespace kvferry::runtime
