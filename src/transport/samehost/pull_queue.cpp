#include "transport/samehost/pull_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "layout/pages.h"

namespace kvferry::transport {

using layout::component_kv;

// A chunk that is pulled.
struct PullQueue::Job {
  Job(const layout::View& view, ChunkOrder its_order) : order(std::move(its_order)), cursor(view, order) {}
  ChunkOrder order;
  ChunkCursor cursor;
  std::uint32_t under_way = 0;          // steps that workers copy now
  std::atomic<bool> cancelled{false};   // read by workers without the lock
  std::atomic<bool> last_taken{false};  // likewise
};

struct PullQueue::Session {
  struct Transfer {
    std::deque<std::shared_ptr<Job>> jobs;  // shared with the steps under way
    std::uint64_t unreported_bytes = 0;
  };
  Session(SessionId its_id, std::unique_ptr<ReadablePeer> its_peer, layout::View its_view)
      : id(its_id), peer(std::move(its_peer)), view(std::move(its_view)), windows(view) {}

  SessionId id;
  std::unique_ptr<ReadablePeer> peer;
  const layout::View view;  // of this side
  WindowTable windows;
  std::unordered_map<std::uint64_t, Transfer> transfers;  // those with jobs
  std::deque<std::uint64_t> ring;                         // those whose first job has parts that nobody copies yet
  std::uint32_t under_way = 0;                            // steps
  std::int64_t left_bytes = 0;                            // of the last turn's budget
  bool queued = false;                                    // stands in turns_
  bool lost = false;
  bool closing = false;
};

const ReadablePeer& PullQueue::Step::peer() const { return *session->peer; }
const std::atomic<bool>& PullQueue::Step::cancelled() const { return job->cancelled; }
bool PullQueue::Step::last_taken() const { return job->last_taken.load(); }

PullQueue::PullQueue(std::uint32_t workers_a_session_max, MoverSink& sink)
    : workers_a_session_max_(workers_a_session_max), sink_(sink) {}
PullQueue::~PullQueue() = default;

PullQueue::Session* PullQueue::find(SessionId session) {
  const auto found = sessions_.find(session.value);
  return found == sessions_.end() || found->second->closing ? nullptr : found->second.get();
}

void PullQueue::open_session(SessionId id, std::unique_ptr<ReadablePeer> peer, layout::View view) {
  sessions_.try_emplace(id.value, std::make_unique<Session>(id, std::move(peer), std::move(view)));
}

void PullQueue::open_window(Window window) {
  Session* session = find(window.session);
  if (session == nullptr) return;
  const TransferId transfer = window.transfer;
  if (auto opened = session->windows.open(std::move(window)); !opened) {
    sink_.post(Rejected{session->id, transfer, std::move(opened.error())});
  }
}

void PullQueue::close_window(SessionId id, TransferId transfer) {
  const auto found = sessions_.find(id.value);
  if (found != sessions_.end()) {
    drop(*found->second, transfer);
    // Where a worker is in a call, WindowClosed follows when that has ended.
    if (found->second->windows.close(transfer) == WindowTable::Closed::after_copies) return;
  }
  sink_.post(WindowClosed{id, transfer});
}

void PullQueue::stop(SessionId id, TransferId transfer) {
  // Receivers pull, so a sender's side has nothing queued here.
  sink_.post(Stopped{id, transfer});
}

void PullQueue::move(ChunkOrder order) {
  Session* session = find(order.session);
  if (session == nullptr || session->lost) return;  // the loss was reported
  const TransferId transfer = order.transfer;
  auto settled = settle_order(session->view, order);
  if (settled) settled = check_source(*session, order);
  if (settled) {
    auto inside = session->windows.check(order);
    if (inside && !*inside) return;  // closed in the meantime
    if (!inside) settled = std::move(inside.error());
  }
  if (!settled) {
    drop(*session, transfer);
    session->windows.reject(transfer);
    sink_.post(Rejected{session->id, transfer, std::move(settled.error())});
    return;
  }
  auto& jobs = session->transfers[transfer.value].jobs;
  jobs.push_back(std::make_shared<Job>(session->view, std::move(order)));
  if (jobs.size() == 1) session->ring.push_back(transfer.value);
  offer(*session);
}

Result<void> PullQueue::check_source(const Session& session, const ChunkOrder& order) const {
  for (const ItemList& list : order.lists) {
    const auto here = session.view.regions(list.component);
    const auto& there = session.peer->regions(list.component);
    if (list.items.empty()) continue;
    if (here.size() != there.size()) {
      return Error{Code::mismatch, fmt::format("component {} has {} regions here and {} at the peer", list.component,
                                               here.size(), there.size())};
    }
    std::size_t checked = SIZE_MAX;
    for (std::size_t r = 0; r < there.size(); ++r) {
      if (here[r].unit_bytes != there[r].region.unit_bytes) {
        return Error{Code::mismatch,
                     fmt::format("region {} of component {} has {} bytes to move of an item here and {} at the peer", r,
                                 list.component, here[r].unit_bytes, there[r].region.unit_bytes)};
      }
      if (there[r].region.unit_count >= checked) continue;
      checked = there[r].region.unit_count;
      if (auto fits = layout::check_items(list.items, checked, "source item"); !fits) return std::move(fits.error());
    }
  }
  return {};
}

void PullQueue::offer(Session& session) {
  if (session.queued || session.ring.empty() || session.under_way >= workers_a_session_max_) return;
  session.queued = true;
  turns_.add(&session, session.left_bytes);
}

void PullQueue::take(Step& step) {
  const auto turn = turns_.take();
  Session& session = *turn->key;
  session.queued = false;
  const std::uint64_t key = session.ring.front();
  session.ring.pop_front();
  step.session = &session;
  step.job = session.transfers.at(key).jobs.front();
  plan(session, *step.job, turn->budget_bytes, step);
  if (step.job->cursor.done()) {
    step.job->last_taken.store(true);
  } else {
    session.ring.push_back(key);
  }
  ++session.under_way;
  ++step.job->under_way;
  session.windows.copy_began(step.job->order.transfer);
  session.left_bytes = turn->budget_bytes - static_cast<std::int64_t>(step.bytes);
  offer(session);
}

void PullQueue::plan(Session& session, Job& job, std::int64_t budget_bytes, Step& step) {
  constexpr std::size_t pieces_max = 1024;  // so that one call takes them
  const auto bytes_max = static_cast<std::uint64_t>(std::min(budget_bytes, quantum_bytes));
  std::size_t pieces = 0;
  step.pulls.clear();
  step.bytes = 0;
  while (!job.cursor.done() && step.bytes < bytes_max && pieces < pieces_max) {
    ChunkCursor ahead = job.cursor;
    const Part part = ahead.next(bytes_max - step.bytes, pieces_max - pieces);
    if (step.bytes > 0 && step.bytes + part.bytes > bytes_max) break;  // an item that does not fit any more
    job.cursor = ahead;
    const bool kv = part.component == component_kv;
    const std::size_t count = part.item_end - part.item_begin;
    const std::uint64_t granted_from =
        kv ? job.order.span.position_begin - session.windows.first_position(job.order.transfer) : 0;
    const std::size_t regions = part.region_end - part.region_begin;
    step.pulls.push_back(
        {.source = std::span(session.peer->regions(part.component)).subspan(part.region_begin, regions),
         .target = session.view.regions(part.component).subspan(part.region_begin, regions),
         .source_items = std::span(job.order.lists[part.list].items).subspan(part.item_begin, count),
         .target_items =
             session.windows.items(job.order.transfer, part.component).subspan(granted_from + part.item_begin, count)});
    step.bytes += part.bytes;
    pieces += part.pieces;
  }
}

void PullQueue::finish(Step& step, Result<void> copied) {
  Session& session = *step.session;
  Job& job = *step.job;
  const TransferId transfer = job.order.transfer;
  --session.under_way;
  --job.under_way;
  const bool wanted = !job.cancelled.load(std::memory_order_relaxed);
  const auto failed = copied ? std::nullopt : std::optional(copied.error().code);
  // A right that is gone stays gone: the pair links anew, and by a way that is still open.
  if (failed == Code::peer_lost || failed == Code::unsupported) {
    lose(session, std::move(copied.error()));
  } else if (!copied && wanted) {
    drop(session, transfer);
    session.windows.reject(transfer);
    sink_.post(Rejected{session.id, transfer, std::move(copied.error())});
  } else if (copied && wanted) {
    count(session, job, step.bytes);
  }
  if (session.windows.copy_ended(transfer)) sink_.post(WindowClosed{session.id, transfer});
  step.job.reset();
  step.pulls.clear();
  offer(session);
  remove_if_closed(session);
}

void PullQueue::count(Session& session, Job& job, std::uint64_t bytes) {
  const TransferId id = job.order.transfer;
  auto& transfer = session.transfers.at(id.value);
  transfer.unreported_bytes += bytes;
  if (transfer.unreported_bytes >= static_cast<std::uint64_t>(quantum_bytes)) {
    sink_.post(Progress{session.id, id, std::exchange(transfer.unreported_bytes, 0)});
  }
  if (!job.cursor.done() || job.under_way > 0) return;
  conclude(session, job);
  transfer.jobs.pop_front();
  if (transfer.jobs.empty()) {
    session.transfers.erase(id.value);
  } else {
    session.ring.push_back(id.value);
  }
}

void PullQueue::conclude(Session& session, const Job& job) {
  Placed placed{session.id, job.order.transfer, job.order.span, false, {}, job.cursor.bytes()};
  placed.state_items.resize(session.view.component_count() - layout::component_state, 0);
  for (const ItemList& list : job.order.lists) {
    if (list.component == layout::component_aux) placed.with_aux = !list.items.empty();
    if (list.component >= layout::component_state) {
      placed.state_items[list.component - layout::component_state] = list.items.size();
    }
  }
  sink_.post(std::move(placed));
}

// Steps under way go on and end by themselves; what they copied does not count.
void PullQueue::drop(Session& session, TransferId transfer) {
  const auto found = session.transfers.find(transfer.value);
  if (found == session.transfers.end()) return;
  for (const auto& job : found->second.jobs) job->cancelled.store(true, std::memory_order_relaxed);
  session.transfers.erase(found);
  std::erase(session.ring, transfer.value);
  if (session.ring.empty() && std::exchange(session.queued, false)) turns_.remove(&session);
}

void PullQueue::lose(Session& session, Error error) {
  while (!session.transfers.empty()) drop(session, TransferId{session.transfers.begin()->first});
  if (std::exchange(session.lost, true) || session.closing) return;
  sink_.post(SessionLost{session.id, std::move(error)});
}

void PullQueue::close_session(SessionId id) {
  const auto found = sessions_.find(id.value);
  if (found == sessions_.end()) return sink_.post(SessionClosed{id});
  Session& session = *found->second;
  while (!session.transfers.empty()) drop(session, TransferId{session.transfers.begin()->first});
  session.closing = true;
  remove_if_closed(session);
}

void PullQueue::remove_if_closed(Session& session) {
  if (!session.closing || session.under_way > 0) return;
  const SessionId id = session.id;
  sessions_.erase(id.value);
  sink_.post(SessionClosed{id});
}

}  // namespace kvferry::transport
