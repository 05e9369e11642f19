// kvferry bench copy: GB/s of each transport over page sizes, beside the raw limit measured between the same processes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "base/try.h"
#include "bench/limits.h"
#include "bench/memory.h"
#include "tools/bench.h"
#include "tools/bench_copy_source.h"
#include "tools/bench_pair.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stats.h"

namespace kvferry::tools {

namespace {

constexpr std::size_t warm_up_bytes = std::size_t{16} << 20;
constexpr std::size_t naive_page_bytes = 4096;
constexpr std::size_t stream_page_bytes_min = 65536;  // from here on the raw stream is the limit to hold TCP against

struct Options {
  std::vector<std::string> transports{"tcp", "samehost", "shared"};
  std::vector<std::size_t> pages{4096, 16384, 65536, 262144, 1048576};
  std::size_t bytes = std::size_t{1} << 30;
  unsigned rounds = 3;
  unsigned streams = 1;
  double seconds_max = 40;
  bool verify = false;
};

struct Case {
  Way way = Way::tcp;
  std::size_t page_bytes = 0;
  std::vector<double> gbps{};
  std::vector<double> limit_gbps{};
  std::vector<double> verified_gbps{};  // with the end-to-end check
};

double gbps_of(const bench::Scatter& scatter, double seconds) {
  return static_cast<double>(scatter.bytes()) / seconds / 1e9;
}

// The decode process: leads, receives, and measures kvferry and the raw limit in turns.
class CopyBench {
 public:
  static Result<CopyBench> make(const Options& options, bench::Child& child, bool shared) {
    CopyBench made(options, child);
    KVF_TRY(target, bench::Buffer::allocate(options.bytes));
    made.target_ = std::move(target);
    if (shared) {
      // What memcpy copies from: memory of the same kind as the sender's, in this process.
      KVF_TRY(source, SharedMemory::allocate(options.bytes));
      bench::fill_pattern({source.data(), options.bytes});
      made.source_.emplace(std::move(source));
    }
    KVF_TRY(server, BootstrapServer::start({}));
    made.server_.emplace(std::move(server));
    return made;
  }

  // One turn of a case: kvferry and its limit. `verify` looks at every byte afterwards.
  Result<void> measure(Case& one, bool verify) {
    const std::size_t pages = options_.bytes / one.page_bytes;
    const std::uint64_t seed = ++seed_;
    from_ = bench::shuffled(pages, seed);
    to_ = bench::shuffled(pages, seed + 1'000'000);
    const bench::Scatter scatter{.from = from_, .to = to_, .page_bytes = one.page_bytes};
    KVF_TRY(source, open(one, Verify::off));
    double limit = 0;
    double seconds = 0;
    // Who goes first changes with every turn: the second one may find warmer or more tired hardware.
    const bool limit_first = one.gbps.size() % 2 == 0;
    for (const bool raw : {limit_first, !limit_first}) {
      if (!raw && verify) bench::spoil({target_.data(), target_.size()});
      KVF_TRY(took, raw ? limit_seconds(one.way, source, seed, scatter) : room_seconds(one, seed, scatter));
      (raw ? limit : seconds) = took;
      if (!raw && verify) KVF_CHECK(check(one, scatter));
    }
    manager_.reset();
    KVF_CHECK(ask(child_, {.ask = Ask::close}));
    one.gbps.push_back(gbps_of(scatter, seconds));
    one.limit_gbps.push_back(gbps_of(scatter, limit));
    return options_.verify ? measure_verified(one, seed, scatter) : Result<void>();
  }

 private:
  CopyBench(const Options& options, bench::Child& child) : options_(options), child_(child) {}

  Result<void> measure_verified(Case& one, std::uint64_t seed, const bench::Scatter& scatter) {
    KVF_TRY(source, open(one, Verify::crc32c));
    static_cast<void>(source);
    KVF_TRY(seconds, room_seconds(one, seed, scatter));
    manager_.reset();
    KVF_CHECK(ask(child_, {.ask = Ask::close}));
    one.verified_gbps.push_back(gbps_of(scatter, seconds));
    return {};
  }

  // Both managers; answers where the sender's memory starts in its process.
  Result<std::uint64_t> open(const Case& one, Verify verify) {
    KVF_TRY(options,
            bench_manager_options(Role::decode, {target_.data(), target_.size()}, one.page_bytes, one.way, {}));
    options.settings->verify = verify;
    KVF_TRY(manager, KvManager::create(std::move(options)));
    manager_.emplace(std::move(manager));
    BenchCommand command{.ask = Ask::open, .way = one.way, .page_bytes = one.page_bytes};
    command.set_bootstrap(server_->address());
    KVF_TRY(answer, ask(child_, command));
    // A small room first, so that the link and its streams are there, as they are between engines that run.
    const std::size_t pages = std::max<std::size_t>(1, std::min(options_.bytes, warm_up_bytes) / one.page_bytes);
    const bench::Scatter warm_up{
        .from = std::span(from_).first(pages), .to = std::span(to_).first(pages), .page_bytes = one.page_bytes};
    KVF_TRY(seconds, room_seconds(one, seed_, warm_up));
    static_cast<void>(seconds);
    return answer.address;
  }

  Result<void> check(const Case& one, const bench::Scatter& scatter) const {
    const std::size_t wrong = bench::wrong_pages(target_.data(), scatter);
    if (wrong == 0) return {};
    return Error{.text = fmt::format("{} of {} pages of {} bytes arrived wrong over {}", wrong, scatter.to.size(),
                                     one.page_bytes, way_name(one.way))};
  }

  // From Receiver::init to Success, of one room with the pages of `scatter`.
  Result<double> room_seconds(const Case& one, std::uint64_t seed, const bench::Scatter& scatter) {
    const BenchCommand send{.ask = Ask::send_room,
                            .page_bytes = one.page_bytes,
                            .seed = seed,
                            .room = ++room_,
                            .rooms = scatter.from.size()};
    KVF_CHECK(ask(child_, send));
    KVF_TRY(receiver, manager_->open_receiver(server_->address(), room_));
    KVF_CHECK(wait_for_state(*manager_, receiver, Poll::waiting_for_input));
    const double start = bench::now_seconds();
    KVF_CHECK(receiver.init({.pages = scatter.to}));
    KVF_CHECK(wait_for_state(*manager_, receiver, Poll::success));
    const double seconds = bench::now_seconds() - start;
    receiver.clear();
    KVF_CHECK(ask(child_, {.ask = Ask::end_room}));
    return seconds;
  }

  Result<double> limit_seconds(Way way, std::uint64_t source, std::uint64_t seed, const bench::Scatter& scatter) {
    if (way == Way::shared) return bench::memcpy_seconds(source_->data(), target_.data(), scatter);
    if (way == Way::samehost) return bench::vm_read_seconds(child_.pid(), source, target_.data(), scatter);
    KVF_TRY(listener, bench::listen_on_loopback());
    KVF_CHECK(tell(child_, {.ask = Ask::tcp_write,
                            .port = listener.port,
                            .streams = options_.streams,
                            .page_bytes = scatter.page_bytes,
                            .seed = seed}));
    KVF_TRY(seconds, bench::tcp_read_seconds(listener, options_.streams, target_.data(), scatter));
    KVF_CHECK(hear(child_));
    return seconds;
  }

  const Options& options_;
  bench::Child& child_;
  bench::Buffer target_;
  std::optional<SharedMemory> source_;
  std::optional<BootstrapServer> server_;
  std::optional<KvManager> manager_;
  std::vector<std::int32_t> from_;
  std::vector<std::int32_t> to_;
  std::uint64_t seed_ = 0;
  std::uint64_t room_ = 0;
};

Result<std::vector<Case>> cases_of(const Options& options) {
  std::vector<Case> cases;
  for (const std::string& name : options.transports) {
    std::optional<Way> way;
    for (Way one : {Way::tcp, Way::samehost, Way::shared}) {
      if (name == way_name(one)) way = one;
    }
    if (!way) return Error{.text = "--transports: \"" + name + "\" is none of tcp, samehost, shared"};
    for (std::size_t page : options.pages) {
      if (page == 0 || page % 4096 != 0 || page > options.bytes || options.bytes % page != 0) {
        return Error{.text = fmt::format("--pages: {} must be a multiple of 4096 that divides --bytes ({})", page,
                                         options.bytes)};
      }
      cases.push_back({.way = *way, .page_bytes = page});
    }
  }
  return cases;
}

Result<unsigned> measure_all(const Options& options, std::vector<Case>& cases, bool shared) {
  // Forked before this process has a thread, so that the child starts as a process of its own would.
  KVF_TRY(child,
          bench::Child::start([&](bench::Channel channel) { return run_copy_source(channel, options.bytes, shared); }));
  const double start = bench::now_seconds();
  KVF_TRY(bench, CopyBench::make(options, child, shared));
  Progress progress("bench copy", options.rounds * cases.size());
  unsigned round = 0;
  for (std::uint64_t done = 0; round < options.rounds; ++round) {
    const double round_start = bench::now_seconds();
    for (Case& one : cases) {
      // Every way and size is looked at byte by byte once.
      KVF_CHECK(bench.measure(one, round == 0));
      progress.set(++done);
    }
    const double now = bench::now_seconds();
    if (now - start + (now - round_start) > options.seconds_max) return round + 1;
  }
  return round;
}

void report_cases(Report& report, const std::vector<Case>& cases) {
  std::map<std::string, double> ratio_min;
  const auto keep_min = [&](const std::string& name, double ratio) {
    const auto [at, fresh] = ratio_min.emplace(name, ratio);
    if (!fresh) at->second = std::min(at->second, ratio);
  };
  for (const Case& one : cases) {
    const double gbps = percentile(one.gbps, 50);
    const double limit = percentile(one.limit_gbps, 50);
    const double ratio = gbps / limit;
    Row row{{"transport", way_name(one.way)},
            {"page_bytes", one.page_bytes},
            {"gbps", gbps},
            {"limit_gbps", limit},
            {"ratio", ratio}};
    if (!one.verified_gbps.empty()) {
      const double verified = percentile(one.verified_gbps, 50);
      row.push_back({"verified_gbps", verified});
      row.push_back({"verified_ratio", verified / gbps});
      keep_min("verified_ratio_min", verified / gbps);
    }
    report.row(std::move(row));
    if (one.way != Way::tcp) keep_min(fmt::format("{}_ratio_min", way_name(one.way)), ratio);
    if (one.way == Way::tcp && one.page_bytes >= stream_page_bytes_min) keep_min("tcp_ratio_min", ratio);
    if (one.way == Way::tcp && one.page_bytes == naive_page_bytes) keep_min("tcp_4k_over_naive", ratio);
  }
  for (const auto& [name, ratio] : ratio_min) report.figure(name, ratio);
}

int run(const Context& context, const Options& options) {
  auto cases = cases_of(options);
  if (!cases) return cannot_run(context, cases.error().text);
  const bool shared = std::ranges::count(options.transports, "shared") != 0;
  auto rounds = measure_all(options, *cases, shared);
  if (!rounds) return cannot_run(context, rounds.error().message());
  Report report("bench copy");
  report_cases(report, *cases);
  report.figure("bytes", options.bytes, "bytes a room, scattered on both sides");
  report.figure("rounds", *rounds, "kvferry and its limit in turns; medians");
  report.note(
      "limits: tcp = writev and one read loop a page over one loopback stream; samehost = process_vm_readv, 1,024");
  report.note("pieces a call; shared = memcpy of one core. All bytes were compared once for every row.");
  return report.finish(context);
}

}  // namespace

void add_bench_copy(CLI::App& bench, Context& context) {
  CLI::App* command =
      add_command(bench, context, "copy", "GB/s of each transport over page sizes, beside the raw limit",
                  "One room moves all pages, shuffled on both sides, from a prefill to a decode process;\n"
                  "counted from Receiver::init to Success. Needs about four times --bytes of memory.\n\n"
                  "Example:\n"
                  "  kvferry bench copy --transports samehost,shared --pages 65536 --rounds 9");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--transports", options->transports, "Any of tcp, samehost, shared")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--pages", options->pages, "Page sizes in bytes")->delimiter(',')->capture_default_str();
  command->add_option("--bytes", options->bytes, "Memory on each side, for example 512MiB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds over all rows; the medians are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--streams", options->streams, "Streams of the raw TCP limit; kvferry uses one a session")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--seconds-max", options->seconds_max, "No new round once this would be passed")
      ->capture_default_str();
  command->add_flag("--verify", options->verify,
                    "Each row also with KVFERRY_VERIFY=crc32c; verified_ratio is to the row without it");
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
