// One rank of an engine: its memory, its manager and its rooms. Does what the first rank of its group decides.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/orders.h"

namespace kvferry::engine {

class Rank {
 public:
  static Result<std::unique_ptr<Rank>> make(const EngineOptions& options);

  Parts& parts() { return *parts_; }
  KvManager& manager() { return manager_; }

  // What goes wrong shows as a room that failed.
  void obey(const RankOrder& order, Exchange* others, std::span<const std::span<float>> logits = {});
  // The layer's pages of the runs that are computed now.
  void stored(std::uint32_t layer);
  // `changes` has something that the manager's descriptor does not say.
  bool refused() const { return !refused_.empty(); }
  // The rooms that changed since the last call, as they stand now.
  std::vector<std::pair<std::uint64_t, RoomView>> changes();

 private:
  struct Room {
    std::uint64_t number = 0;
    std::optional<Sender> sender{};
    std::optional<Receiver> receiver{};
    std::optional<Error> refused{};  // what was asked of it could not be done
  };
  Rank(std::unique_ptr<Parts> parts, KvManager manager) : parts_(std::move(parts)), manager_(std::move(manager)) {}

  void handle(const order::Open& o);
  void handle(const order::Init& o);
  void handle(const order::Send& o);
  void handle(const order::Abort& o);
  void handle(const order::Forget& o);
  void handle(const order::Record& o);
  void compute(const order::Compute& o, Exchange* others, std::span<const std::span<float>> logits);
  void send(Room& room, const Chunk& chunk);
  void refuse(Room& room, const Error& error);
  RoomView view(const Room& room) const;

  std::unique_ptr<Parts> parts_;
  KvManager manager_;
  std::map<std::uint64_t, Room> rooms_{};          // by key
  std::map<std::uint64_t, std::uint64_t> keys_{};  // by room number
  std::vector<std::uint64_t> refused_{};           // keys to report
  const order::Compute* computing_ = nullptr;
};

}  // namespace kvferry::engine
