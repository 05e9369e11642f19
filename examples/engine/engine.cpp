#include "engine/engine.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "engine/front.h"
#include "engine/group.h"

namespace kvferry::engine {
namespace {

constexpr std::uint64_t shuffle_salt = 0x6b76;  // pages are scattered in another order than weights are drawn

}  // namespace

Parts::Parts(const EngineOptions& the_options, std::unique_ptr<PrivateMemory> own, std::optional<SharedMemory> shared,
             std::span<std::byte> storage)
    : options(the_options),
      model(options.model, options.seed),
      private_memory(std::move(own)),
      shared_memory(std::move(shared)),
      cache(options.model.cache_shape(options.pages, options.aux_items, options.split, options.place), storage),
      pages(options.pages, options.seed ^ shuffle_salt),
      aux(options.aux_items) {}

Result<std::unique_ptr<Parts>> Parts::make(const EngineOptions& options) {
  if (auto fits = options.model.check(); !fits) return fits.error();
  if (auto fits = options.model.check_split(options.split); !fits) return fits.error();
  const std::size_t bytes =
      options.model.cache_shape(options.pages, options.aux_items, options.split, options.place).total_bytes();
  if (!options.shared) {
    auto own = std::make_unique<PrivateMemory>(bytes);
    const auto storage = own->bytes();
    return std::unique_ptr<Parts>(new Parts(options, std::move(own), std::nullopt, storage));
  }
  auto shared = SharedMemory::allocate(bytes);
  if (!shared) return shared.error();
  const std::span<std::byte> storage(shared->data(), shared->size());
  return std::unique_ptr<Parts>(new Parts(options, nullptr, std::move(*shared), storage));
}

Result<KvManager> Parts::make_manager(Role role) {
  auto settings = Settings::from_environment();
  if (!settings) return settings.error();
  if (options.transport) settings->transport = *options.transport;
  ManagerOptions manager;
  manager.role = role;
  manager.memory = cache.regions();
  manager.format = options.model.format();
  manager.parallel = options.split;
  manager.place = options.place;
  manager.instance = options.instance;
  manager.settings = std::move(*settings);
  if (role == Role::prefill) manager.bootstrap = options.bootstrap;
  return KvManager::create(std::move(manager));
}

Result<void> check_request(const Parts& parts, const Request& request) {
  auto possible = check_request(parts.options.model, request.prompt, request.max_tokens, parts.options.pages);
  if (!possible) possible.error().room = request.room;
  return possible;
}

namespace {

// Answers one request after the other: the reference that hand-offs are held against.
class Alone final : public Worker {
 public:
  explicit Alone(Parts& parts) : parts_(parts) {}
  void take(Request request) override {
    if (auto possible = check_request(parts_, request); !possible) {
      return say(failed_line(request.id, possible.error()));
    }
    say(done_line({request.id, answer_alone(parts_.model, request.prompt, request.max_tokens)}));
  }
  void abort(std::uint64_t) override {}
  void on_rooms_changed() override {}
  bool step() override { return false; }
  int event_fd() const override { return -1; }

 private:
  Parts& parts_;
};

// False once the engine shall end.
bool obey(Worker& worker, const std::string& line) {
  auto order = parse_order(line);
  if (!order) {
    say(failed_line(0, order.error()));
  } else if (auto* request = std::get_if<Request>(&*order)) {
    worker.take(std::move(*request));
  } else if (const auto* abort = std::get_if<AbortRequest>(&*order)) {
    worker.abort(abort->id);
  } else {
    return false;
  }
  return true;
}

int serve(Worker& worker) {
  say(ready_line(::getpid(), worker.address()));
  LineReader orders(STDIN_FILENO);
  bool busy = false;
  while (true) {
    pollfd watched[] = {{STDIN_FILENO, POLLIN, 0}, {worker.event_fd(), POLLIN, 0}};
    ::poll(watched, 2, busy ? 0 : -1);
    if (watched[0].revents != 0 && !orders.fill()) return 0;
    while (const auto line = orders.next()) {
      if (!obey(worker, *line)) return 0;
    }
    if (watched[1].revents != 0) worker.on_rooms_changed();
    busy = worker.step();
  }
}

int complain(const Error& error) {
  std::fprintf(stderr, "kvferry-engine: %s\n", error.message().c_str());
  return 3;
}

int run_group(const EngineOptions& options) {
  if (options.part == Part::both) {
    auto parts = Parts::make(options);
    if (!parts) return complain(parts.error());
    return serve(*make_alone(**parts));
  }
  auto group = Group::start(options);
  if (!group) return complain(group.error());
  return serve(*(options.part == Part::prefill ? make_prefill(**group) : make_decode(**group)));
}

}  // namespace

std::unique_ptr<Worker> make_alone(Parts& parts) { return std::make_unique<Alone>(parts); }

int run_engine(const EngineOptions& options) {
  if (options.split.dp == 1 || options.part == Part::both) return run_group(options);
  Front front;
  if (const auto status = front.start(options, run_group)) return *status;
  return front.run();
}

}  // namespace kvferry::engine
