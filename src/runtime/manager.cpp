#include "runtime/manager.h"

#include <utility>

#include "base/limits_from.h"
#include "base/try.h"
#include "layout/check.h"
#include "net/auth.h"
#include "net/registration_json.h"
#include "runtime/local_address.h"
#include "runtime/mapped.h"

namespace kvferry::runtime {
namespace {

Result<void> check_place(const ManagerOptions& options) {
  const Parallel& p = options.parallel;
  const Place& at = options.place;
  if (at.tp >= p.tp || at.dp >= p.dp || at.pp >= p.pp || at.cp >= p.cp) {
    return Error{Code::invalid_argument, "place (dp " + std::to_string(at.dp) + ", pp " + std::to_string(at.pp) +
                                             ", tp " + std::to_string(at.tp) + ", cp " + std::to_string(at.cp) +
                                             ") is not inside of sizes (dp " + std::to_string(p.dp) + ", pp " +
                                             std::to_string(p.pp) + ", tp " + std::to_string(p.tp) + ", cp " +
                                             std::to_string(p.cp) + ")"};
  }
  return {};
}

}  // namespace

Manager::Manager(const ManagerOptions& options, const Settings& the_settings)
    : role(options.role),
      memory(options.memory),
      layers(layout::layers_of(layout::shape_of(options.memory, options.format, options.parallel))),
      settings(the_settings),
      exchange(limits_from(settings).rooms_max) {}

Result<std::shared_ptr<Manager>> Manager::create(ManagerOptions options) {
  if (!options.settings) {
    KVF_TRY(from_environment, Settings::from_environment());
    options.settings = std::move(from_environment);
  }
  KVF_CHECK(options.settings->check());
  KVF_CHECK(check_place(options));
  KVF_CHECK(layout::check_memory(options.memory));
  KVF_CHECK(check_mapped(options.memory));

  ControlOptions control;
  control.role = options.role;
  control.memory = options.memory;
  control.format = options.format;
  control.parallel = options.parallel;
  control.place = options.place;
  control.instance = options.instance.empty() ? to_hex(net::random_bits()) : options.instance;
  control.settings = *options.settings;
  KVF_CHECK(net::check_attributes(options.attributes));
  control.attributes = options.attributes;
  if (!options.bootstrap.empty()) {
    KVF_TRY(bootstrap, Address::parse(options.bootstrap));
    control.bootstrap = std::move(bootstrap);
  }
  if (options.role == Role::prefill) {
    KVF_TRY(host, local_host(*options.settings, control.bootstrap));
    control.listen = Address{std::move(host), options.port};
    KVF_TRY(announced, announced_host(control.listen.host, control.bootstrap));
    control.announce_host = std::move(announced);
  }
  std::shared_ptr<Manager> manager(new Manager(options, *options.settings));
  KVF_TRY(started, Control::start(std::move(control), manager->exchange));
  manager->control = std::move(started);
  return manager;
}

Result<void> Manager::usable() const {
  if (made_in_ != os::fork_generation()) {
    return Error{Code::closed, "this manager was made before the process was forked; make one in the child"};
  }
  return {};
}

void Manager::shut_down() {
  if (made_in_ != os::fork_generation()) {
    // Its threads are the parent's. What it holds here is given up, not ended.
    static_cast<void>(control.release());
    return;
  }
  control.reset();
}

Manager::~Manager() { shut_down(); }

}  // namespace kvferry::runtime
