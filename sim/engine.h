// What engines do: open rooms early and late, compute and send chunks, abort and clear at any moment, use pages again.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "sim/request.h"

namespace kvferry::sim {

class World;

class Engine {
 public:
  explicit Engine(World& world) : world_(world) {}

  // Makes the next request of the workload and lets both engines begin with it.
  void begin(Prng draw);
  // One of this pair with a number of its own, for which both engines do all of their part.
  void begin_fresh(std::size_t prefill, std::size_t decode);
  bool winding_down = false;  // numbers are not used again any more
  std::deque<Request>& requests() { return requests_; }

  // ---- From the processes. ----
  void changed(Process& process, core::HandleId handle, Poll state, const std::optional<Error>& error);
  void released(Process& process, core::HandleId handle);
  void prefix_known(Process& process, core::HandleId handle, std::uint64_t prefix);
  void died(Process& process);

  // What keeps a request from being over, for people.
  std::pair<RequestId, std::string> unfinished() const;
  // Whatever had no excuse has succeeded on both sides.
  void judge_all() const;

 private:
  Request& add(RoomId room, std::size_t prefill, std::size_t decode, Prng& draw);
  void add_rival(Request& request, Prng& draw);
  void begin_again(const Request& last);
  void open_sender(Request& request);
  void open_receiver(Request& request);
  void init_sender(Request& request);
  void init_receiver(Request& request);
  void send_next(Request& request);
  void note_ready(Request& request);
  void judge_delay(const Request& request);
  void spoil(Request& request, Prng& draw);
  void abort(Request& request, Side& side);
  void clear(Request& request, Side& side);
  void give_back(Side& side);
  void later(Side& side, Duration most, std::function<void()> what);
  std::pair<Request*, Side*> find(core::HandleId handle);
  bool take_pages(Request& request, Side& side, Process& process);

  World& world_;
  std::deque<Request> requests_;  // references stay valid
  std::map<core::HandleId, RequestId> handles_;
  std::map<std::uint64_t, RequestId> last_use_;  // of a room number
  std::uint64_t handle_ = 0;
};

}  // namespace kvferry::sim
