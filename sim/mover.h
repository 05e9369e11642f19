// Moves pages as real movers do: late, in parts, and acknowledging only when it is true.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "core/orders.h"
#include "sim/network.h"

namespace kvferry::sim {

class Process;
class World;

class Mover {
 public:
  Mover(World& world, Process& process) : world_(world), process_(process) {}

  void open_window(core::Window window);
  void close_window(SessionId session, TransferId transfer);
  void move(core::ChunkOrder order);
  void stop(SessionId session, TransferId transfer);
  void close_session(SessionId session);
  // A part of a pushed chunk is there to be placed.
  void on_frame(SessionId session, const DataFrame& frame);

 private:
  struct OpenWindow {
    core::Window window;
    bool closing = false;
    std::uint32_t copies = 0;  // under way
  };
  struct Job {
    core::ChunkOrder order;
    std::size_t list = 0;    // the component under way
    std::uint64_t done = 0;  // items of it
    std::uint64_t bytes = 0;
    bool stopped = false;
    std::size_t lists() const { return order.lists.size(); }
  };
  struct Channel {  // a session as the data thread that serves it sees it
    std::deque<Job> jobs;
    bool busy = false;  // with a part of the first job
    bool closing = false;
    bool closed = false;
    Instant placed_until{};  // frames are placed one after the other
  };

  void pump(SessionId session);
  bool blocked(SessionId session) const;
  void step(SessionId session);
  void push_part(Channel& channel, Job& job);
  bool pull_part(SessionId session, Job& job);
  void finish(SessionId session, Job& job);
  void place(SessionId session, const DataFrame& frame);
  void copy_ended(TransferId transfer);
  void when_quiet(SessionId session);
  // The targets of a part; nothing where the part lies outside of the window, which is reported.
  std::optional<std::vector<std::int32_t>> targets(const OpenWindow& window, std::uint32_t component,
                                                   std::uint64_t begin, std::uint64_t count);
  void reject(const core::Window& window, std::string text);

  World& world_;
  Process& process_;
  std::map<TransferId, OpenWindow> windows_;
  std::map<SessionId, Channel> channels_;
  std::optional<SessionId> serving_;  // planted: the only one that is served
};

}  // namespace kvferry::sim
