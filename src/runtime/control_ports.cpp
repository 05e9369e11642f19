#include <utility>

#include "os/log.h"
#include "runtime/control.h"

namespace kvferry::runtime {

Session* Control::find(SessionId session) {
  const auto entry = sessions_.find(session);
  return entry == sessions_.end() ? nullptr : &entry->second;
}

transport::Mover* Control::mover_of(SessionId session) {
  if (Session* live = find(session)) return live->mover;
  const auto closing = closing_movers_.find(session);
  return closing == closing_movers_.end() ? nullptr : closing->second;
}

RoomCell* Control::cell_of(core::HandleId handle) {
  const auto entry = cells_.find(handle.value);
  return entry == cells_.end() ? nullptr : entry->second.get();
}

void Control::changed(core::HandleId handle) {
  const auto entry = cells_.find(handle.value);
  if (entry != cells_.end()) changed_cells_.push_back(entry->second);
}

void Control::touch(Session& session) {
  if (std::exchange(session.dirty, true)) return;
  dirty_.push_back(session.id);
}

// ---- To the network. ----

void Control::perform(core::effect::Send& e) {
  Session* session = find(e.session);
  if (session == nullptr) return;
  session->link->send(e.message);
  touch(*session);
}

void Control::perform(core::effect::SendInline& e) {
  Session* session = find(e.order.session);
  if (session == nullptr) return;
  pieces_.clear();
  gather_inline(*session->view, e.order, pieces_);
  session->link->send(protocol::Inline{e.order.transfer, e.order.span}, pieces_);
  touch(*session);
}

void Control::perform(core::effect::CloseSession& e) {
  const auto entry = sessions_.find(e.session);
  if (entry == sessions_.end()) return;
  Session& session = entry->second;
  session_of_link_.erase(session.link->id().value);
  session.link->flush();
  session.link->close();
  if (session.mover != nullptr) closing_movers_[e.session] = session.mover;
  // The side that is read from keeps watching a reader whose link is lost: its exit releases the pages.
  if (session.mover == nullptr && session.exit_watch) {
    exit_watches_[session.peer.incarnation] = std::move(session.exit_watch);
  }
  // We may be inside of one of the link's own callbacks.
  boost::asio::post(loop_, [link = std::move(session.link)] {});
  sessions_.erase(entry);
  const std::lock_guard lock(transports_mutex_);
  transports_.clear();
  for (const auto& [other, live] : sessions_) transports_.push_back(live.transport);
}

void Control::perform(core::effect::FetchSizes& e) {
  bootstrap_watch_->use(e.bootstrap);
  net::fetch_sizes(loop_, e.bootstrap, options_.settings,
                   [this, server = e.bootstrap](Result<net::InstanceSizes> sizes) {
                     if (ended_) return;
                     if (!sizes) {
                       push(core::event::SizesFetched{server, sizes.error()});
                     } else {
                       push(core::event::SizesFetched{server, core::InstanceSizes{sizes->parallel, sizes->instance}});
                     }
                     turn();
                   });
}

void Control::perform(core::effect::FetchRoute& e) {
  bootstrap_watch_->use(e.key.bootstrap);
  net::fetch_route(
      loop_, e.key.bootstrap, options_.settings, e.key.place, [this, key = e.key](Result<net::Route> route) {
        if (ended_) return;
        if (!route) {
          push(core::event::RouteFetched{key, route.error()});
        } else {
          push(core::event::RouteFetched{key, core::Route{route->address, route->instance, route->incarnation}});
        }
        turn();
      });
}

// ---- To the movers. ----

void Control::perform(core::effect::OpenWindow& e) {
  if (e.inlined) return inline_windows_.open(std::move(e.window));
  if (transport::Mover* mover = mover_of(e.window.session)) mover->open_window(std::move(e.window));
}

void Control::perform(core::effect::CloseWindow& e) {
  transport::Mover* mover = e.inlined ? nullptr : mover_of(e.session);
  if (mover != nullptr) return mover->close_window(e.session, e.transfer);
  inline_windows_.close(e.session, e.transfer);
  push(core::MoverEvent(core::WindowClosed{e.session, e.transfer}));
}

void Control::perform(core::effect::Move& e) {
  if (transport::Mover* mover = mover_of(e.order.session)) mover->move(std::move(e.order));
}

void Control::perform(core::effect::Sum& e) {
  if (const Session* session = find(e.order.session)) return summer_->sum(std::move(e.order), session->view);
  push(core::MoverEvent(core::Summed{e.order.session, e.order.transfer, 0}));  // the session is gone: nobody compares
}

void Control::perform(core::effect::StopMoves& e) {
  if (transport::Mover* mover = mover_of(e.session)) return mover->stop(e.session, e.transfer);
  push(core::MoverEvent(core::Stopped{e.session, e.transfer}));
}

void Control::perform(core::effect::CloseMoverSession& e) {
  transport::Mover* mover = mover_of(e.session);
  closing_movers_.erase(e.session);
  if (mover != nullptr) return mover->close_session(e.session);
  push(core::MoverEvent(core::SessionClosed{e.session}));
}

// ---- To the engine. ----

void Control::perform(core::effect::RoomChanged& e) {
  RoomCell* cell = cell_of(e.handle);
  if (cell == nullptr) return;
  if (e.error) {
    os::log().info("{}", e.error->message());
    cell->error = std::move(*e.error);
  }
  cell->state.store(e.state, std::memory_order_release);
  changed(e.handle);
}

void Control::perform(core::effect::PagesReleased& e) {
  if (RoomCell* cell = cell_of(e.handle)) cell->released.store(true, std::memory_order_release);
  changed(e.handle);
}

void Control::perform(core::effect::PrefixKnown& e) {
  if (RoomCell* cell = cell_of(e.handle)) cell->prefix_pages.store(e.prefix_pages, std::memory_order_relaxed);
}

void Control::perform(core::effect::ChunksTaken& e) {
  if (RoomCell* cell = cell_of(e.handle)) cell->chunks_waiting.fetch_sub(e.count, std::memory_order_relaxed);
}

void Control::perform(core::effect::BytesMoved& e) {
  if (RoomCell* cell = cell_of(e.handle)) cell->bytes.fetch_add(e.bytes, std::memory_order_relaxed);
}

void Control::perform(core::effect::LayersReceived& e) {
  if (RoomCell* cell = cell_of(e.handle)) cell->layers.store(e.count, std::memory_order_release);
  changed(e.handle);
}

void Control::perform(core::effect::HandleDone& e) { cells_.erase(e.handle.value); }

void Control::perform(core::effect::Note& e) { os::log().warn("{}", e.text); }

}  // namespace kvferry::runtime
