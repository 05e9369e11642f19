// Every order in which the threads of the same-host mover can take their turns.
#include "transport/samehost/pull_crew.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "sim/choices.h"
#include "support.h"

namespace kvferry::transport {
namespace {

constexpr std::size_t item_bytes = 1 << 20;  // a step each
constexpr std::int32_t items = 4;

struct Story {
  std::size_t sessions = 1;
  std::uint32_t workers_a_session = 1;
  std::size_t steps_a_chunk = 2;
  std::size_t replacements = 1;
  bool close = false;  // windows and sessions, at any moment
};

// The crew with threads that are no threads: whoever is awake may come next, in any order.
class World {
 public:
  explicit World(const Story& story)
      : crew_(story.workers_a_session, sink_), steps_a_chunk_(story.steps_a_chunk), replacements_(story.replacements) {
    for (int i = 0; i < 2; ++i) {
      add();
      crew_.next(crew_.size() - 1, steps_.back(), Instant{});  // it goes to sleep
    }
    crew_.watch_rests();
    for (std::uint64_t s = 1; s <= story.sessions; ++s) {
      change([&](PullQueue& queue) { open(queue, SessionId{s}); });
      script_.push_back([this, s] { change([&](PullQueue& queue) { queue.move(order(SessionId{s})); }); });
    }
    for (std::uint64_t s = 1; story.close && s <= story.sessions; ++s) {
      script_.push_back([this, s] {
        change([&](PullQueue& queue) {
          queue.close_window(SessionId{s}, TransferId{s});
          queue.close_session(SessionId{s});
        });
      });
    }
  }

  std::vector<std::function<void()>> enabled() {
    std::vector<std::function<void()>> actions;
    if (next_ < script_.size()) actions.push_back([this] { script_[next_++](); });
    bool copying = false;
    for (PullCrew::WorkerId id = 0; id < crew_.size(); ++id) {
      copying = copying || crew_.state(id) == PullCrew::State::copying;
      if (crew_.state(id) == PullCrew::State::awake) {
        actions.push_back([this, id] { crew_.next(id, steps_[id], Instant{}); });
      } else if (crew_.state(id) == PullCrew::State::copying) {
        actions.push_back([this, id] { crew_.copied(id, steps_[id], {}); });
      }
    }
    if (crew_.watch_sleeps()) return actions;
    if (!copying) actions.push_back([this] { crew_.watch_rests(); });
    for (const PullCrew::WorkerId id : crew_.late(Instant{})) {
      if (replacements_ == 0) break;
      actions.push_back([this, id] {
        --replacements_;
        add();
        crew_.replace(id);
      });
    }
    return actions;
  }
  // What must hold once nobody has anything to do.
  std::string wrong_at_the_end(const Story& story) {
    if (crew_.turns() != 0) return "work waits and everybody sleeps";
    if (story.close && sink_.count<SessionClosed>() != story.sessions) return "a session did not close";
    if (story.close && sink_.count<WindowClosed>() != story.sessions) return "a window did not close";
    if (!story.close && sink_.count<Placed>() != story.sessions) return "a chunk is not there";
    crew_.quit();
    for (PullCrew::WorkerId id = 0; id < crew_.size(); ++id) {
      if (crew_.state(id) == PullCrew::State::awake) crew_.next(id, steps_[id], Instant{});
    }
    return crew_.working() == 0 && !crew_.watch_sleeps() ? "" : "somebody did not end";
  }

 private:
  static const TestMemory& memory() {
    static const TestMemory memory(items, {item_bytes});
    return memory;
  }
  void add() { steps_.resize(std::max(steps_.size(), crew_.add() + 1)); }
  template <class Change>
  void change(Change change) {
    crew_.change(std::move(change));
  }
  static void open(PullQueue& queue, SessionId session) {
    auto peer = open_peer_memory(own_same_host(), "", describe_regions(memory().memory), {}, 5000);
    ASSERT_TRUE(peer);
    queue.open_session(session, std::unique_ptr<ReadablePeer>(static_cast<ReadablePeer*>(peer->release())),
                       layout::View::of(memory().memory));
    queue.open_window(Window{session, TransferId{session.value}, 0, {{0, {0, 1, 2, 3}}}});
  }
  ChunkOrder order(SessionId session) const {
    std::vector<std::int32_t> pages(steps_a_chunk_);
    return {session, TransferId{session.value}, {0, 0, steps_a_chunk_, 0, 1, true}, {{0, pages}}};
  }

  TestSink sink_;
  PullCrew crew_;
  std::vector<PullQueue::Step> steps_;  // by worker
  std::vector<std::function<void()>> script_;
  std::size_t next_ = 0;
  std::size_t steps_a_chunk_;
  std::size_t replacements_;
};

void explore(const char* name, const Story& story) {
  sim::Choices choices;
  std::uint64_t schedules = 0;
  while (choices.next_run()) {
    World world(story);
    std::string path;
    for (auto actions = world.enabled(); !actions.empty(); actions = world.enabled()) {
      const std::size_t choice = choices.pick(actions.size());
      path += std::to_string(choice) + " ";
      actions[choice]();
    }
    ASSERT_EQ(world.wrong_at_the_end(story), "") << "after the choices " << path;
    ++schedules;
  }
  std::printf("%s: %llu schedules\n", name, static_cast<unsigned long long>(schedules));
}

TEST(PullCrew, a_lone_chunk_is_pulled_whoever_is_replaced_and_when) {
  explore("one session", {.steps_a_chunk = 4, .replacements = 2});
}

TEST(PullCrew, two_workers_of_one_session_are_replaced) {
  explore("two workers", {.workers_a_session = 2, .steps_a_chunk = 3});
}

TEST(PullCrew, two_sessions_hold_up_each_other_in_no_order) {
  explore("two sessions", {.sessions = 2, .steps_a_chunk = 1});
}

TEST(PullCrew, sessions_close_while_workers_are_replaced) {
  explore("closing", {.steps_a_chunk = 3, .replacements = 2, .close = true});
}

}  // namespace
}  // namespace kvferry::transport
