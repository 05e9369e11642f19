// kvferry bench slice: heads that go to other ranks than they come from, beside whole pages of the same bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/try.h"
#include "bench/memory.h"
#include "tools/bench.h"
#include "tools/bench_pair.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stats.h"

namespace kvferry::tools {

namespace {

constexpr std::uint32_t page_tokens = 64;
constexpr std::uint32_t kv_heads = 4;
constexpr std::size_t chunk_bytes = std::size_t{16} << 20;

struct Options {
  std::vector<std::size_t> pieces{128, 512, 2048};
  std::size_t bytes = std::size_t{256} << 20;
  unsigned rounds = 3;
};

struct Split {
  std::uint32_t prefill_tp = 0;
  std::uint32_t decode_tp = 0;
};

// What both processes need to know of a run.
struct Setup {
  Way way = Way::tcp;
  Split split{};
  std::uint64_t head_bytes = 0;  // of one token
  std::uint64_t bytes = 0;       // of all ranks of a side together
  std::array<char, 256> bootstrap{};

  std::uint64_t page_bytes(std::uint32_t tp) const { return page_tokens * head_bytes * kv_heads / tp; }
  std::size_t pages() const { return bytes / (2 * page_tokens * head_bytes * kv_heads); }  // of K and of V
};

// All ranks of one side, in one process.
class Side {
 public:
  static Result<Side> make(const Setup& setup, Role role) {
    Side side;
    const std::uint32_t tp = role == Role::prefill ? setup.split.prefill_tp : setup.split.decode_tp;
    for (std::uint32_t rank = 0; rank < tp; ++rank) {
      const std::size_t region_bytes = setup.pages() * setup.page_bytes(tp);
      KVF_TRY(memory, side.allocate(2 * region_bytes, setup.way == Way::shared && role == Role::prefill));
      KVF_TRY(options, bench_manager_options(role, memory, setup.page_bytes(tp), setup.way,
                                             role == Role::prefill ? setup.bootstrap.data() : ""));
      options.memory.kv = {{memory.data(), region_bytes, setup.page_bytes(tp)},
                           {memory.data() + region_bytes, region_bytes, setup.page_bytes(tp)}};
      options.format = {.page_tokens = page_tokens,
                        .layers = 1,
                        .kv_heads = kv_heads,
                        .head_dim = static_cast<std::uint32_t>(setup.head_bytes / 2)};
      options.parallel = {.tp = tp};
      options.place = {.tp = rank};
      options.instance = role == Role::prefill ? "prefill" : "decode";
      KVF_TRY(manager, KvManager::create(std::move(options)));
      side.managers_.push_back(std::move(manager));
    }
    return side;
  }
  std::vector<KvManager>& managers() { return managers_; }

 private:
  Result<std::span<std::byte>> allocate(std::size_t bytes, bool shared) {
    if (shared) {
      KVF_TRY(memory, SharedMemory::allocate(bytes));
      shared_.push_back(std::move(memory));
      return std::span(shared_.back().data(), bytes);
    }
    KVF_TRY(memory, bench::Buffer::allocate(bytes));
    private_.push_back(std::move(memory));
    return std::span(private_.back().data(), bytes);
  }
  std::vector<bench::Buffer> private_;  // outlives the managers
  std::vector<SharedMemory> shared_;    // likewise
  std::vector<KvManager> managers_;
};

enum class SliceAsk : std::uint32_t { open, send, end };
struct Order {
  SliceAsk ask = SliceAsk::open;
  Setup setup{};
  std::uint64_t room = 0;
  std::uint64_t pages = 0;
};

class Prefill {
 public:
  Result<void> obey(const Order& order) {
    switch (order.ask) {
      case SliceAsk::open: {
        side_.reset();
        setup_ = order.setup;
        KVF_TRY(side, Side::make(order.setup, Role::prefill));
        side_.emplace(std::move(side));
        return {};
      }
      case SliceAsk::send:
        return send(order);
      case SliceAsk::end:
        for (Sender& sender : senders_) {
          KVF_TRY(state, sender.wait(std::chrono::seconds(60)));
          if (state != Poll::success) return sender.error().value_or(Error{});
        }
        senders_.clear();
        return {};
    }
    return {};
  }

 private:
  Result<void> send(const Order& order) {
    const auto pages = bench::shuffled(setup_.pages(), order.room);
    const std::size_t step = std::max<std::size_t>(1, chunk_bytes / (2 * setup_.page_bytes(setup_.split.prefill_tp)));
    for (KvManager& manager : side_->managers()) {
      KVF_TRY(sender, manager.open_sender(order.room));
      KVF_CHECK(sender.init({.num_pages = order.pages}));
      for (std::size_t at = 0; at < order.pages; at += step) {
        KVF_CHECK(sender.send({.pages = std::span(pages).subspan(at, std::min<std::size_t>(step, order.pages - at))}));
      }
      senders_.push_back(std::move(sender));
    }
    return {};
  }

  Setup setup_;
  std::optional<Side> side_;
  std::vector<Sender> senders_;
};

struct Answer {
  bool ok = true;
  std::array<char, 512> error{};
};

int serve_prefill(const bench::Channel& channel) {
  quiet_at_the_end();
  Prefill prefill;
  for (;;) {
    auto order = channel.receive<Order>();
    if (!order) return exit_ok;
    Answer answer;
    if (auto done = prefill.obey(*order); !done) {
      answer.ok = false;
      done.error().message().copy(answer.error.data(), answer.error.size() - 1);
    }
    if (!channel.send(answer)) return exit_environment;
  }
}

Result<void> ask(const bench::Child& child, const Order& order) {
  KVF_CHECK(child.channel().send(order));
  KVF_TRY(answer, child.channel().receive<Answer>());
  if (!answer.ok) return Error{.text = fmt::format("the prefill process: {}", answer.error.data())};
  return {};
}

// GB/s of one room on all ranks, from Receiver::init to the last Success; a small room links them before.
Result<double> measure(Setup setup, const bench::Child& child, std::uint64_t& room) {
  KVF_TRY(server, BootstrapServer::start({}));
  server.address().copy(setup.bootstrap.data(), setup.bootstrap.size() - 1);
  KVF_CHECK(ask(child, {.ask = SliceAsk::open, .setup = setup}));
  KVF_TRY(decode, Side::make(setup, Role::decode));
  double seconds = 0;
  for (const std::size_t pages : {std::size_t{4}, setup.pages()}) {
    ++room;
    KVF_CHECK(ask(child, {.ask = SliceAsk::send, .setup = {}, .room = room, .pages = pages}));
    const auto slots = bench::shuffled(setup.pages(), room + 1'000'000);
    std::vector<Receiver> receivers;
    for (KvManager& manager : decode.managers()) {
      KVF_TRY(receiver, manager.open_receiver(server.address(), room));
      KVF_CHECK(wait_for_state(manager, receiver, Poll::waiting_for_input));
      receivers.push_back(std::move(receiver));
    }
    const double start = bench::now_seconds();
    for (Receiver& receiver : receivers) KVF_CHECK(receiver.init({.pages = std::span(slots).first(pages)}));
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      KVF_CHECK(wait_for_state(decode.managers()[i], receivers[i], Poll::success));
    }
    seconds = bench::now_seconds() - start;
    KVF_CHECK(ask(child, {.ask = SliceAsk::end}));
  }
  return static_cast<double>(setup.pages() * 2 * page_tokens * setup.head_bytes * kv_heads) / seconds / 1e9;
}

struct Case {
  Setup setup;
  std::vector<double> gbps{};
  std::vector<double> whole_gbps{};
};

int run(const Context& context, const Options& options) {
  quiet_at_the_end();
  auto child = bench::Child::start([](const bench::Channel& channel) { return serve_prefill(channel); });
  if (!child) return cannot_run(context, child.error().message());
  std::vector<Case> cases;
  for (const Way way : {Way::tcp, Way::samehost, Way::shared}) {
    for (const Split split : {Split{4, 2}, Split{2, 4}}) {
      for (const std::size_t piece : options.pieces) {
        cases.push_back({{.way = way, .split = split, .head_bytes = piece, .bytes = options.bytes}});
      }
    }
  }
  std::uint64_t room = 0;
  Progress progress("bench slice", options.rounds * cases.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      Case& one = cases[i];
      Setup whole = one.setup;  // the same pages on decode
      whole.split.prefill_tp = whole.split.decode_tp;
      for (const bool sliced : {round % 2 == 0, round % 2 != 0}) {
        auto gbps = measure(sliced ? one.setup : whole, *child, room);
        if (!gbps) return cannot_run(context, gbps.error().message());
        (sliced ? one.gbps : one.whole_gbps).push_back(*gbps);
      }
      progress.set(round * cases.size() + i + 1);
    }
  }
  Report report("bench slice");
  std::map<Way, double> ratio_min;
  for (const Case& one : cases) {
    const double gbps = percentile(one.gbps, 50);
    const double whole = percentile(one.whole_gbps, 50);
    const auto [at, fresh] = ratio_min.emplace(one.setup.way, gbps / whole);
    if (!fresh) at->second = std::min(at->second, gbps / whole);
    report.row({{"transport", way_name(one.setup.way)},
                {"split", fmt::format("tp {} to {}", one.setup.split.prefill_tp, one.setup.split.decode_tp)},
                {"piece_bytes", one.setup.head_bytes},
                {"gbps", gbps},
                {"whole_gbps", whole},
                {"ratio", gbps / whole}});
  }
  report.figure("samehost_slice_ratio", ratio_min.at(Way::samehost), "of whole pages of the same bytes, the least");
  report.figure("shared_slice_ratio", ratio_min.at(Way::shared), "of whole pages of the same bytes, the least");
  report.figure("tcp_slice_ratio", ratio_min.at(Way::tcp), "of whole pages of the same bytes, the least");
  report.note(fmt::format("pages of {} tokens, {} heads; all ranks of a side in one process", page_tokens, kv_heads));
  return report.finish(context);
}

}  // namespace

void add_bench_slice(CLI::App& bench, Context& context) {
  CLI::App* command = add_command(
      bench, context, "slice", "Pages whose heads go to other ranks, beside whole pages of the same bytes",
      "Prefill and decode with different tensor-parallel sizes, all ranks of a side in one process: of every page "
      "each\n"
      "rank gets or gives its heads, a piece for each token. Counted from Receiver::init to the last Success.\n\n"
      "Example:\n"
      "  kvferry bench slice --pieces 256 --rounds 9");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--pieces", options->pieces, "Bytes of one head of one token")
      ->delimiter(',')
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--bytes", options->bytes, "Memory of each side, for example 512MiB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds over all rows; the medians are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
