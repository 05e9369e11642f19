#include "sim/engine.h"

#include <algorithm>

#include "base/codes.h"
#include "sim/world.h"

namespace kvferry::sim {

using std::chrono::milliseconds;

namespace {

const char* side_name(const Request& request, const Side& side) {
  return &side == &request.sender ? "sender" : "receiver";
}

}  // namespace

void Engine::begin(Prng draw) {
  RoomId room{1'000'000 + requests_.size()};
  if (draw.percent(70)) {
    // A number that was used before, where one is free.
    const std::uint64_t number = draw.between(1, std::max<std::uint64_t>(2, world_.options.rooms / 4));
    const auto last = last_use_.find(number);
    if (last == last_use_.end() || requests_[last->second - 1].number_free()) room = RoomId{number};
  }
  Request& request = add(room, room.value % world_.options.prefill, draw.below(world_.options.decode), draw);
  spoil(request, draw);
  const bool number_of_its_own = room.value >= 1'000'000;
  if (world_.swarm.duplicate && world_.options.decode > 1 && draw.percent(40) && number_of_its_own) {
    add_rival(request, draw);
  }
}

void Engine::begin_fresh(std::size_t prefill, std::size_t decode) {
  add(RoomId{1'000'000 + requests_.size()}, prefill, decode, world_.prng);
}

// Both sides have cleared the number, and the balancer gives it out at once.
void Engine::begin_again(const Request& last) {
  if (!winding_down && !last.contested && last.number_free() && last_use_.at(last.room.value) == last.id) {
    spoil(add(last.room, last.prefill, last.decode, world_.prng), world_.prng);
  }
}

Request& Engine::add(RoomId room, std::size_t prefill, std::size_t decode, Prng& draw) {
  Request& request = requests_.emplace_back();
  request.id = request.contents = requests_.size();
  request.room = room;
  request.prefill = prefill;
  request.decode = decode;
  if (const auto last = last_use_.find(room.value); last != last_use_.end()) {
    const std::string& excuse = requests_[last->second - 1].excuse;
    if (!excuse.empty()) request.excuse = "the last use of its number had an excuse: " + excuse;
  }
  last_use_[room.value] = request.id;
  request.pages = draw.percent(15) ? 0 : draw.between(1, 12);
  request.prefix = draw.percent(60) ? 0 : draw.between(1, 5);
  request.with_aux = draw.percent(60);
  request.state_count = draw.percent(60) ? 0 : draw.between(1, 4);
  for (std::uint64_t left = request.pages; left > 0;) {
    const std::uint64_t chunk = draw.percent(10) ? 0 : draw.between(1, std::min<std::uint64_t>(left, 6));
    request.chunks.push_back(chunk);
    left -= chunk;
  }
  if (request.pages == 0) request.chunks.push_back(0);
  request.sender.init_before_waiting = draw.percent(30);
  request.receiver.init_before_waiting = draw.percent(50);
  if (const std::string trouble = world_.trouble(prefill, decode); !trouble.empty()) request.excuse = trouble;
  world_.judge.tell(request.id, "request " + std::to_string(request.id) + ": room " + std::to_string(room.value) +
                                    " P" + std::to_string(prefill) + " -> D" + std::to_string(decode) + ", " +
                                    std::to_string(request.pages) + " pages behind a prefix of " +
                                    std::to_string(request.prefix));
  const auto opens = [&] { return draw.long_tail(draw.percent(50) ? milliseconds(1) : milliseconds(20)); };
  world_.schedule.after(opens(), [this, &request] { open_sender(request); });
  world_.schedule.after(opens(), [this, &request] { open_receiver(request); });
  return request;
}

// A second decode rank is told to receive the same room: whoever comes first has it, the other is refused.
void Engine::add_rival(Request& request, Prng& draw) {
  Request& rival = requests_.emplace_back(request);
  rival.id = requests_.size();
  rival.contents = request.id;
  rival.decode = (request.decode + 1) % world_.options.decode;
  rival.sender = rival.receiver = Side{};
  rival.sender.skipped = true;
  rival.receiver.init_before_waiting = draw.percent(50);
  rival.contested = request.contested = true;
  rival.excuse = request.excuse = "two receivers were given its number";
  world_.judge.tell(rival.id, "request " + std::to_string(rival.id) + ": D" + std::to_string(rival.decode) +
                                  " is given the room of request " + std::to_string(request.id) + " too");
  world_.schedule.after(draw.long_tail(milliseconds(10)), [this, &rival] { open_receiver(rival); });
}

// What the engines of this run do to a request now and then.
void Engine::spoil(Request& request, Prng& draw) {
  const auto one_side = [&]() -> Side& { return draw.percent(50) ? request.sender : request.receiver; };
  const Duration when = draw.percent(50) ? draw.long_tail(milliseconds(2)) : draw.long_tail(milliseconds(40));
  if (world_.swarm.unopened && draw.percent(12)) {
    Side& side = one_side();
    side.skipped = true;
    request.excuse = std::string(side_name(request, side)) + " is never opened";
  }
  if (world_.swarm.abort && draw.percent(25)) {
    Side& side = one_side();
    world_.schedule.after(when, [this, &request, &side] { abort(request, side); });
  }
  if (world_.swarm.early_clear && draw.percent(15)) {
    Side& side = one_side();
    world_.schedule.after(when, [this, &request, &side] {
      if (side.process == nullptr || side.gone || side.cleared) return;
      if (!side.concluded) request.excuse = std::string(side_name(request, side)) + " is cleared early";
      clear(request, side);
    });
  }
}

void Engine::abort(Request& request, Side& side) {
  if (side.process == nullptr || side.gone || side.cleared) return;
  if (!side.concluded) request.excuse = std::string(side_name(request, side)) + " is aborted";
  world_.judge.tell(request.id, side.process->name() + "'s engine aborts");
  side.process->run([process = side.process, handle = side.handle] {
    process->post(core::event::AbortRoom{handle, "the engine changed its mind"});
  });
}

bool Engine::take_pages(Request& request, Side& side, Process& process) {
  const std::size_t counts[] = {request.pages, request.with_aux ? 1u : 0u, request.state_count};
  for (std::uint32_t component = 0; component < 3; ++component) {
    auto items = process.memory.take(component, counts[component], request.id, world_.prng);
    if (!items) {
      for (std::uint32_t taken = 0; taken < component; ++taken) {
        process.memory.give_back(taken, side.items[taken], world_.prng);
      }
      side.items.clear();
      return false;
    }
    side.items.push_back(std::move(*items));
  }
  return true;
}

void Engine::open_sender(Request& request) {
  Side& side = request.sender;
  Process* process = world_.rank(true, request.prefill);
  if (side.skipped || process == nullptr || process->stopped || !take_pages(request, side, *process)) {
    if (!side.skipped) request.excuse = "its sender could not be opened";
    side.skipped = true;
    return;
  }
  side.process = process;
  side.handle = core::HandleId{++handle_};
  handles_[side.handle] = request.id;
  world_.judge.tell(request.id, process->name() + "'s engine opens the sender");
  process->post(core::event::OpenSender{side.handle, request.room});
  if (side.init_before_waiting) init_sender(request);
}

void Engine::open_receiver(Request& request) {
  Side& side = request.receiver;
  Process* process = world_.rank(false, request.decode);
  if (side.skipped || process == nullptr || process->stopped || !take_pages(request, side, *process)) {
    if (!side.skipped) request.excuse = "its receiver could not be opened";
    side.skipped = true;
    return;
  }
  side.process = process;
  side.handle = core::HandleId{++handle_};
  handles_[side.handle] = request.id;
  TransferId transfer{world_.prng.next()};
  if (world_.options.plant == Plant::transfer_ids_reused) transfer.value = request.room.value;
  if (request.contents != request.id) world_.judge.drawn(transfer, request.contents);
  world_.judge.drawn(transfer, request.id);
  std::optional<std::uint32_t> dp_rank;
  if (world_.swarm.one_instance && request.prefill != request.room.value % world_.options.prefill) {
    dp_rank = static_cast<std::uint32_t>(request.prefill);
  }
  world_.judge.tell(request.id,
                    process->name() + "'s engine opens the receiver, transfer " + std::to_string(transfer.value));
  process->post(
      core::event::OpenReceiver{side.handle, request.room, transfer, world_.bootstrap_of(request.prefill), dp_rank});
  if (side.init_before_waiting) init_receiver(request);
}

// Something that the engine of this side does a little later, while its process runs.
void Engine::later(Side& side, Duration most, std::function<void()> what) {
  const Instant when = world_.schedule.now() + world_.prng.between(Duration{}, most);
  side.process->run_at(when, [&side, then = std::move(what)] {
    if (!side.gone && !side.cleared) then();
  });
}

void Engine::init_sender(Request& request) {
  Side& side = request.sender;
  if (side.concluded || std::exchange(side.inited, true)) return;
  std::optional<std::int32_t> aux;
  if (request.with_aux) aux = side.items[1].front();
  side.process->post(core::event::InitSender{side.handle, request.pages, aux});
  later(side, milliseconds(10), [this, &request] { send_next(request); });
}

void Engine::init_receiver(Request& request) {
  Side& side = request.receiver;
  if (side.concluded || std::exchange(side.inited, true)) return;
  std::optional<std::int32_t> aux;
  if (request.with_aux) aux = side.items[1].front();
  std::vector<std::vector<std::int32_t>> state;
  if (request.state_count > 0 || world_.prng.percent(50)) state.push_back(side.items[2]);
  side.process->post(core::event::InitReceiver{side.handle, side.items[0], aux, request.prefix, std::move(state)});
}

// The engine has computed the pages of one more chunk.
void Engine::send_next(Request& request) {
  Side& side = request.sender;
  if (side.concluded || request.chunks_sent == request.chunks.size()) return;
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < request.chunks_sent; ++i) begin += request.chunks[i];
  const std::uint64_t count = request.chunks[request.chunks_sent++];
  const auto first = side.items[0].begin() + static_cast<std::ptrdiff_t>(begin);
  std::vector<std::int32_t> pages(first, first + static_cast<std::ptrdiff_t>(count));
  if (count > 0) side.process->memory.fill(0, pages, request.id, request.prefix + begin);
  std::vector<std::vector<std::int32_t>> state;
  if (request.chunks_sent == request.chunks.size()) {
    for (std::uint32_t component = 1; component < 3; ++component) {
      if (!side.items[component].empty()) side.process->memory.fill(component, side.items[component], request.id, 0);
    }
    if (request.state_count > 0) state.push_back(side.items[2]);
  }
  side.process->post(core::event::SendChunk{.handle = side.handle,
                                            .pages = std::move(pages),
                                            .first_page = begin,
                                            .state = std::move(state),
                                            .last = request.chunks_sent == request.chunks.size()});
  note_ready(request);
  later(side, milliseconds(10), [this, &request] { send_next(request); });
}

void Engine::changed(Process& process, core::HandleId handle, Poll state, const std::optional<Error>& error) {
  const auto [request, side] = find(handle);
  if (world_.judge.telling()) {
    world_.judge.tell(request->id, process.name() + " " + side_name(*request, *side) + " is " + poll_name(state) +
                                       (error ? ": " + error->message() : ""));
  }
  world_.judge.mix(static_cast<std::uint64_t>(state) + handle.value * 8);
  world_.judge.on_state(process, request->id, side->state, state, error);
  side->state = state;
  if (error) side->error = error->message();
  Request& changed = *request;
  Side& its = *side;
  if (state == Poll::waiting_for_input) {
    its.granted = true;
    later(its, milliseconds(2), [this, &changed, &its] {
      if (&its == &changed.sender) {
        init_sender(changed);
      } else {
        init_receiver(changed);
      }
    });
  }
  if (&its == &changed.sender) note_ready(changed);
  if (state != Poll::failed && state != Poll::success) return;
  its.concluded = true;
  if (state == Poll::success && &its == &changed.receiver) {
    world_.judge.on_bytes(process, changed, "at once");
    judge_delay(changed);
  }
  const Duration most = world_.prng.percent(30) ? Duration{} : Duration(milliseconds(20));
  later(its, most, [this, &changed, &its] { clear(changed, its); });
}

void Engine::note_ready(Request& request) {
  const bool granted = request.sender.state >= Poll::waiting_for_input;
  if (granted && request.chunks_sent == request.chunks.size() && request.ready_at == Instant{}) {
    request.ready_at = world_.schedule.now();
  }
}

// Other peers' trouble is no reason to wait: a stopped one is found out after four seconds.
void Engine::judge_delay(const Request& request) {
  const Duration took = world_.schedule.now() - request.ready_at;
  if (!request.excuse.empty() || request.ready_at == Instant{} || took < std::chrono::seconds(2)) return;
  world_.judge.violation(request.id, "nothing happened to it, and yet it was under way for " +
                                         std::to_string(took / milliseconds(1)) + " ms");
}

void Engine::clear(Request& request, Side& side) {
  if (std::exchange(side.cleared, true)) return;
  if (side.state == Poll::success && &side == &request.receiver) {
    world_.judge.on_bytes(*side.process, request, "when the engine has read it");
  }
  world_.judge.tell(request.id, side.process->name() + "'s engine clears the " + side_name(request, side));
  Process* process = side.process;
  process->run([process, handle = side.handle] { process->post(core::event::ClearRoom{handle}); });
  if (side.released) give_back(side);
  if (request.ended() && world_.prng.percent(25)) {
    const RequestId id = request.id;
    world_.schedule.after(world_.latency(), [this, id] { begin_again(requests_[id - 1]); });
  }
}

void Engine::released(Process& process, core::HandleId handle) {
  const auto [request, side] = find(handle);
  world_.judge.tell(request->id, process.name() + " " + side_name(*request, *side) + " is released");
  if (std::exchange(side->released, true)) world_.judge.violation(request->id, process.name() + " released twice");
  if (side->state != Poll::failed && side->state != Poll::success) {
    world_.judge.violation(request->id, process.name() + " released a room that has not concluded");
  }
  if (side->cleared || side->state == Poll::failed) give_back(*side);
}

// The pages are somebody else's from here on.
void Engine::give_back(Side& side) {
  for (std::uint32_t component = 0; component < side.items.size(); ++component) {
    side.process->memory.give_back(component, side.items[component], world_.prng);
  }
  side.items.clear();
}

void Engine::prefix_known(Process& process, core::HandleId handle, std::uint64_t prefix) {
  const auto [request, side] = find(handle);
  if (prefix == request->prefix || !request->excuse.empty()) return;  // a dead rank may have granted the number
  world_.judge.violation(request->id, process.name() + " was told a prefix of " + std::to_string(prefix) + ", not " +
                                          std::to_string(request->prefix));
}

void Engine::died(Process& process) {
  for (Request& request : requests_) {
    for (Side* side : {&request.sender, &request.receiver}) {
      if (side->process == &process) side->gone = true;
    }
  }
}

std::pair<Request*, Side*> Engine::find(core::HandleId handle) {
  Request& request = requests_[handles_.at(handle) - 1];
  return {&request, request.sender.handle == handle ? &request.sender : &request.receiver};
}

std::pair<RequestId, std::string> Engine::unfinished() const {
  for (const Request& request : requests_) {
    for (const Side* side : {&request.sender, &request.receiver}) {
      if (side->over() || (side->process == nullptr && !side->skipped)) continue;
      return {request.id, "the " + std::string(side_name(request, *side)) + " at " + side->process->name() + " is " +
                              poll_name(side->state) + (side->cleared ? ", cleared" : "") +
                              (side->released ? ", released" : ", not released")};
    }
  }
  return {0, "?"};
}

void Engine::judge_all() const {
  for (const Request& request : requests_) {
    for (const Side* side : {&request.sender, &request.receiver}) {
      if (!request.excuse.empty() || side->skipped || side->state == Poll::success) continue;
      return world_.judge.violation(request.id, "nothing happened to it, and yet its " +
                                                    std::string(side_name(request, *side)) + " ended as " +
                                                    poll_name(side->state) + ": " + side->error);
    }
    // A receiver's success may meet a sender's failure; the other way round a destination lacks bytes.
    if (!request.contested && request.sender.state == Poll::success && request.receiver.state == Poll::failed &&
        request.receiver.process != nullptr && !request.receiver.gone) {
      return world_.judge.violation(request.id,
                                    "the sender succeeded, its only receiver failed: " + request.receiver.error);
    }
  }
}

}  // namespace kvferry::sim
