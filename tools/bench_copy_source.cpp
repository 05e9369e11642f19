#include "tools/bench_copy_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/try.h"
#include "bench/limits.h"
#include "bench/memory.h"
#include "tools/bench_pair.h"

namespace kvferry::tools {

namespace {

// Owns the memory that is sent. Members in the order that lets rooms go before the manager, and it before the memory.
class CopySource {
 public:
  static Result<CopySource> make(std::size_t bytes, bool with_shared) {
    CopySource source;
    KVF_TRY(memory, bench::Buffer::allocate(bytes));
    source.private_ = std::move(memory);
    bench::fill_pattern({source.private_.data(), bytes});
    if (with_shared) {
      KVF_TRY(mappable, SharedMemory::allocate(bytes));
      bench::fill_pattern({mappable.data(), bytes});
      source.shared_.emplace(std::move(mappable));
    }
    return source;
  }

  Result<BenchAnswer> handle(const BenchCommand& command) {
    switch (command.ask) {
      case Ask::open:
        return open(command);
      case Ask::close:
        return close();
      case Ask::send_room:
        return send_room(command);
      case Ask::end_room:
        return end_room();
      case Ask::tcp_write:
        return tcp_write(command);
      default:
        return Error{.code = Code::invalid_argument, .text = "the copy source cannot do that"};
    }
  }

 private:
  std::span<std::byte> memory(Way way) const {
    if (way == Way::shared && shared_) return {shared_->data(), private_.size()};
    return {private_.data(), private_.size()};
  }

  Result<BenchAnswer> open(const BenchCommand& command) {
    const auto region = memory(command.way);
    KVF_TRY(manager,
            make_bench_manager(Role::prefill, region, command.page_bytes, command.way, command.bootstrap.data()));
    manager_.emplace(std::move(manager));
    return BenchAnswer{.address = reinterpret_cast<std::uintptr_t>(region.data())};
  }

  Result<BenchAnswer> close() {
    sender_.reset();
    manager_.reset();
    return BenchAnswer{};
  }

  Result<BenchAnswer> send_room(const BenchCommand& command) {
    const auto order = bench::shuffled(private_.size() / command.page_bytes, command.seed);
    const std::size_t count = command.rooms;  // pages of this room; the first of the order
    KVF_TRY(sender, manager_->open_sender(command.room));
    sender_.emplace(std::move(sender));
    KVF_CHECK(sender_->init({.num_pages = count}));
    const std::size_t step = std::max<std::size_t>(1, bench_chunk_bytes / command.page_bytes);
    for (std::size_t at = 0; at < count; at += step) {
      KVF_CHECK(sender_->send({.pages = std::span(order).subspan(at, std::min(step, count - at))}));
    }
    return BenchAnswer{};
  }

  Result<BenchAnswer> end_room() {
    KVF_CHECK(wait_for_state(*manager_, *sender_, Poll::success));
    sender_->clear();
    sender_.reset();
    return BenchAnswer{};
  }

  Result<BenchAnswer> tcp_write(const BenchCommand& command) {
    const auto order = bench::shuffled(private_.size() / command.page_bytes, command.seed);
    const bench::Scatter scatter{.from = order, .to = {}, .page_bytes = command.page_bytes};
    KVF_CHECK(bench::tcp_write(command.port, command.streams, private_.data(), scatter));
    return BenchAnswer{};
  }

  bench::Buffer private_;
  std::optional<SharedMemory> shared_;
  std::optional<KvManager> manager_;
  std::optional<Sender> sender_;
};

}  // namespace

int run_copy_source(const bench::Channel& channel, std::size_t bytes, bool shared) {
  quiet_at_the_end();
  auto source = CopySource::make(bytes, shared);
  return serve(channel, [&](const BenchCommand& command) -> Result<BenchAnswer> {
    if (!source) return source.error();
    return source->handle(command);
  });
}

}  // namespace kvferry::tools
