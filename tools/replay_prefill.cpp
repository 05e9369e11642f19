// The prefill side of a replay: waits for each room's grant, "computes" its pages chunk by chunk and sends them.
#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "tools/replay_worker.h"

namespace kvferry::tools {

namespace {

constexpr std::uint64_t chunk_tokens = 8192;

struct Room {
  Assignment request;
  Sender sender;
  PageList slots{};  // of the pages to send, from the first after the prefix
  std::optional<std::int32_t> aux{};
  std::size_t prefix_pages = 0;
  std::size_t sent = 0;
  bool sent_last = false;
};

class PrefillWorker : public ReplayWorker {
 public:
  PrefillWorker(ReplayMemory& memory, KvManager manager)
      : memory_(memory), manager_(std::move(manager)), pages_(memory.slots(), 1) {}

  void assign(Assignment assignment) override {
    const std::uint64_t number = assignment.room;
    auto sender = manager_.open_sender(number);
    if (!sender) {
      outcomes_.push_back({.room = number, .error = sender.error().message()});
      return;
    }
    rooms_.emplace(number, Room{.request = std::move(assignment), .sender = std::move(*sender)});
  }

  void give_up(std::uint64_t room) override {
    if (const auto at = rooms_.find(room); at != rooms_.end()) at->second.sender.abort(given_up);
  }

  void take_changes() override {
    for (const RoomChange& change : manager_.changed()) {
      const auto at = rooms_.find(change.room);
      if (at == rooms_.end()) continue;
      if (change.state == Poll::waiting_for_input) ready_.push_back(change.room);
      const bool over = change.state == Poll::success || change.state == Poll::failed;
      if (over && change.pages_released) end(at->second);
    }
  }

  bool work() override {
    while (!ready_.empty()) {
      const auto at = rooms_.find(ready_.front());
      if (at == rooms_.end() || at->second.sent_last || at->second.sender.poll() == Poll::failed) {
        ready_.pop_front();
        continue;
      }
      // The first in line goes first: nobody waits for pages that others, who came later, take again and again.
      if (!at->second.aux && !begin(at->second)) return false;
      send_chunk(at->second);
      return true;
    }
    return false;
  }

  int event_fd() const override { return manager_.event_fd(); }

 private:
  // Takes what the room needs; false while there is not enough.
  bool begin(Room& room) {
    const std::size_t prefix = room.sender.prefix_pages();
    const std::size_t total = memory_.pages_of(room.request.tokens);
    if (prefix > total) {
      room.sender.abort("the granted prefix is longer than the request");
      return true;
    }
    auto aux = memory_.take_aux();
    if (!aux) return false;
    auto slots = pages_.allocate(total - prefix);
    if (!slots) {
      memory_.release_aux(*aux);
      return false;
    }
    room.prefix_pages = prefix;
    room.slots = std::move(*slots);
    room.aux = aux;
    memory_.write_aux(room.request.room, *aux);
    if (auto done = room.sender.init({.num_pages = room.slots.size(), .aux_index = aux}); !done) {
      room.sender.abort("init: " + done.error().text);
    }
    return true;
  }

  void send_chunk(Room& room) {
    const std::size_t step = chunk_tokens / memory_.page_tokens();
    const std::size_t count = std::min(step, room.slots.size() - room.sent);
    for (std::size_t i = room.sent; i < room.sent + count; ++i) {
      memory_.write_page(room.request, room.prefix_pages + i, room.slots[i]);
    }
    auto sent = room.sender.send({.pages = std::span(room.slots).subspan(room.sent, count)});
    if (!sent) room.sender.abort("send: " + sent.error().text);
    room.sent += count;
    room.sent_last = room.sent == room.slots.size();
  }

  void end(Room& room) {
    const std::uint64_t number = room.request.room;
    RoomOutcome outcome{.room = number};
    if (room.sender.poll() == Poll::failed) {
      auto error = room.sender.error();
      outcome.error = error ? error->message() : "failed without a reason";
    }
    outcomes_.push_back(std::move(outcome));
    if (room.aux) memory_.release_aux(*room.aux);
    pages_.release(room.slots);
    room.sender.clear();
    rooms_.erase(number);
  }

  ReplayMemory& memory_;
  KvManager manager_;
  BlockCache pages_;  // as a pool alone: every prompt is computed anew
  std::unordered_map<std::uint64_t, Room> rooms_;
  std::deque<std::uint64_t> ready_;  // granted, not yet sent to the end
};

}  // namespace

std::unique_ptr<ReplayWorker> make_prefill_worker(ReplayMemory& memory, KvManager manager) {
  return std::make_unique<PrefillWorker>(memory, std::move(manager));
}

}  // namespace kvferry::tools
