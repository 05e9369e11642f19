#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "base/assert.h"
#include "base/limits_from.h"
#include "net/auth.h"
#include "os/clock.h"
#include "os/log.h"
#include "os/thread.h"
#include "runtime/control.h"

namespace kvferry::runtime {
namespace {

Incarnation draw_incarnation() {
  Incarnation incarnation;
  static_cast<Bits128&>(incarnation) = net::random_bits();
  return incarnation;
}

std::uint64_t wall_clock_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace

Control::Control(ControlOptions options, Exchange& exchange)
    : options_(std::move(options)),
      exchange_(exchange),
      local_{loop_,
             prober_,
             options_.settings,
             options_.memory,
             layout::shape_of(options_.memory, options_.format, options_.parallel),
             protocol::Identity{options_.instance, options_.place, draw_incarnation(), wall_clock_us()},
             nullptr,
             [this] { return LinkId{next_link_++}; }},
      jitter_(net::random_bits().low) {
  const Limits limits = limits_from(options_.settings);
  if (options_.role == Role::prefill) {
    sender_.emplace(core::SenderCore(limits, local_.shape), *this);
    memory_server_ = transport::MemoryServer::start(options_.memory);
    local_.memory_server = memory_server_.get();
  } else {
    receiver_.emplace(core::ReceiverCore(limits, local_.shape, options_.place), *this);
  }
  tcp_ = transport::TcpMover::create(options_.settings.data_threads, exchange_);
  samehost_ = transport::SameHostMover::create(options_.settings.data_threads, exchange_);
  summer_.emplace(exchange_);
}

Result<std::unique_ptr<Control>> Control::start(ControlOptions options, Exchange& exchange) {
  std::unique_ptr<Control> control(new Control(std::move(options), exchange));
  if (control->options_.role == Role::prefill) {
    if (auto opened = control->open_listener(); !opened) return opened.error();
    control->start_registration();
  } else {
    control->watch_bootstraps();
  }
  exchange.set_wake([raw = control.get()] { boost::asio::post(raw->loop_, [raw] { raw->drain(); }); });
  control->thread_ = os::start_thread("kvf-control", [raw = control.get()] { raw->run(); });
  return control;
}

Control::~Control() {
  boost::asio::post(loop_, [this] {
    shut_down(Error{Code::closed, "the manager was shut down"});
    loop_.stop();
  });
  if (thread_.joinable()) {
    thread_.join();
  } else {
    shut_down(Error{Code::closed, "the manager did not start"});
  }
  prober_.join();
}

void Control::run() {
  const auto work = boost::asio::make_work_guard(loop_);
  while (true) {
    try {
      loop_.run();
      return;
    } catch (const AssertionFailed& failed) {
      os::log().critical("assertion failed: {} ({}:{}); this manager ends, the process goes on", failed.what,
                         failed.file, failed.line);
      shut_down(Error{Code::internal, std::string("assertion failed: ") + failed.what});
    } catch (const std::exception& error) {
      os::log().critical("{}; this manager ends, the process goes on", error.what());
      shut_down(Error{Code::internal, error.what()});
    }
  }
}

// Takes what engine threads and movers handed over, and turns.
void Control::drain() {
  if (ended_) return;
  exchange_.take(incoming_);
  for (auto& cell : incoming_.opened) {
    const std::uint64_t handle = cell->handle.value;
    cells_.emplace(handle, std::move(cell));
  }
  incoming_.opened.clear();
  for (auto& event : incoming_.moved) push(std::move(event));
  incoming_.moved.clear();
  if (sender_) {
    sender_events_.insert(sender_events_.end(), std::make_move_iterator(incoming_.sender.begin()),
                          std::make_move_iterator(incoming_.sender.end()));
  } else {
    receiver_events_.insert(receiver_events_.end(), std::make_move_iterator(incoming_.receiver.begin()),
                            std::make_move_iterator(incoming_.receiver.end()));
  }
  incoming_.sender.clear();
  incoming_.receiver.clear();
  turn();
}

// Hands the collected events to core and performs what it orders, until nothing is left; then lets everything leave.
void Control::turn() {
  if (turning_ || ended_) return;
  turning_ = true;
  do {
    turn_once();
    for (std::size_t i = 0; i < dirty_.size(); ++i) {
      Session* session = find(dirty_[i]);
      if (session == nullptr) continue;
      session->dirty = false;
      session->link->flush();
    }
    dirty_.clear();
  } while (!sender_events_.empty() || !receiver_events_.empty());
  publish_stats();
  exchange_.publish(changed_cells_);
  turning_ = false;
}

void Control::turn_once() {
  const Instant now = os::now();
  if (sender_) {
    auto events = std::exchange(sender_events_, {});
    sender_->turn(events, now);
    if (sender_events_.empty()) sender_events_ = std::move(events);  // keeps the memory
  } else {
    auto events = std::exchange(receiver_events_, {});
    receiver_->turn(events, now);
    if (receiver_events_.empty()) receiver_events_ = std::move(events);
  }
}

void Control::wake_at(Instant deadline) {
  // An earlier wake-up than needed costs less than moving the timer with every turn.
  if (deadline >= wake_instant_) return;
  wake_instant_ = deadline;
  wake_timer_.expires_at(std::chrono::steady_clock::time_point(deadline.time_since_epoch()));
  wake_timer_.async_wait([this](boost::system::error_code stopped) {
    if (stopped || ended_) return;
    wake_instant_ = Instant::max();
    turn();
  });
}

void Control::publish_stats() {
  const core::Counters counters = sender_ ? sender_->core().counters() : receiver_->core().counters();
  constexpr auto relaxed = std::memory_order_relaxed;
  published_.rooms_succeeded.store(counters.rooms_succeeded, relaxed);
  published_.rooms_failed.store(counters.rooms_failed, relaxed);
  published_.bytes.store(counters.bytes, relaxed);
  published_.sessions_live.store(counters.sessions_live, relaxed);
  published_.sessions_lost.store(counters.sessions_lost, relaxed);
  published_.quarantined_pages.store(counters.quarantined_pages, relaxed);
  published_.late_messages.store(counters.late_messages, relaxed);
  published_.orphan_grants.store(counters.orphan_grants, relaxed);
  published_.rooms_live.store(counters.rooms_live, relaxed);
}

ManagerStats Control::stats() const {
  ManagerStats stats;
  stats.rooms_live = published_.rooms_live.load();
  stats.rooms_succeeded = published_.rooms_succeeded.load();
  stats.rooms_failed = published_.rooms_failed.load();
  stats.bytes = published_.bytes.load();
  stats.sessions_live = published_.sessions_live.load();
  stats.sessions_lost = published_.sessions_lost.load();
  stats.quarantined_pages = published_.quarantined_pages.load();
  stats.late_messages = published_.late_messages.load();
  stats.orphan_grants = published_.orphan_grants.load();
  stats.bootstraps_down = published_.bootstraps_down.load();
  const std::lock_guard lock(transports_mutex_);
  stats.transports = transports_;
  return stats;
}

// Ends everything: links close, movers join (so nothing is read or written any more), then the engine is told.
void Control::shut_down(const Error& error) {
  if (ended_) return;
  ended_ = true;
  registration_.reset();
  bootstrap_watch_.reset();
  listener_.reset();
  handshakes_.clear();
  waiting_links_.clear();
  exit_watches_.clear();
  for (auto& [id, session] : sessions_) {
    session.link->close();
    session.exit_watch.reset();
  }
  sessions_.clear();
  wake_timer_.cancel();
  memory_server_.reset();
  tcp_.reset();
  samehost_.reset();
  summer_.reset();
  exchange_.close(error);
}

}  // namespace kvferry::runtime
