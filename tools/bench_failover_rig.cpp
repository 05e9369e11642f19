#include "tools/bench_failover_rig.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <thread>

#include "base/try.h"

namespace kvferry::tools {

namespace {

constexpr std::size_t page_bytes = 65536;
constexpr std::size_t room_pages = 4;  // too much for the control link, so that windows are open
constexpr std::size_t loop_slots = 8;
constexpr std::size_t loops_max = 2;
constexpr double patience_seconds = 20;  // a room that has not ended by then never will

// Sees the other end of a pipe go, in a thread of its own: nothing else that this process does may delay it.
class CloseWatch {
 public:
  explicit CloseWatch(int fd)
      : thread_([this, fd] {
          pollfd end{.fd = fd, .events = 0, .revents = 0};
          while (::poll(&end, 1, static_cast<int>(patience_seconds * 1000)) < 0 && errno == EINTR) {
          }
          if (end.revents != 0) closed_at_ = bench::now_seconds();
        }) {}
  CloseWatch(const CloseWatch&) = delete;
  CloseWatch& operator=(const CloseWatch&) = delete;
  ~CloseWatch() {
    if (thread_.joinable()) thread_.join();
  }
  std::optional<double> closed_at() {
    thread_.join();
    return closed_at_;
  }

 private:
  std::optional<double> closed_at_;  // the thread's until it has been joined
  std::thread thread_;
};

}  // namespace

Result<FailoverRig> FailoverRig::make(const RigPlan& plan) {
  KVF_TRY(places, Places::make(plan.rooms + spares + loops_max * loop_slots, room_pages, page_bytes));
  KVF_TRY(options, bench_manager_options(Role::decode, places.memory(), page_bytes, plan.way, {}));
  if (plan.pings) {
    options.settings->ping_interval = plan.pings->interval;
    options.settings->ping_misses_max = plan.pings->misses_max;
  }
  KVF_TRY(manager, KvManager::create(std::move(options)));
  return FailoverRig(plan, std::move(places), std::move(manager));
}

Result<BenchPrefill> FailoverRig::prefill(const std::string& name, std::uint64_t ballast_bytes) const {
  WorkerSetup setup{.bootstrap = {},
                    .instance = name,
                    .way = plan_.way,
                    .page_bytes = page_bytes,
                    .room_pages = room_pages,
                    .places = plan_.rooms + loop_slots,
                    .ballast_bytes = ballast_bytes};
  BenchPrefill::Environment environment;
  if (plan_.pings) {
    environment = {{"KVFERRY_PING_INTERVAL", fmt::format("{}ms", plan_.pings->interval.count())},
                   {"KVFERRY_PING_MISSES", std::to_string(plan_.pings->misses_max)}};
  }
  KVF_TRY(made, BenchPrefill::make(std::move(setup), std::move(environment)));
  KVF_CHECK(made.start());
  return made;
}

Result<Receiver> FailoverRig::open_at(const std::string& bootstrap, std::uint64_t room, std::uint64_t place) {
  places_.stamp(place, ~room);
  KVF_TRY(receiver, manager_.open_receiver(bootstrap, room));
  KVF_CHECK(receiver.init({.pages = places_.pages(place)}));
  return receiver;
}

Result<Receiver> FailoverRig::open(const BenchPrefill& prefill, std::uint64_t room, std::size_t spare) {
  return open_at(prefill.bootstrap(), room, spare_place(spare));
}

Result<void> FailoverRig::hold(BenchPrefill& prefill) {
  held_first_ = take_numbers(plan_.rooms);
  held_failed_ = held_wrong_ = 0;
  KVF_CHECK(prefill.ask(fmt::format("hold {} {} {}", held_first_, plan_.rooms, room_pages / 2)));
  for (std::size_t i = 0; i < plan_.rooms; ++i) {
    KVF_TRY(receiver, open_at(prefill.bootstrap(), held_first_ + i, i));
    held_.push_back({std::move(receiver)});
  }
  KVF_CHECK(prefill.ask("granted"));
  const double limit = bench::now_seconds() + patience_seconds;
  while (!under_way()) {
    KVF_TRY(changed, turn(limit));
    if (!changed) return Error{.code = Code::timeout, .text = "the rooms to lose did not get under way"};
    for (const Held& held : held_) {
      if (auto error = held.receiver.error()) return *error;
    }
  }
  return {};
}

bool FailoverRig::under_way() const {
  for (std::size_t i = 0; i < held_.size(); ++i) {
    if (held_[i].receiver.poll() < (i % 2 == 0 ? Poll::transferring : Poll::waiting_for_input)) return false;
  }
  return true;
}

Result<Loss> FailoverRig::lose(BenchPrefill& prefill, int signal) {
  std::optional<CloseWatch> watch;
  if (signal == SIGKILL) watch.emplace(prefill.process().stdout_fd());
  const double start = bench::now_seconds();
  prefill.process().kill(signal);
  while (held_failed_ + held_wrong_ < held_.size()) {
    KVF_TRY(changed, turn(start + patience_seconds));
    if (!changed) break;
  }
  Loss loss;
  const auto closed_at = watch ? watch->closed_at() : std::nullopt;
  for (const Held& held : held_) {
    if (held.failed_at == 0) continue;
    loss.failed_ms.push_back((held.failed_at - start) * 1e3);
    if (closed_at) loss.after_close_ms.push_back((held.failed_at - *closed_at) * 1e3);
    if (loss.reason.empty()) loss.reason = held.receiver.error().value_or(Error{}).text;
  }
  loss.wrong = held_wrong_;
  loss.hung = held_.size() - held_failed_ - held_wrong_;
  return loss;
}

Result<void> FailoverRig::wait_released() {
  for (std::size_t i = 0; i < held_.size(); ++i) {
    KVF_CHECK(held_[i].receiver.wait_pages_released(std::chrono::seconds(static_cast<int>(patience_seconds))));
    places_.stamp(i, ~held_first_);
  }
  return {};
}

std::size_t FailoverRig::revived() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < held_.size(); ++i) {
    if (held_[i].receiver.poll() != Poll::failed || !places_.holds(i, ~held_first_)) ++count;
  }
  return count;
}

void FailoverRig::drop_held() {
  for (Held& held : held_) held.receiver.clear();
  held_.clear();
}

Result<void> FailoverRig::start_loop(BenchPrefill& prefill) {
  // Numbers that no other rooms of this manager come near.
  const std::uint64_t first = RoomLoop<Receiver>::endless * (loops_.size() + 1);
  KVF_CHECK(prefill.ask(fmt::format("loop {} {} {} 0", first, loop_slots, RoomLoop<Receiver>::endless)));
  loops_.push_back({.bootstrap = prefill.bootstrap(),
                    .rooms = RoomLoop<Receiver>(first, loop_slots),
                    .first_place = spare_place(spares) + loops_.size() * loop_slots});
  return fill(loops_.back());
}

Result<void> FailoverRig::fill(Loop& loop) {
  return loop.rooms.fill(
      [&](std::uint64_t room, std::size_t slot) { return open_at(loop.bootstrap, room, loop.first_place + slot); });
}

std::uint64_t FailoverRig::loop_rooms() const {
  std::uint64_t sum = 0;
  for (const Loop& loop : loops_) sum += loop.rooms.succeeded();
  return sum;
}

std::uint64_t FailoverRig::loop_failures() const {
  std::uint64_t sum = 0;
  for (const Loop& loop : loops_) sum += loop.rooms.failed();
  return sum;
}

void FailoverRig::take(const RoomChange& change, double at) {
  if (change.room >= held_first_ && change.room - held_first_ < held_.size()) {
    Held& held = held_[change.room - held_first_];
    if (change.state == Poll::failed && held.failed_at == 0) {
      held.failed_at = at;
      ++held_failed_;
    }
    if (change.state == Poll::success) held_wrong_ += change.pages_released ? 1 : 0;
    return;
  }
  for (Loop& loop : loops_) {
    loop.rooms.take(change, [&](const Receiver&, const RoomChange& now, std::size_t slot) {
      if (now.state != Poll::success || !now.pages_released) return;
      if (!places_.holds(loop.first_place + slot, now.room)) ++loop_wrong_;
    });
  }
}

Result<bool> FailoverRig::turn(double until_seconds) {
  const double left = until_seconds - bench::now_seconds();
  if (left <= 0) return false;
  const double whole = std::floor(left);
  const timespec limit{.tv_sec = static_cast<time_t>(whole), .tv_nsec = static_cast<long>((left - whole) * 1e9)};
  pollfd event{.fd = manager_.event_fd(), .events = POLLIN, .revents = 0};
  const int ready = ::ppoll(&event, 1, &limit, nullptr);
  if (ready < 0 && errno != EINTR) return Error{.text = fmt::format("poll failed with errno {}", errno)};
  if (ready <= 0) return ready < 0;
  const double at = bench::now_seconds();
  for (const RoomChange& change : manager_.changed()) take(change, at);
  for (Loop& loop : loops_) KVF_CHECK(fill(loop));
  return true;
}

Result<void> FailoverRig::run_until(double until_seconds) {
  for (;;) {
    KVF_TRY(changed, turn(until_seconds));
    if (!changed) return {};
  }
}

}  // namespace kvferry::tools
