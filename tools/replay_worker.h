// A worker process of a replay: one manager, one thread, one loop over the balancer's lines and the manager's events.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kvferry/kvferry.h"
#include "tools/replay_memory.h"
#include "tools/replay_messages.h"

namespace kvferry::tools {

inline constexpr const char* given_up = "given up by the balancer";

// What a role does in that loop. A resource; owns its manager and rooms. `memory` outlives it.
class ReplayWorker {
 public:
  virtual ~ReplayWorker() = default;
  // A request for this side. One that cannot be opened ends at once, as an outcome with its error.
  virtual void assign(Assignment assignment) = 0;
  // Ends a room that has not ended, wherever it is; nothing happens to others.
  virtual void give_up(std::uint64_t room) = 0;
  // The manager's descriptor was readable.
  virtual void take_changes() = 0;
  // A bounded piece of work, for example one chunk. False where there is nothing to do until something changes.
  virtual bool work() = 0;
  virtual int event_fd() const = 0;
  // Rooms that ended since the last call.
  std::vector<RoomOutcome> outcomes() { return std::exchange(outcomes_, {}); }

 protected:
  std::vector<RoomOutcome> outcomes_;
};

std::unique_ptr<ReplayWorker> make_prefill_worker(ReplayMemory& memory, KvManager manager);
std::unique_ptr<ReplayWorker> make_decode_worker(ReplayMemory& memory, KvManager manager);

// `kvferry replay-worker`: reads its setup and works until stdin closes. Answers the exit code.
int run_replay_worker();

}  // namespace kvferry::tools
