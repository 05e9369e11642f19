#include "tools/replay_worker.h"

#include <fcntl.h>
#include <poll.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "base/try.h"
#include "tools/context.h"
#include "tools/process.h"

namespace kvferry::tools {

namespace {

void say(const RoomOutcome& outcome) { std::cout << to_line(outcome) << '\n'; }

Result<void> loop(ReplayWorker& worker, LineReader& lines) {
  for (bool open = true; open;) {
    const bool busy = worker.work();
    for (const RoomOutcome& outcome : worker.outcomes()) say(outcome);
    std::cout.flush();
    pollfd waits[2] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                       {.fd = worker.event_fd(), .events = POLLIN, .revents = 0}};
    ::poll(waits, 2, busy ? 0 : -1);
    if (waits[0].revents != 0) open = lines.fill(STDIN_FILENO);
    while (auto line = lines.next()) {
      KVF_TRY(order, order_of(*line));
      if (auto* assignment = std::get_if<Assignment>(&order)) worker.assign(std::move(*assignment));
      if (const auto* room = std::get_if<GiveUp>(&order)) worker.give_up(room->room);
    }
    if (waits[1].revents != 0) worker.take_changes();
  }
  return {};
}

Result<std::string> first_line(LineReader& lines) {
  for (bool open = true; open;) {
    pollfd wait{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, -1);
    open = lines.fill(STDIN_FILENO);
    if (auto line = lines.next()) return *line;
  }
  return Error{.code = Code::closed, .text = "stdin closed before the setup came"};
}

Result<void> run() {
  ::fcntl(STDIN_FILENO, F_SETFL, ::fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
  LineReader lines;
  KVF_TRY(line, first_line(lines));
  KVF_TRY(setup, setup_of(line));
  KVF_TRY(memory, ReplayMemory::make(setup));
  KVF_TRY(manager, memory.make_manager());
  auto worker = setup.role == Role::prefill ? make_prefill_worker(memory, std::move(manager))
                                            : make_decode_worker(memory, std::move(manager));
  say({});
  return loop(*worker, lines);
}

}  // namespace

int run_replay_worker() {
  // Workers are ended together, which is no reason to warn of lost peers; a room that fails says so itself.
  ::setenv("KVFERRY_LOG", "error", 0);
  auto ran = run();
  if (ran) return exit_ok;
  say({.error = ran.error().message()});
  std::cout.flush();
  return exit_environment;
}

}  // namespace kvferry::tools
