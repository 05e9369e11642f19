// The shared inside of KvManager and of its room handles.
#pragma once

#include <memory>
#include <string>

#include "kvferry/kvferry.h"
#include "os/fork.h"
#include "runtime/control.h"
#include "runtime/exchange.h"

namespace kvferry::runtime {

class Manager {
 public:
  static Result<std::shared_ptr<Manager>> create(ManagerOptions options);
  ~Manager();

  // `closed` in a forked child or after shut_down().
  Result<void> usable() const;
  void shut_down();

  const Role role;
  const Memory memory;
  const layout::Range layers;  // of the model, that the memory holds
  const Settings settings;
  Exchange exchange;
  std::unique_ptr<Control> control;

 private:
  Manager(const ManagerOptions& options, const Settings& the_settings);
  const unsigned made_in_ = os::fork_generation();
};

}  // namespace kvferry::runtime
