// What the same-host mover has to do, as a value: sessions, their windows and chunk orders, and who is served next.
// Nothing here copies or waits; PullCrew says who does.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "layout/view.h"
#include "transport/chunk_cursor.h"
#include "transport/fair_queue.h"
#include "transport/mover.h"
#include "transport/samehost/peer_memory.h"
#include "transport/samehost/pull.h"
#include "transport/window_table.h"

namespace kvferry::transport {

class PullQueue {
 public:
  struct Job;
  struct Session;
  // One step of one chunk: at most 1 MiB (or one item) that a worker copies without the lock.
  struct Step {
    Session* session = nullptr;  // stays while one of its steps is under way
    // Shared, because a transfer may be dropped from the queue while a worker still copies for it.
    std::shared_ptr<Job> job;
    std::vector<Pull> pulls;
    std::uint64_t bytes = 0;
    const ReadablePeer& peer() const;
    const std::atomic<bool>& cancelled() const;
    // No step of the chunk is left: this one's end may be the chunk's.
    bool last_taken() const;
  };

  // At most `workers_a_session_max` steps of one session are under way at a time.
  PullQueue(std::uint32_t workers_a_session_max, MoverSink& sink);
  ~PullQueue();
  PullQueue(const PullQueue&) = delete;
  PullQueue& operator=(const PullQueue&) = delete;

  void open_session(SessionId session, std::unique_ptr<ReadablePeer> peer, layout::View view);
  void open_window(Window window);
  void close_window(SessionId session, TransferId transfer);
  void move(ChunkOrder order);
  void stop(SessionId session, TransferId transfer);
  void close_session(SessionId session);

  // Whether `take` has a step to give.
  bool ready() const { return !turns_.empty(); }
  // How many workers may take a step now.
  std::size_t turns() const { return turns_.size(); }
  // Call only while ready. `step` is reused from call to call.
  void take(Step& step);
  // The worker's copy has ended; `copied` also says whether the peer's process was still there after it.
  void finish(Step& step, Result<void> copied);

 private:
  Session* find(SessionId session);
  Result<void> check_source(const Session& session, const ChunkOrder& order) const;
  void plan(Session& session, Job& job, std::int64_t budget_bytes, Step& step);
  void drop(Session& session, TransferId transfer);
  void lose(Session& session, Error error);
  void count(Session& session, Job& job, std::uint64_t bytes);
  void conclude(Session& session, const Job& job);
  void offer(Session& session);
  void remove_if_closed(Session& session);

  const std::uint32_t workers_a_session_max_;
  MoverSink& sink_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  FairQueue<Session*> turns_;
};

}  // namespace kvferry::transport
