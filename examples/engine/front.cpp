#include "engine/front.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace kvferry::engine {

std::optional<int> Front::start(const EngineOptions& options, int (*run_group)(const EngineOptions&)) {
  for (std::uint32_t dp = 0; dp < options.split.dp; ++dp) {
    int orders[2];
    int answers[2];
    if (::pipe2(orders, O_CLOEXEC) != 0 || ::pipe2(answers, O_CLOEXEC) != 0) return 3;
    const int pid = ::fork();
    if (pid < 0) return 3;
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const GroupProcess& other : groups_) {
        ::close(other.orders);
        ::close(other.answers);
      }
      ::dup2(orders[0], STDIN_FILENO);
      ::dup2(answers[1], STDOUT_FILENO);
      for (const int fd : {orders[0], orders[1], answers[0], answers[1]}) ::close(fd);
      EngineOptions its = options;
      its.place.dp = dp;
      return run_group(its);
    }
    ::close(orders[0]);
    ::close(answers[1]);
    groups_.push_back({pid, orders[1], answers[0], LineReader(answers[0])});
  }
  return std::nullopt;
}

int Front::run() {
  LineReader orders(STDIN_FILENO);
  bool ready = false;
  while (true) {
    std::vector<pollfd> watched{{STDIN_FILENO, POLLIN, 0}};
    for (const GroupProcess& group : groups_) watched.push_back({group.answers, POLLIN, 0});
    ::poll(watched.data(), watched.size(), -1);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (watched[i + 1].revents != 0 && !take_answers(groups_[i])) return end(4);
    }
    if (!ready && std::ranges::all_of(groups_, &GroupProcess::ready)) {
      ready = true;
      say(ready_line(::getpid(), ""));
    }
    if (watched[0].revents != 0 && !orders.fill()) return end(0);
    while (const auto line = orders.next()) {
      if (!hand_on(*line)) return end(0);
    }
  }
}

bool Front::hand_on(const std::string& line) {
  const auto order = parse_order(line);
  std::size_t group = 0;
  if (order) {
    if (std::holds_alternative<Quit>(*order)) return false;
    if (const auto* request = std::get_if<Request>(&*order)) {
      group = request->room % groups_.size();
      group_of_[request->id] = group;
    } else if (const auto* abort = std::get_if<AbortRequest>(&*order)) {
      const auto known = group_of_.find(abort->id);
      if (known == group_of_.end()) return true;
      group = known->second;
    }
  }
  const std::string text = line + "\n";
  return ::write(groups_[group].orders, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool Front::take_answers(GroupProcess& group) {
  if (!group.lines.fill()) return false;
  while (const auto line = group.lines.next()) {
    if (!group.ready) {
      group.ready = true;  // it says nothing before that
    } else {
      say(*line);
    }
  }
  return true;
}

// Groups end when their orders do.
int Front::end(int status) {
  for (const GroupProcess& group : groups_) {
    if (status != 0) ::kill(group.pid, SIGKILL);
    ::close(group.orders);
  }
  for (const GroupProcess& group : groups_) ::waitpid(group.pid, nullptr, 0);
  return status;
}

}  // namespace kvferry::engine
