#include "engine/group.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace kvferry::engine {
namespace {

std::string text_of(const Place& place) {
  return "rank dp " + std::to_string(place.dp) + " tp " + std::to_string(place.tp) + " pp " + std::to_string(place.pp);
}

// The other ranks: obey until the first one is gone.
class Follower final : public Exchange {
 public:
  Follower(Rank& rank, const Channel& channel) : rank_(rank), channel_(channel) {}

  int run() {
    while (true) {
      pollfd watched[] = {{channel_.fd(), POLLIN, 0}, {rank_.manager().event_fd(), POLLIN, 0}};
      ::poll(watched, 2, -1);
      if (watched[0].revents != 0) {
        const auto order = channel_.take_order();
        if (!order) return 0;
        rank_.obey(*order, this);
      }
      for (auto& [key, view] : rank_.changes()) {
        if (!channel_.send(RankAnswer(answer::Room{key, std::move(view)}))) return 0;
      }
    }
  }

  void stored(std::uint32_t layer) override { rank_.stored(layer); }
  // Gives its part where it has the layer, and takes all.
  void all_gather(std::uint32_t layer, std::span<float> mixed) override {
    const CacheShape& shape = rank_.parts().cache.shape();
    if (shape.has_layer(layer)) {
      const ModelConfig& model = rank_.parts().options.model;
      const std::size_t row = std::size_t{model.heads} * model.head_dim;
      answer::Floats own;
      for (std::size_t at = std::size_t{shape.first_query_head} * model.head_dim; at < mixed.size(); at += row) {
        const auto part = mixed.subspan(at, std::size_t{shape.query_heads} * model.head_dim);
        own.values.insert(own.values.end(), part.begin(), part.end());
      }
      if (!channel_.send(RankAnswer(std::move(own)))) std::_Exit(0);
    }
    if (!channel_.take_floats(mixed)) std::_Exit(0);
  }

 private:
  Rank& rank_;
  const Channel& channel_;
};

[[noreturn]] void be_follower(EngineOptions options, const Channel& channel) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto rank = Rank::make(options);
  if (!rank) {
    channel.send(RankAnswer(answer::Ready{rank.error().message()}));
    std::_Exit(3);
  }
  channel.send(RankAnswer(answer::Ready{}));
  int status = 0;
  {
    const std::unique_ptr<Rank> owned = std::move(*rank);
    status = Follower(*owned, channel).run();
  }
  std::_Exit(status);
}

}  // namespace

Result<std::unique_ptr<Group>> Group::start(const EngineOptions& options) {
  std::unique_ptr<Group> group(new Group());
  for (std::uint32_t number = 1; number < options.split.tp * options.split.pp; ++number) {
    EngineOptions its = options;
    its.place = {.dp = options.place.dp, .tp = number % options.split.tp, .pp = number / options.split.tp};
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Error{Code::unsupported, "no socket for " + text_of(its.place)};
    }
    const int pid = ::fork();
    if (pid < 0) return Error{Code::unsupported, "no process for " + text_of(its.place)};
    if (pid == 0) {
      group->members_.clear();  // their other ends must close with their first rank
      ::close(ends[0]);
      ::close(STDIN_FILENO);
      be_follower(its, Channel(ends[1]));
    }
    ::close(ends[1]);
    group->members_.push_back({Channel(ends[0]), its.place, pid});
  }
  auto rank = Rank::make(options);
  if (!rank) return rank.error();
  group->rank_ = std::move(*rank);
  for (const Member& member : group->members_) {
    const auto ready = member.channel.take_answer();
    const auto* words = ready ? std::get_if<answer::Ready>(&*ready) : nullptr;
    if (words == nullptr) return Error{Code::internal, text_of(member.place) + " ended before it was ready"};
    if (!words->failed.empty()) return Error{Code::internal, text_of(member.place) + ": " + words->failed};
  }
  group->events_ = ::epoll_create1(EPOLL_CLOEXEC);
  const auto watch = [&](int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    ::epoll_ctl(group->events_, EPOLL_CTL_ADD, fd, &event);
  };
  group->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  watch(group->wake_);
  watch(group->manager().event_fd());
  for (const Member& member : group->members_) watch(member.channel.fd());
  return group;
}

Group::~Group() {
  if (events_ >= 0) ::close(events_);
  if (wake_ >= 0) ::close(wake_);
  std::vector<int> pids;
  for (const Member& member : members_) pids.push_back(member.pid);
  members_.clear();  // they end when their channel does
  rank_.reset();
  for (const int pid : pids) ::waitpid(pid, nullptr, 0);
}

void Group::lose(const Member& member) const {
  std::fprintf(stderr, "kvferry-engine: %s (process %d) has ended, so its group ends\n", text_of(member.place).c_str(),
               member.pid);
  std::_Exit(4);
}

void Group::tell(const RankOrder& order, std::span<const std::span<float>> logits) {
  if (const auto* open = std::get_if<order::Open>(&order)) {
    // A state that says nothing until the first change comes.
    rooms_[open->key].views.assign(members_.size() + 1, RoomView{.released = false});
  }
  for (const Member& member : members_) {
    if (!member.channel.send(order)) lose(member);
  }
  rank_->obey(order, this, logits);
  if (rank_->refused()) ::eventfd_write(wake_, 1);
  if (const auto* forget = std::get_if<order::Forget>(&order)) rooms_.erase(forget->key);
}

void Group::refresh() {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_, &ignored);
  for (const auto& [key, view] : rank_->changes()) apply(0, key, view);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    pollfd watched{members_[i].channel.fd(), POLLIN, 0};
    while (::poll(&watched, 1, 0) > 0) {
      const auto said = members_[i].channel.take_answer();
      if (!said) lose(members_[i]);
      if (const auto* room = std::get_if<answer::Room>(&*said)) apply(i + 1, room->key, room->view);
    }
  }
  for (const std::uint64_t key : std::exchange(to_abort_, {})) {
    const auto room = rooms_.find(key);
    if (room != rooms_.end()) tell(order::Abort{key, room->second.failure.text});
  }
}

void Group::apply(std::size_t rank, std::uint64_t key, const RoomView& view) {
  const auto entry = rooms_.find(key);
  if (entry == rooms_.end()) return;
  Room& room = entry->second;
  room.views[rank] = view;
  if (view.poll != Poll::failed || room.failed) return;
  room.failed = true;
  room.failure = view;
  if (!members_.empty()) to_abort_.push_back(key);
}

RoomView Group::view(std::uint64_t key) const {
  const Room& room = rooms_.at(key);
  RoomView all = room.failed ? room.failure : room.views.front();
  all.bytes = 0;
  all.released = true;
  for (const RoomView& one : room.views) {
    if (!room.failed) all.poll = std::min(all.poll, one.poll);
    all.bytes += one.bytes;
    all.released = all.released && one.released;
  }
  return all;
}

// Stages that have the layer give their heads; every rank gets all of them.
void Group::all_gather(std::uint32_t layer, std::span<float> mixed) {
  const ModelConfig& model = parts().options.model;
  const std::size_t row = std::size_t{model.heads} * model.head_dim;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const CacheShape shape = model.cache_shape(0, 0, parts().options.split, members_[i].place);
    if (!shape.has_layer(layer)) continue;
    const answer::Floats own = floats_of(i);
    const std::size_t width = std::size_t{shape.query_heads} * model.head_dim;
    for (std::size_t at = std::size_t{shape.first_query_head} * model.head_dim, from = 0; at < mixed.size();
         at += row, from += width) {
      std::copy_n(own.values.begin() + static_cast<std::ptrdiff_t>(from), width, mixed.data() + at);
    }
  }
  for (const Member& member : members_) {
    if (!member.channel.send_floats(mixed)) lose(member);
  }
}

// What a member says of its rooms may come first.
answer::Floats Group::floats_of(std::size_t index) {
  while (true) {
    auto said = members_[index].channel.take_answer();
    if (!said) lose(members_[index]);
    if (auto* floats = std::get_if<answer::Floats>(&*said)) return std::move(*floats);
    if (const auto* room = std::get_if<answer::Room>(&*said)) {
      apply(index + 1, room->key, room->view);
      ::eventfd_write(wake_, 1);  // nobody asked for it now
    }
  }
}

}  // namespace kvferry::engine
