// Copies parts of a chunk out of a peer: one worker's tools for it. Knows no windows; everything was checked before.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvferry/result.h"
#include "layout/view.h"
#include "transport/samehost/peer_memory.h"

namespace kvferry::transport {

// The same items of some regions on both sides.
struct Pull {
  std::span<const PeerRegion> source;
  std::span<const layout::ViewRegion> target;  // as many
  std::span<const std::int32_t> source_items;
  std::span<const std::int32_t> target_items;  // as many
};

// Copies both lists of pieces, which hold the same number of bytes, by plain loads and stores. Neither may overlap.
void copy_pieces(std::span<const layout::Piece> source, std::span<const layout::Piece> target);

class Puller {
 public:
  // Carries out all of `pulls`, at most 1 MiB a system call. Ends early, with success, once `cancelled`.
  // `out_of_range` where the peer's memory is not mapped, `peer_lost` where the process is gone, `unsupported` where
  // the kernel does not permit it any more.
  Result<void> run(const ReadablePeer& peer, std::span<const Pull> pulls, const std::atomic<bool>& cancelled);

 private:
  Result<void> read_process(const ReadablePeer& peer, const std::atomic<bool>& cancelled);
  Result<void> read_cut(const ReadablePeer& peer, const std::atomic<bool>& cancelled);
  std::size_t plan_block(std::size_t& next, std::size_t& offset);
  void bridge(const layout::ViewRegion& source, std::span<const std::int32_t> source_items,
              const layout::ViewRegion& target, std::span<const std::int32_t> target_items);

  std::vector<layout::Piece> source_;  // of private regions
  std::vector<layout::Piece> target_;
  std::vector<layout::Piece> cut_source_;  // of private regions in small pieces
  std::vector<layout::Piece> cut_target_;
  std::vector<layout::Piece> bridged_source_;  // of one region, before gaps are filled
  std::vector<layout::Piece> bridged_target_;
  std::vector<layout::Piece> mapped_source_;
  std::vector<layout::Piece> mapped_target_;
  std::vector<iovec> remote_;
  std::vector<iovec> local_;
  std::vector<std::byte> block_;       // small pieces pass through it; allocated once they do
  std::vector<layout::Piece> wanted_;  // of the block that was read
};

}  // namespace kvferry::transport
