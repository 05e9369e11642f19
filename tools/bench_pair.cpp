#include "tools/bench_pair.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/try.h"

namespace kvferry::tools {

namespace {
constexpr int silence_ms_max = 60'000;
}

const char* way_name(Way way) {
  switch (way) {
    case Way::tcp:
      return "tcp";
    case Way::samehost:
      return "samehost";
    case Way::shared:
      return "shared";
  }
  return "unknown";
}

int serve(const bench::Channel& channel, const std::function<Result<BenchAnswer>(const BenchCommand&)>& handle) {
  for (;;) {
    auto command = channel.receive<BenchCommand>();
    if (!command) return 0;  // the leader is done
    const double cpu_before = bench::cpu_seconds();
    auto done = handle(*command);
    BenchAnswer answer = done ? *done : BenchAnswer{.ok = false};
    if (!done) done.error().message().copy(answer.error.data(), answer.error.size() - 1);
    answer.cpu_seconds = bench::cpu_seconds() - cpu_before;
    if (!channel.send(answer)) return 0;
  }
}

// What the user has set stays.
void quiet_at_the_end() { ::setenv("KVFERRY_LOG", "error", 0); }

Result<void> tell(const bench::Child& child, const BenchCommand& command) { return child.channel().send(command); }

Result<BenchAnswer> hear(const bench::Child& child) {
  KVF_TRY(answer, child.channel().receive<BenchAnswer>());
  if (!answer.ok) return Error{.text = fmt::format("the prefill process: {}", answer.error.data())};
  return answer;
}

Result<BenchAnswer> ask(const bench::Child& child, const BenchCommand& command) {
  KVF_CHECK(tell(child, command));
  return hear(child);
}

Result<ManagerOptions> bench_manager_options(Role role, std::span<std::byte> memory, std::size_t page_bytes, Way way,
                                             const std::string& bootstrap) {
  KVF_TRY(settings, Settings::from_environment());
  settings.transport = way == Way::tcp ? Transport::tcp : Transport::samehost;
  settings.host = "127.0.0.1";
  ManagerOptions options;
  options.role = role;
  options.memory.kv = {{.base = memory.data(), .length = memory.size(), .item_bytes = page_bytes}};
  // One buffer a layer, as MLA has it: a page is then exactly one piece of `page_bytes`.
  options.format = {.layers = 1, .kv_heads = 1, .head_dim = 128, .mla = true};
  options.bootstrap = bootstrap;
  options.settings = settings;
  return options;
}

Result<KvManager> make_bench_manager(Role role, std::span<std::byte> memory, std::size_t page_bytes, Way way,
                                     const std::string& bootstrap) {
  KVF_TRY(options, bench_manager_options(role, memory, page_bytes, way, bootstrap));
  return KvManager::create(std::move(options));
}

Result<void> wait_for_change(const KvManager& manager) {
  pollfd event{.fd = manager.event_fd(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = ::poll(&event, 1, silence_ms_max);
    if (ready > 0) return {};
    if (ready == 0) return Error{.code = Code::timeout, .text = "no room changed for a minute"};
    if (errno != EINTR) return Error{.text = fmt::format("poll failed with errno {}", errno)};
  }
}

Result<void> wait_for_state(KvManager& manager, const RoomHandle& room, Poll state) {
  while (room.poll() < state) {
    if (room.poll() == Poll::failed) return room.error().value_or(Error{.text = "a room failed without a reason"});
    KVF_CHECK(wait_for_change(manager));
    manager.changed();
  }
  return {};
}

}  // namespace kvferry::tools
