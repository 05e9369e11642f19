#include "engine/rank.h"

#include <algorithm>

namespace kvferry::engine {
namespace {

template <class Handle>
RoomView view_of(const Handle& handle) {
  RoomView view{.poll = handle.poll(), .released = handle.pages_released()};
  if (view.poll != Poll::failed) return view;
  const Error error = handle.error().value_or(Error{});
  view.code = error.code;
  view.text = error.message();
  return view;
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::make(const EngineOptions& options) {
  auto parts = Parts::make(options);
  if (!parts) return parts.error();
  auto manager = (*parts)->make_manager(options.part == Part::prefill ? Role::prefill : Role::decode);
  if (!manager) return manager.error();
  return std::unique_ptr<Rank>(new Rank(std::move(*parts), std::move(*manager)));
}

void Rank::obey(const RankOrder& order, Exchange* others, std::span<const std::span<float>> logits) {
  std::visit(
      [&](const auto& one) {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, order::Compute>) {
          compute(one, others, logits);
        } else {
          handle(one);
        }
      },
      order);
}

void Rank::handle(const order::Open& o) {
  Room& room = rooms_[o.key];
  room.number = o.room;
  if (parts_->options.part == Part::prefill) {
    auto sender = manager_.open_sender(o.room);
    if (!sender) return refuse(room, sender.error());
    room.sender.emplace(std::move(*sender));
  } else {
    auto receiver = manager_.open_receiver(o.bootstrap, o.room);
    if (!receiver) return refuse(room, receiver.error());
    room.receiver.emplace(std::move(*receiver));
  }
  keys_[o.room] = o.key;
}

void Rank::handle(const order::Init& o) {
  Room& room = rooms_.at(o.key);
  Result<void> done;
  if (room.sender) done = room.sender->init({o.num_pages, o.aux});
  if (room.receiver) done = room.receiver->init({o.pages, o.aux, o.prefix_pages});
  if (!done) refuse(room, done.error());
}

void Rank::handle(const order::Send& o) {
  Chunk chunk{o.pages};
  const CacheShape& shape = parts_->cache.shape();
  if (o.last_layer) chunk.layers = {shape.first_layer + shape.layers - 1, shape.first_layer + shape.layers};
  send(rooms_.at(o.key), chunk);
}

void Rank::handle(const order::Abort& o) {
  Room& room = rooms_.at(o.key);
  if (room.sender) room.sender->abort(o.reason);
  if (room.receiver) room.receiver->abort(o.reason);
}

void Rank::handle(const order::Forget& o) {
  keys_.erase(rooms_.at(o.key).number);
  rooms_.erase(o.key);
}

void Rank::handle(const order::Record& o) { parts_->cache.aux(o.aux) = o.record; }

void Rank::compute(const order::Compute& o, Exchange* others, std::span<const std::span<float>> logits) {
  std::vector<Row> rows;
  for (std::size_t run = 0; run < o.runs.size(); ++run) {
    std::uint32_t position = o.runs[run].from;
    for (const std::int32_t token : o.runs[run].tokens) rows.push_back({token, position++, o.runs[run].pages});
    if (run < logits.size()) rows.back().logits = logits[run];
  }
  computing_ = &o;
  parts_->model.forward(rows, parts_->cache, parts_->work, others);
  computing_ = nullptr;
}

void Rank::stored(std::uint32_t layer) {
  const CacheShape& shape = parts_->cache.shape();
  const bool held = computing_->hold_last_layer && layer + 1 == shape.first_layer + shape.layers;
  if (!computing_->key || held || computing_->pages.empty()) return;
  Chunk chunk{computing_->pages};
  chunk.layers = {layer, layer + 1};
  send(rooms_.at(*computing_->key), chunk);
}

void Rank::send(Room& room, const Chunk& chunk) {
  if (!room.sender || room.refused) return;
  if (auto sent = room.sender->send(chunk); !sent) refuse(room, sent.error());
}

void Rank::refuse(Room& room, const Error& error) {
  room.refused = error;
  if (room.sender) room.sender->abort(error.text);
  if (room.receiver) room.receiver->abort(error.text);
  const auto same = std::ranges::find_if(rooms_, [&](const auto& entry) { return &entry.second == &room; });
  refused_.push_back(same->first);
}

RoomView Rank::view(const Room& room) const {
  RoomView view;
  if (room.sender) {
    view = view_of(*room.sender);
    view.prefix_pages = room.sender->prefix_pages();
  } else if (room.receiver) {
    view = view_of(*room.receiver);
    view.bytes = room.receiver->bytes_received();
  }
  if (room.refused) {
    view.poll = Poll::failed;
    view.code = room.refused->code;
    view.text = room.refused->message();
  }
  return view;
}

std::vector<std::pair<std::uint64_t, RoomView>> Rank::changes() {
  std::vector<std::uint64_t> keys = std::exchange(refused_, {});
  for (const RoomChange& change : manager_.changed()) {
    if (const auto key = keys_.find(change.room); key != keys_.end()) keys.push_back(key->second);
  }
  std::vector<std::pair<std::uint64_t, RoomView>> out;
  for (const std::uint64_t key : keys) {
    if (const auto room = rooms_.find(key); room != rooms_.end()) out.emplace_back(key, view(room->second));
  }
  return out;
}

}  // namespace kvferry::engine
