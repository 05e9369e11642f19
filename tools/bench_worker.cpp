#include "tools/bench_worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "base/address.h"
#include "base/try.h"
#include "bench/unserved.h"
#include "tools/bench_loop.h"
#include "tools/http_get.h"
#include "tools/process.h"

namespace kvferry::tools {

namespace {

using Numbers = std::vector<std::uint64_t>;

// Rooms that are held, and a loop of rooms beside them. A resource: owns its manager and memory.
class Worker {
 public:
  // Answers as soon as it can: nothing while what was asked for has not happened yet.
  using Due = std::function<Result<std::optional<Numbers>>()>;

  static Result<Worker> make(const WorkerSetup& setup) {
    KVF_TRY(places, Places::make(setup.places, setup.room_pages, setup.page_bytes));
    bench::Buffer ballast;
    if (setup.ballast_bytes != 0) {
      KVF_TRY(touched, bench::Buffer::allocate(setup.ballast_bytes));
      ballast = std::move(touched);
    }
    KVF_TRY(options,
            bench_manager_options(Role::prefill, places.memory(), setup.page_bytes, setup.way, setup.bootstrap));
    options.instance = setup.instance;
    KVF_TRY(manager, KvManager::create(std::move(options)));
    return Worker(std::move(places), std::move(ballast), std::move(manager));
  }

  const KvManager& manager() const { return manager_; }

  Result<Due> obey(const std::string& line) {
    std::istringstream words(line);
    std::string order;
    words >> order;
    Numbers numbers;
    for (std::uint64_t number = 0; words >> number;) numbers.push_back(number);
    if (order == "hold" && numbers.size() == 3) return hold(numbers[0], numbers[1], numbers[2]);
    if (order == "granted") return granted();
    if (order == "stall") return stall();
    if (order == "push") return push();
    if (order == "drop") return drop();
    if (order == "loop" && numbers.size() == 4) return loop(numbers[0], numbers[1], numbers[2], numbers[3] != 0);
    if (order == "join")
      return Due([this]() -> Result<std::optional<Numbers>> {
        if (loop_ && !loop_->done()) return std::optional<Numbers>();
        return leave();
      });
    if (order == "leave") return Due([this] { return leave(); });
    if (order == "fork") return Due([] { return leave_a_child(); });
    if (order == "size") return Due([] { return size(); });
    return Error{.code = Code::invalid_argument, .text = "no order: " + line};
  }

  Result<void> take_changes() {
    for (const RoomChange& change : manager_.changed()) {
      if (loop_)
        loop_->take(change, [this](Sender& sender, const RoomChange& now, std::size_t) { judge(sender, now); });
    }
    return loop_ ? fill() : Result<void>();
  }

 private:
  Worker(Places places, bench::Buffer ballast, KvManager manager)
      : places_(std::move(places)), ballast_(std::move(ballast)), manager_(std::move(manager)) {}

  Result<Sender> open(std::uint64_t room, std::uint64_t place, std::uint64_t pages) {
    places_.stamp(place, room);
    KVF_TRY(sender, manager_.open_sender(room));
    KVF_CHECK(sender.init({.num_pages = places_.room_pages()}));
    if (pages != 0) KVF_CHECK(sender.send({.pages = places_.pages(place).first(pages)}));
    return sender;
  }

  Result<Due> hold(std::uint64_t first, std::uint64_t count, std::uint64_t sent) {
    sent_ = sent;
    for (std::uint64_t i = 0; i < count; ++i) {
      KVF_TRY(sender, open(first + i, i, i % 2 == 0 ? sent : 0));
      held_.push_back(std::move(sender));
    }
    return Due([]() -> Result<std::optional<Numbers>> { return std::optional(Numbers{}); });
  }

  Result<Due> stall() {
    KVF_TRY(unserved, bench::UnservedMemory::make(places_.memory()));
    unserved_.emplace(std::move(unserved));
    return Due([]() -> Result<std::optional<Numbers>> { return std::optional(Numbers{}); });
  }

  Result<Due> push() {
    for (std::size_t i = 0; i < held_.size(); ++i) {
      KVF_CHECK(held_[i].send({.pages = places_.pages(i).subspan(i % 2 == 0 ? sent_ : 0)}));
    }
    return Due([]() -> Result<std::optional<Numbers>> { return std::optional(Numbers{}); });
  }

  Due granted() {
    return [this, at = std::size_t{0}]() mutable -> Result<std::optional<Numbers>> {
      for (; at < held_.size(); ++at) {
        if (held_[at].poll() == Poll::failed) return *held_[at].error();
        if (held_[at].poll() < Poll::waiting_for_input) return std::optional<Numbers>();
      }
      return std::optional(Numbers{});
    };
  }

  // Waits for the held rooms that are not over, which is all it does until the last one is.
  Due drop() {
    return [this, ended = Numbers{0, 0}]() mutable -> Result<std::optional<Numbers>> {
      for (std::size_t at = ended[0] + ended[1]; at < held_.size(); ++at) {
        const Sender& sender = held_[at];
        const bool over = sender.poll() == Poll::success || sender.poll() == Poll::failed;
        if (!over || !sender.pages_released()) return std::optional<Numbers>();
        ++ended[sender.poll() == Poll::success ? 0 : 1];
      }
      for (Sender& sender : held_) sender.clear();
      held_.clear();
      return std::optional(ended);
    };
  }

  Result<Due> loop(std::uint64_t first, std::uint64_t slots, std::uint64_t rooms, bool faults) {
    loop_.emplace(first, slots, rooms);
    faults_ = faults;
    KVF_CHECK(fill());
    return Due([]() -> Result<std::optional<Numbers>> { return std::optional(Numbers{}); });
  }

  Result<void> fill() {
    return loop_->fill([this](std::uint64_t room, std::size_t slot) -> Result<Sender> {
      const LoopFault fault = faults_ ? fault_of(room) : LoopFault::none;
      // Where one side gives up, the rest is never sent: the room must not be able to succeed before.
      const std::size_t pages = fault == LoopFault::none ? places_.room_pages() : places_.room_pages() / 2;
      return open(room, held_.size() + slot, pages);
    });
  }

  // Given up once it is granted: before, its end would be remembered for a while in case that the grant comes.
  void judge(Sender& sender, const RoomChange& change) const {
    if (!faults_ || fault_of(change.room) != LoopFault::sender_aborts) return;
    if (change.state == Poll::waiting_for_input || change.state == Poll::transferring) {
      sender.abort("the bench wants it to fail");
    }
  }

  Result<std::optional<Numbers>> leave() {
    if (!loop_) return Error{.code = Code::invalid_argument, .text = "there is no loop"};
    Numbers ended{loop_->succeeded(), loop_->failed()};
    loop_.reset();
    return std::optional(ended);
  }

  // As an engine does that starts a helper. The child keeps stdin alone, which closes when nobody needs it any more.
  static Result<std::optional<Numbers>> leave_a_child() {
    const pid_t child = ::fork();
    if (child < 0) return Error{.text = "the prefill process cannot fork"};
    if (child > 0) return std::optional(Numbers{static_cast<std::uint64_t>(child)});
    ::close(STDOUT_FILENO);
    ::fcntl(STDIN_FILENO, F_SETFL, 0);  // blocking again
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    ::_exit(0);
  }

  static Result<std::optional<Numbers>> size() {
    KVF_TRY(use, memory_use());
    return std::optional(Numbers{use.resident_bytes, use.heap_bytes});
  }

  Places places_;
  std::optional<bench::UnservedMemory> unserved_;
  bench::Buffer ballast_;
  KvManager manager_;
  std::vector<Sender> held_;
  std::uint64_t sent_ = 0;  // pages of every second one
  std::optional<RoomLoop<Sender>> loop_;
  bool faults_ = false;
};

void say(const std::string& line) {
  std::cout << line << '\n';
  std::cout.flush();
}

// Asks the bootstrap server until it names this process: the moment of the last question that it did not.
Result<double> seconds_registered(const std::string& bootstrap, const std::string& own) {
  KVF_TRY(server, Address::parse(bootstrap));
  KVF_TRY(address, Address::parse(own));
  const double start = bench::now_seconds();
  for (double absent = start; absent - start < 30;) {
    const double asked = bench::now_seconds();
    auto answer = http_get(server, "/route?engine_rank=0&target_dp_group=0", std::chrono::seconds(5));
    if (!answer) return answer.error();
    boost::system::error_code broken;
    const auto body = boost::json::parse(answer->body, broken);
    const auto* fields = broken ? nullptr : body.if_object();
    const auto* port = fields == nullptr ? nullptr : fields->if_contains("rank_port");
    if (port != nullptr && port->is_int64() && port->as_int64() == address.port) return absent;
    absent = asked;
  }
  return Error{.code = Code::timeout, .text = "the bootstrap server does not know this process after 30 s"};
}

// One order at a time: the next is read when the last has been answered.
Result<void> serve_orders(Worker& worker) {
  LineReader lines;
  Worker::Due due;
  for (bool open = true; open;) {
    pollfd waits[2] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                       {.fd = worker.manager().event_fd(), .events = POLLIN, .revents = 0}};
    ::poll(waits, 2, -1);
    if (waits[0].revents != 0) open = lines.fill(STDIN_FILENO);
    if (waits[1].revents != 0) KVF_CHECK(worker.take_changes());
    for (;;) {
      if (!due) {
        const auto line = lines.next();
        if (!line) break;
        KVF_TRY(next, worker.obey(*line));
        due = std::move(next);
      }
      KVF_TRY(answer, due());
      if (!answer) break;
      due = nullptr;
      std::string words = "ok";
      for (const std::uint64_t number : *answer) words += fmt::format(" {}", number);
      say(words);
    }
  }
  return {};
}

Result<void> run(const WorkerSetup& setup) {
  ::fcntl(STDIN_FILENO, F_SETFL, ::fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
  KVF_TRY(worker, Worker::make(setup));
  KVF_TRY(registered, seconds_registered(setup.bootstrap, worker.manager().address()));
  say(fmt::format("ok {}", static_cast<std::uint64_t>(registered * 1e9)));
  return serve_orders(worker);
}

int run_worker(const WorkerSetup& setup) {
  quiet_at_the_end();
  auto ran = run(setup);
  if (ran) return exit_ok;
  say("error " + ran.error().message());
  return exit_environment;
}

}  // namespace

Result<MemoryUse> memory_use() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  if (!(statm >> all >> resident)) return Error{.code = Code::unsupported, .text = "/proc/self/statm cannot be read"};
  const struct mallinfo2 heap = ::mallinfo2();
  return MemoryUse{.resident_bytes = resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)),
                   .heap_bytes = heap.uordblks + heap.hblkhd};
}

void add_bench_worker(CLI::App& app, Context& context) {
  CLI::App* worker = app.add_subcommand("bench-worker", "A prefill process of `kvferry bench`")->group("");
  auto setup = std::make_shared<WorkerSetup>();  // lives in the callback, which CLI11 copies
  worker->add_option("--bootstrap", setup->bootstrap)->required();
  worker->add_option("--instance", setup->instance)->required();
  worker->add_flag_callback("--tcp", [setup] { setup->way = Way::tcp; });
  worker->add_option("--page-bytes", setup->page_bytes)->required();
  worker->add_option("--room-pages", setup->room_pages)->required();
  worker->add_option("--places", setup->places)->required();
  worker->add_option("--ballast-bytes", setup->ballast_bytes);
  on_run(worker, context, [setup] { return run_worker(*setup); });
}

}  // namespace kvferry::tools
