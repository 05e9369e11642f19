// The decode side of a replay: keeps prefix blocks, grants the pages that it lacks, checks every byte that came.
#include <chrono>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "tools/replay_trace.h"
#include "tools/replay_worker.h"

namespace kvferry::tools {

namespace {

using Clock = std::chrono::steady_clock;

struct Room {
  Assignment request;
  Receiver receiver;
  std::size_t prefix_blocks = 0;  // pinned
  PageList slots{};               // of the pages after the prefix
  std::int32_t aux = 0;
  Clock::time_point granted{};
};

class DecodeWorker : public ReplayWorker {
 public:
  DecodeWorker(ReplayMemory& memory, KvManager manager)
      : memory_(memory), manager_(std::move(manager)), cache_(memory.slots(), 2) {}

  void assign(Assignment assignment) override { waiting_.push_back(std::move(assignment)); }

  void give_up(std::uint64_t room) override {
    if (const auto at = rooms_.find(room); at != rooms_.end()) {
      at->second.receiver.abort(given_up);
    } else if (std::erase_if(waiting_, [room](const Assignment& one) { return one.room == room; }) != 0) {
      outcomes_.push_back({.room = room, .error = given_up});
    }
  }

  void take_changes() override {
    for (const RoomChange& change : manager_.changed()) {
      const auto at = rooms_.find(change.room);
      if (at == rooms_.end()) continue;
      const bool over = change.state == Poll::success || change.state == Poll::failed;
      if (over && change.pages_released) end(at->second);
    }
  }

  bool work() override {
    // In order of arrival: a large request is not passed by small ones for ever.
    if (waiting_.empty() || !begin(waiting_.front())) return false;
    waiting_.pop_front();
    return true;
  }

  int event_fd() const override { return manager_.event_fd(); }

 private:
  // Grants the request's pages; false while there are not enough. What cannot be granted ends here.
  bool begin(Assignment& request) {
    const std::span hashes(request.hashes);
    const std::size_t whole_blocks = request.tokens / trace_block_tokens;
    const std::size_t blocks = cache_.pin_prefix(hashes.first(whole_blocks));
    const std::size_t prefix_pages = blocks * memory_.block_pages();
    auto slots = cache_.allocate(memory_.pages_of(request.tokens) - prefix_pages);
    auto aux = slots ? memory_.take_aux() : std::nullopt;
    if (!aux) {
      if (slots) cache_.release(*slots);
      cache_.unpin(hashes.first(blocks));
      return false;
    }
    memory_.spoil_aux(*aux);
    for (std::int32_t slot : *slots) memory_.spoil_page(slot);
    auto receiver = open(request, *slots, *aux, prefix_pages);
    if (!receiver) {
      outcomes_.push_back({.room = request.room, .error = receiver.error().message()});
      cache_.release(*slots);
      cache_.unpin(hashes.first(blocks));
      memory_.release_aux(*aux);
      return true;
    }
    const std::uint64_t number = request.room;
    rooms_.emplace(number, Room{.request = std::move(request),
                                .receiver = std::move(*receiver),
                                .prefix_blocks = blocks,
                                .slots = std::move(*slots),
                                .aux = *aux,
                                .granted = Clock::now()});
    return true;
  }

  Result<Receiver> open(const Assignment& request, const PageList& slots, std::int32_t aux, std::size_t prefix_pages) {
    KVF_TRY(receiver, manager_.open_receiver(request.bootstrap, request.room));
    KVF_CHECK(receiver.init({.pages = slots, .aux_index = aux, .prefix_pages = prefix_pages}));
    return receiver;
  }

  void end(Room& room) {
    const std::uint64_t number = room.request.room;
    RoomOutcome outcome{.room = number, .prefix_tokens = room.prefix_blocks * trace_block_tokens};
    outcome.us = std::chrono::duration<double, std::micro>(Clock::now() - room.granted).count();
    const bool succeeded = room.receiver.poll() == Poll::success;
    if (succeeded) {
      outcome.wrong_items = wrong_items(room);
      outcome.bytes = room.slots.size() * memory_.page_bytes() + aux_item_bytes;
    } else {
      auto error = room.receiver.error();
      outcome.error = error ? error->message() : "failed without a reason";
    }
    settle(room, succeeded && outcome.wrong_items == 0);
    outcomes_.push_back(std::move(outcome));
    room.receiver.clear();
    rooms_.erase(number);
  }

  std::uint64_t wrong_items(const Room& room) const {
    ItemCheck check(memory_.content());
    const std::size_t first = room.prefix_blocks * memory_.block_pages();
    for (std::size_t i = 0; i < room.slots.size(); ++i)
      memory_.check_page(check, room.request, first + i, room.slots[i]);
    return check.finish() + (memory_.aux_is_right(room.request.room, room.aux) ? 0 : 1);
  }

  // The room's whole blocks go into the cache where their bytes are right; the rest is free again.
  void settle(const Room& room, bool keep) {
    const std::size_t per_block = memory_.block_pages();
    const std::span<const std::int32_t> slots(room.slots);
    std::size_t kept = 0;
    for (std::size_t block = room.prefix_blocks; keep && (block + 1) * trace_block_tokens <= room.request.tokens;
         ++block) {
      cache_.keep(room.request.hashes[block], slots.subspan(kept, per_block));
      kept += per_block;
    }
    cache_.release(slots.subspan(kept));
    cache_.unpin(std::span(room.request.hashes).first(room.prefix_blocks));
    memory_.release_aux(room.aux);
  }

  ReplayMemory& memory_;
  KvManager manager_;
  BlockCache cache_;
  std::unordered_map<std::uint64_t, Room> rooms_;
  std::deque<Assignment> waiting_;
};

}  // namespace

std::unique_ptr<ReplayWorker> make_decode_worker(ReplayMemory& memory, KvManager manager) {
  return std::make_unique<DecodeWorker>(memory, std::move(manager));
}

}  // namespace kvferry::tools
