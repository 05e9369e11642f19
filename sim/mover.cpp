#include "sim/mover.h"

#include <algorithm>

#include "layout/pages.h"
#include "sim/process.h"
#include "sim/world.h"

namespace kvferry::sim {

void Mover::open_window(core::Window window) {
  const TransferId transfer = window.transfer;
  windows_[transfer] = OpenWindow{std::move(window)};
}

void Mover::close_window(SessionId session, TransferId transfer) {
  const auto entry = windows_.find(transfer);
  if (world_.options.plant == Plant::window_closed_early) {
    process_.post_mover(core::WindowClosed{session, transfer});
  }
  if (entry == windows_.end() || entry->second.window.session != session) {
    if (world_.options.plant != Plant::window_closed_early) {
      process_.post_mover(core::WindowClosed{session, transfer});
    }
    return;
  }
  // The data thread hears of it a little later, and finishes the copy that is under way.
  process_.run_at(world_.schedule.now() + world_.copy_time(), [this, transfer] {
    const auto there = windows_.find(transfer);
    if (there == windows_.end()) return;
    there->second.closing = true;
    copy_ended(transfer);
  });
}

// A window that is closing is closed once no copy into it is under way.
void Mover::copy_ended(TransferId transfer) {
  const auto entry = windows_.find(transfer);
  if (entry == windows_.end() || !entry->second.closing || entry->second.copies > 0) return;
  const SessionId session = entry->second.window.session;
  windows_.erase(entry);
  if (world_.options.plant != Plant::window_closed_early) {
    process_.post_mover(core::WindowClosed{session, transfer});
  }
  when_quiet(session);
}

void Mover::move(core::ChunkOrder order) {
  Channel& channel = channels_[order.session];
  if (channel.closing) return;
  const SessionId session = order.session;
  channel.jobs.push_back(Job{std::move(order)});
  pump(session);
}

void Mover::pump(SessionId session) {
  Channel& channel = channels_[session];
  if (channel.busy || channel.jobs.empty()) return;
  if (world_.options.plant == Plant::unfair_queue && serving_) return;
  serving_ = session;
  channel.busy = true;
  process_.run_at(world_.schedule.now() + world_.copy_time(), [this, session] { step(session); });
}

// A stopped process takes nothing out of its sockets, and they are full at once.
bool Mover::blocked(SessionId session) const {
  const Process* peer = process_.is_prefill ? process_.network().peer(process_, session) : nullptr;
  return peer != nullptr && peer->stopped;
}

// One part of the first job: some items of one component.
void Mover::step(SessionId session) {
  Channel& channel = channels_[session];
  Job& job = channel.jobs.front();
  if (blocked(session) && !job.stopped && !channel.closing) {
    return process_.run_at(world_.schedule.now() + std::chrono::milliseconds(1), [this, session] { step(session); });
  }
  channel.busy = false;
  serving_.reset();
  bool goes_on = true;
  if (process_.is_prefill) {
    push_part(channel, job);
  } else {
    goes_on = pull_part(session, job);
  }
  if (job.stopped && world_.options.plant != Plant::stopped_early) {
    process_.post_mover(core::Stopped{session, job.order.transfer});
  }
  if (job.stopped || !goes_on) {
    channel.jobs.pop_front();
  } else if (job.list == job.lists()) {
    finish(session, job);
    channel.jobs.pop_front();
  }
  when_quiet(session);
  pump(session);
  if (world_.options.plant != Plant::unfair_queue) return;
  for (const auto& [other, waiting] : channels_) pump(other);
}

void Mover::push_part(Channel& channel, Job& job) {
  if (job.list == job.lists()) return;
  const core::ItemList& list = job.order.lists[job.list];
  const std::uint64_t count = std::min<std::uint64_t>(world_.prng.between(1, 4), list.items.size() - job.done);
  const auto first = list.items.begin() + static_cast<std::ptrdiff_t>(job.done);
  const std::vector<std::int32_t> items(first, first + static_cast<std::ptrdiff_t>(count));
  if (count > 0) {
    world_.judge.on_read(process_, list.component, items, job.order.transfer);
    DataFrame frame{job.order.transfer, job.order.span, list.component, job.done, count, {}};
    if (list.component == layout::component_kv) frame.begin += job.order.span.position_begin;
    frame.values = process_.memory.read(list.component, items);
    job.bytes += frame.values.size() * sizeof(std::uint64_t);
    if (!channel.closing) process_.network().send_data(process_, job.order.session, std::move(frame));
  }
  job.done += count;
  if (job.done == list.items.size()) {
    ++job.list;
    job.done = 0;
  }
}

// False where the job is dropped.
bool Mover::pull_part(SessionId session, Job& job) {
  if (job.list == job.lists()) return true;
  const auto entry = windows_.find(job.order.transfer);
  if (entry == windows_.end() || entry->second.closing) return false;
  Process* peer = process_.network().peer(process_, session);
  if (peer == nullptr || !peer->alive) {
    process_.post_mover(core::SessionLost{session, Error{Code::peer_lost, "the process cannot be read"}});
    return false;
  }
  const core::ItemList& list = job.order.lists[job.list];
  const std::uint64_t count = std::min<std::uint64_t>(world_.prng.between(1, 4), list.items.size() - job.done);
  if (count > 0) {
    std::uint64_t begin = job.done;
    if (list.component == layout::component_kv) begin += job.order.span.position_begin;
    const auto to = targets(entry->second, list.component, begin, count);
    if (!to) return false;
    const auto first = list.items.begin() + static_cast<std::ptrdiff_t>(job.done);
    const std::vector<std::int32_t> from(first, first + static_cast<std::ptrdiff_t>(count));
    const auto& regions = layout::component_regions(peer->memory.regions(), list.component);
    if (const auto fits = layout::check_items(from, regions.front().items(), "page"); !fits) {
      reject(entry->second.window, fits.error().text);
      return false;
    }
    std::vector<layout::Run> runs;
    layout::merge_runs(from, *to, runs);
    world_.judge.on_read(*peer, list.component, from, job.order.transfer);
    world_.judge.on_write(process_, list.component, *to, job.order.transfer);
    process_.memory.copy(list.component, peer->memory, runs);
    job.bytes += count * regions.size() * sizeof(std::uint64_t);
  }
  job.done += count;
  if (job.done == list.items.size()) {
    ++job.list;
    job.done = 0;
  }
  return true;
}

void Mover::finish(SessionId session, Job& job) {
  if (process_.is_prefill) {
    DataFrame end{job.order.transfer, job.order.span};
    end.end = true;
    end.bytes = job.bytes;
    end.state_items.resize(1, 0);
    for (const core::ItemList& list : job.order.lists) {
      if (list.component == layout::component_aux) end.with_aux = true;
      if (list.component == layout::component_state) end.state_items[0] = list.items.size();
    }
    process_.network().send_data(process_, session, std::move(end));
    process_.post_mover(core::Pushed{session, job.order.transfer, job.order.span.number, job.bytes});
    return;
  }
  core::Placed placed{session, job.order.transfer, job.order.span};
  placed.bytes = job.bytes;
  placed.state_items.resize(1, 0);
  for (const core::ItemList& list : job.order.lists) {
    if (list.component == layout::component_aux) placed.with_aux = true;
    if (list.component == layout::component_state) placed.state_items[0] = list.items.size();
  }
  process_.post_mover(std::move(placed));
}

void Mover::stop(SessionId session, TransferId transfer) {
  if (world_.options.plant == Plant::stopped_early) return process_.post_mover(core::Stopped{session, transfer});
  Channel& channel = channels_[session];
  bool under_way = false;
  std::deque<Job> kept;
  for (std::size_t i = 0; i < channel.jobs.size(); ++i) {
    Job& job = channel.jobs[i];
    if (job.order.transfer != transfer) {
      kept.push_back(std::move(job));
    } else if (i == 0 && channel.busy) {
      job.stopped = under_way = true;
      kept.push_back(std::move(job));
    }
  }
  channel.jobs = std::move(kept);
  if (!under_way) process_.post_mover(core::Stopped{session, transfer});
}

void Mover::close_session(SessionId session) {
  Channel& channel = channels_[session];
  channel.closing = true;
  if (world_.options.plant == Plant::session_closed_early) {
    channel.closed = true;
    return process_.post_mover(core::SessionClosed{session});
  }
  while (channel.jobs.size() > (channel.busy ? 1u : 0u)) channel.jobs.pop_back();
  if (channel.busy) channel.jobs.front().stopped = true;
  std::vector<TransferId> open;
  for (auto& [transfer, window] : windows_) {
    if (window.window.session != session) continue;
    window.closing = true;
    open.push_back(transfer);
  }
  for (const TransferId transfer : open) copy_ended(transfer);
  when_quiet(session);
}

// A closing session is closed once nothing of it moves.
void Mover::when_quiet(SessionId session) {
  Channel& channel = channels_[session];
  if (!channel.closing || channel.closed || channel.busy) return;
  for (const auto& [transfer, window] : windows_) {
    if (window.window.session == session) return;
  }
  channel.closed = true;
  channel.jobs.clear();
  process_.post_mover(core::SessionClosed{session});
}

void Mover::on_frame(SessionId session, const DataFrame& frame) {
  Channel& channel = channels_[session];
  const auto entry = windows_.find(frame.transfer);
  const bool open = entry != windows_.end() && entry->second.window.session == session && !entry->second.closing;
  if (!open) return;
  ++entry->second.copies;
  channel.placed_until = std::max(channel.placed_until, world_.schedule.now()) + world_.copy_time();
  if (frame.span.last && !frame.end && world_.options.plant == Plant::placed_early) {
    core::Placed placed{session, frame.transfer, frame.span};
    placed.state_items.resize(1, 0);
    for (const core::ItemList& list : entry->second.window.lists) {
      if (list.component == layout::component_aux) placed.with_aux = true;
      if (list.component == layout::component_state) placed.state_items[0] = list.items.size();
    }
    process_.post_mover(std::move(placed));
  }
  process_.run_at(channel.placed_until, [this, session, part = frame] { place(session, part); });
}

void Mover::place(SessionId session, const DataFrame& frame) {
  const auto entry = windows_.find(frame.transfer);
  if (entry == windows_.end()) return;
  OpenWindow& window = entry->second;
  if (frame.end) {
    process_.post_mover(
        core::Placed{session, frame.transfer, frame.span, frame.with_aux, frame.state_items, frame.bytes});
  } else if (const auto to = targets(window, frame.component, frame.begin, frame.count)) {
    const bool forgets = world_.options.plant == Plant::aux_forgotten && frame.component == layout::component_aux;
    if (!forgets) {
      world_.judge.on_write(process_, frame.component, *to, frame.transfer);
      process_.memory.write(frame.component, *to, frame.values);
      if (world_.options.plant == Plant::bits_flipped && world_.prng.percent(2)) {
        process_.memory.write(frame.component, *to, std::vector<std::uint64_t>(frame.values.size(), 0xbad));
      }
    }
    if (world_.prng.percent(20)) {
      process_.post_mover(core::Progress{session, frame.transfer, frame.values.size() * sizeof(std::uint64_t)});
    }
  }
  --window.copies;
  copy_ended(frame.transfer);
}

std::optional<std::vector<std::int32_t>> Mover::targets(const OpenWindow& window, std::uint32_t component,
                                                        std::uint64_t begin, std::uint64_t count) {
  const std::uint64_t first = component == layout::component_kv ? window.window.first_position : 0;
  for (const core::ItemList& list : window.window.lists) {
    if (list.component != component || begin < first || begin - first + count > list.items.size()) continue;
    const auto from = list.items.begin() + static_cast<std::ptrdiff_t>(begin - first);
    return std::vector<std::int32_t>(from, from + static_cast<std::ptrdiff_t>(count));
  }
  reject(window.window, "a part lies outside of its window");
  return std::nullopt;
}

void Mover::reject(const core::Window& window, std::string text) {
  process_.post_mover(core::Rejected{window.session, window.transfer, Error{Code::out_of_range, std::move(text)}});
}

}  // namespace kvferry::sim
