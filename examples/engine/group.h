// The ranks of one data-parallel group, a process each, in step: the first one decides, tells the others and computes
// with them. A rank that dies ends the group, as it does in engines that compute together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/model.h"
#include "engine/orders.h"
#include "engine/rank.h"

namespace kvferry::engine {

class Group final : public Exchange {
 public:
  // Forks the other ranks of `options.place.dp`; before that this process has no threads. Returns once all are ready.
  static Result<std::unique_ptr<Group>> start(const EngineOptions& options);
  ~Group() override;

  Parts& parts() { return rank_->parts(); }
  KvManager& manager() { return rank_->manager(); }
  // Readable when a room may have changed on one of the ranks.
  int event_fd() const { return events_; }

  // Done by every rank. `logits`, of a Compute: one span a run, for those of its last token, or an empty one.
  void tell(const RankOrder& order, std::span<const std::span<float>> logits = {});
  // Takes in what has changed.
  void refresh();
  // The room on all ranks: the least of their states, and the first failure that was seen. When it fails on one rank it
  // is aborted on the others with that reason.
  RoomView view(std::uint64_t key) const;

  void stored(std::uint32_t layer) override { rank_->stored(layer); }
  void all_gather(std::uint32_t layer, std::span<float> mixed) override;

 private:
  struct Member {
    Channel channel;
    Place place{};
    int pid = -1;
  };
  struct Room {
    std::vector<RoomView> views{};  // a rank each, this one first
    bool failed = false;
    RoomView failure{};
  };

  Group() = default;
  void apply(std::size_t rank, std::uint64_t key, const RoomView& view);
  answer::Floats floats_of(std::size_t member);
  [[noreturn]] void lose(const Member& member) const;

  int events_ = -1;
  int wake_ = -1;  // readable when a room changed that no descriptor speaks of any more
  std::vector<Member> members_{};
  std::unique_ptr<Rank> rank_{};
  std::map<std::uint64_t, Room> rooms_{};
  std::vector<std::uint64_t> to_abort_{};  // failed on one rank and not yet told to all
};

}  // namespace kvferry::engine
