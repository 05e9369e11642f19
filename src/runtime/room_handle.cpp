#include <string>
#include <utility>

#include "base/try.h"
#include "kvferry/kvferry.h"
#include "layout/pages.h"
#include "runtime/manager.h"

namespace kvferry {
namespace {

// Every state list must fit its component; `what` names the call for the error.
Result<void> check_state(const Memory& memory, const std::vector<std::vector<std::int32_t>>& state) {
  if (state.size() > memory.state.size()) {
    return Error{Code::invalid_argument, std::to_string(state.size()) + " state lists for " +
                                             std::to_string(memory.state.size()) + " registered components"};
  }
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (state[i].empty()) continue;
    KVF_CHECK(layout::check_items(state[i], memory.state[i].regions.front().items(), "state item"));
  }
  return {};
}

Result<void> check_aux(const Memory& memory, const std::optional<std::int32_t>& aux_index) {
  if (!aux_index) return {};
  if (memory.aux.empty()) return Error{Code::invalid_argument, "an aux index, but no aux region was registered"};
  const std::int32_t index = *aux_index;
  for (const Region& region : memory.aux) {
    KVF_CHECK(layout::check_items(std::span(&index, 1), region.items(), "aux record"));
  }
  return {};
}

// The layers of a chunk: some of those that are here.
Result<layout::Range> layers_of(const runtime::Manager& manager, const Chunk& chunk) {
  if (!chunk.layers) return manager.layers;
  const layout::Range layers{chunk.layers->begin, chunk.layers->end};
  if (layers.begin < layers.end && layers.begin >= manager.layers.begin && layers.end <= manager.layers.end) {
    return layers;
  }
  return Error{Code::out_of_range, "layers [" + std::to_string(layers.begin) + ", " + std::to_string(layers.end) +
                                       "), but [" + std::to_string(manager.layers.begin) + ", " +
                                       std::to_string(manager.layers.end) + ") are here"};
}

template <class Value>
Result<Value> with_room(Result<Value> result, std::uint64_t room) {
  if (!result) result.error().room = room;
  return result;
}

std::size_t kv_items(const Memory& memory) { return memory.kv.empty() ? 0 : memory.kv.front().items(); }

}  // namespace

RoomHandle::RoomHandle(std::shared_ptr<runtime::Manager> manager, std::shared_ptr<runtime::RoomCell> cell)
    : manager_(std::move(manager)), cell_(std::move(cell)) {}
RoomHandle::RoomHandle(RoomHandle&&) noexcept = default;

RoomHandle& RoomHandle::operator=(RoomHandle&& other) noexcept {
  if (this != &other) {
    if (cell_) clear();
    manager_ = std::move(other.manager_);
    cell_ = std::move(other.cell_);
  }
  return *this;
}

RoomHandle::~RoomHandle() {
  if (cell_) clear();
}

std::uint64_t RoomHandle::room() const noexcept { return cell_->room.value; }

Poll RoomHandle::poll() const noexcept {
  const Poll state = cell_->state.load(std::memory_order_acquire);
  return cell_->cleared && state != Poll::success ? Poll::failed : state;
}

std::optional<Error> RoomHandle::error() const {
  if (cell_->state.load(std::memory_order_acquire) == Poll::failed) return cell_->error;
  if (cell_->cleared && !cell_->concluded()) return Error{Code::aborted, "cleared by the engine", room()};
  return std::nullopt;
}

void RoomHandle::abort(std::string reason) {
  if (cell_->cleared || !manager_->usable()) return;
  core::event::AbortRoom event{cell_->handle, std::move(reason)};
  if (manager_->role == Role::prefill) {
    manager_->exchange.post(core::SenderEvent(std::move(event)));
  } else {
    manager_->exchange.post(core::ReceiverEvent(std::move(event)));
  }
}

void RoomHandle::clear() {
  if (std::exchange(cell_->cleared, true) || !manager_->usable()) return;
  const core::event::ClearRoom event{cell_->handle};
  if (manager_->role == Role::prefill) {
    manager_->exchange.post(core::SenderEvent(event));
  } else {
    manager_->exchange.post(core::ReceiverEvent(event));
  }
  manager_->exchange.forget(*cell_);
}

bool RoomHandle::pages_released() const noexcept { return cell_->released.load(std::memory_order_acquire); }

Result<void> RoomHandle::wait_pages_released(std::chrono::milliseconds timeout) const {
  KVF_CHECK(manager_->usable());
  if (manager_->exchange.wait(timeout, [&] { return cell_->released.load(); })) return {};
  return Error{Code::timeout, "the pages were not released within " + std::to_string(timeout.count()) + " ms", room()};
}

Result<Poll> RoomHandle::wait(std::chrono::milliseconds timeout) const {
  KVF_CHECK(manager_->usable());
  if (manager_->exchange.wait(timeout, [&] { return cell_->concluded(); })) return poll();
  return Error{
      Code::timeout,
      std::string("the room is still ") + poll_name(poll()) + " after " + std::to_string(timeout.count()) + " ms",
      room()};
}

Result<void> Sender::init(const SenderInit& init) {
  KVF_CHECK(manager_->usable());
  if (cell_->init || cell_->cleared) {
    return Error{Code::invalid_argument, cell_->init ? "init was called before" : "the room was cleared", room()};
  }
  KVF_CHECK(with_room(check_aux(manager_->memory, init.aux_index), room()));
  if (init.num_pages > 0 && manager_->memory.kv.empty()) {
    return Error{Code::invalid_argument, "pages announced, but no kv region was registered", room()};
  }
  cell_->init = true;
  cell_->num_pages = init.num_pages;
  manager_->exchange.post(core::SenderEvent(core::event::InitSender{cell_->handle, init.num_pages, init.aux_index}));
  return {};
}

Result<void> Sender::send(const Chunk& chunk) {
  KVF_CHECK(manager_->usable());
  if (!cell_->init || cell_->cleared) return Error{Code::invalid_argument, "send before init or after clear", room()};
  if (cell_->last_sent) {
    return Error{Code::invalid_argument,
                 "send after the last chunk: all " + std::to_string(cell_->num_pages) + " pages were sent", room()};
  }
  KVF_TRY(layers, with_room(layers_of(*manager_, chunk), room()));
  const std::uint64_t begin = chunk.first_page ? *chunk.first_page : cell_->sent.end_of(layers);
  if (begin > cell_->num_pages || chunk.pages.size() > cell_->num_pages - begin) {
    return Error{Code::out_of_range,
                 "this chunk has " + std::to_string(chunk.pages.size()) + " pages from page " + std::to_string(begin) +
                     " on, init announced " + std::to_string(cell_->num_pages),
                 room()};
  }
  KVF_CHECK(with_room(layout::check_items(chunk.pages, kv_items(manager_->memory), "page"), room()));
  if (chunk.pages.size() > protocol::offer_items_max) {
    return Error{Code::out_of_range,
                 "a chunk of " + std::to_string(chunk.pages.size()) + " pages; send at most " +
                     std::to_string(protocol::offer_items_max) + " at once",
                 room()};
  }
  const layout::Range positions{begin, begin + chunk.pages.size()};
  if (cell_->sent.meets(positions, layers)) {
    return Error{Code::invalid_argument,
                 "pages [" + std::to_string(begin) + ", " + std::to_string(positions.end) + ") of layers [" +
                     std::to_string(layers.begin) + ", " + std::to_string(layers.end) +
                     ") were sent already, or some of them",
                 room()};
  }
  const bool last = cell_->sent.area() + positions.size() * layers.size() == cell_->num_pages * manager_->layers.size();
  if (!last && !chunk.state.empty()) {
    return Error{Code::invalid_argument, "state goes with the last chunk only", room()};
  }
  KVF_CHECK(with_room(check_state(manager_->memory, chunk.state), room()));
  if (!last && chunk.pages.empty()) return {};  // nothing new of this request: all of the chunk lay in the prefix
  if (cell_->chunks_waiting.load(std::memory_order_relaxed) >= manager_->settings.chunks_queued_max) {
    return Error{Code::try_later,
                 "KVFERRY_QUEUE_SIZE = " + std::to_string(manager_->settings.chunks_queued_max) +
                     " chunks of the room wait for its grant",
                 room()};
  }
  cell_->chunks_waiting.fetch_add(1, std::memory_order_relaxed);
  cell_->sent.add(positions, layers);
  cell_->last_sent = last;
  manager_->exchange.post(core::SenderEvent(core::event::SendChunk{
      cell_->handle, std::vector(chunk.pages.begin(), chunk.pages.end()), begin, layers, chunk.state, last}));
  return {};
}

std::uint64_t Sender::prefix_pages() const noexcept { return cell_->prefix_pages.load(std::memory_order_relaxed); }

Result<void> Receiver::init(const ReceiverInit& init) {
  KVF_CHECK(manager_->usable());
  if (cell_->init || cell_->cleared) {
    return Error{Code::invalid_argument, cell_->init ? "init was called before" : "the room was cleared", room()};
  }
  KVF_CHECK(with_room(layout::check_items(init.pages, kv_items(manager_->memory), "page"), room()));
  KVF_CHECK(with_room(check_aux(manager_->memory, init.aux_index), room()));
  KVF_CHECK(with_room(check_state(manager_->memory, init.state), room()));
  constexpr std::uint64_t pages_max = Limits{}.pages_max;
  if (init.prefix_pages > pages_max || init.pages.size() > pages_max - init.prefix_pages) {
    return Error{Code::out_of_range, "a room has at most " + std::to_string(pages_max) + " pages, prefix included",
                 room()};
  }
  cell_->init = true;
  manager_->exchange.post(
      core::ReceiverEvent(core::event::InitReceiver{cell_->handle, std::vector(init.pages.begin(), init.pages.end()),
                                                    init.aux_index, init.prefix_pages, init.state}));
  return {};
}

std::uint64_t Receiver::bytes_received() const noexcept { return cell_->bytes.load(std::memory_order_relaxed); }

std::uint32_t Receiver::layers_received() const noexcept { return cell_->layers.load(std::memory_order_acquire); }

}  // namespace kvferry
