#include "transport/summer.h"

#include <array>
#include <utility>

#include "base/crc32c.h"
#include "layout/pages.h"
#include "os/thread.h"

namespace kvferry::transport {
namespace {

// Adds the sums of one region's items; three at a time, which the processor does in the time of one.
std::uint32_t add_region(const layout::ViewRegion& region, const std::vector<std::int32_t>& items,
                         std::uint32_t so_far) {
  const std::byte* base = region.base;
  const auto at = [&](std::size_t i) { return base + static_cast<std::size_t>(items[i]) * region.item_bytes; };
  const auto add = [&](std::uint32_t crc) { so_far = crc32c(std::as_bytes(std::span(&crc, 1)), so_far); };
  std::size_t i = 0;
  for (; i + 3 <= items.size(); i += 3) {
    for (const std::uint32_t crc : crc32c_of_three({at(i), at(i + 1), at(i + 2)}, region.item_bytes)) add(crc);
  }
  for (; i < items.size(); ++i) add(crc32c({at(i), region.item_bytes}));
  return so_far;
}

// The same of units that do not lie in one piece.
std::uint32_t add_cut_region(const layout::ViewRegion& region, const std::vector<std::int32_t>& units,
                             std::uint32_t so_far, std::vector<layout::Piece>& pieces) {
  for (const std::int32_t& unit : units) {
    pieces.clear();
    layout::append_pieces(region, std::span(&unit, 1), pieces);
    std::uint32_t crc = 0;
    for (const layout::Piece& piece : pieces) crc = crc32c({piece.data, piece.bytes}, crc);
    so_far = crc32c(std::as_bytes(std::span(&crc, 1)), so_far);
  }
  return so_far;
}

}  // namespace

std::uint32_t sum_of(const layout::View& view, const core::SumOrder& order) {
  std::uint32_t sum = 0;
  std::vector<layout::Piece> pieces;
  for (const ItemList& list : order.lists) {
    for (const layout::ViewRegion& region : view.regions(list.component)) {
      sum = region.whole ? add_region(region, list.items, sum) : add_cut_region(region, list.items, sum, pieces);
    }
  }
  return sum;
}

Summer::~Summer() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Summer::sum(core::SumOrder order, std::shared_ptr<const layout::View> view) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(order), std::move(view)});
  }
  changed_.notify_one();
  if (!thread_.joinable()) thread_ = os::start_thread("kvf-sum", [this] { run(); });
}

void Summer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return quit_ || !jobs_.empty(); });
    if (quit_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    sink_.post(core::Summed{job.order.session, job.order.transfer, sum_of(*job.view, job.order)});
    lock.lock();
  }
}

}  // namespace kvferry::transport
