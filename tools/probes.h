// What `kvferry doctor` asks the machine. Each probe tries the thing itself where that is possible and reads the
// kernel's files only to say why it failed. `root` is "/" but in tests.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/address.h"
#include "kvferry/settings.h"
#include "tools/finding.h"

namespace kvferry::tools {

// What the transports need, as it was really tried.
struct Ways {
  bool tcp = false;               // bytes went through a loopback connection
  bool process_vm_readv = false;  // a process read the memory of another that is not its child
  bool memfd = false;             // a memfd was allocated, mapped and sealed
  bool pidfd = false;             // a pidfd told of a process's end
};

// Forks, so it runs before the caller starts threads.
Ways probe_transports(const std::string& root, Findings& out);
void probe_addresses(const Settings& settings, Findings& out);
void probe_devices(const std::string& root, Findings& out);
void probe_limits(const std::string& root, Findings& out);

struct SettingInForce {
  std::string name;    // "KVFERRY_PING_INTERVAL"
  std::string value;   // the token's is never shown
  std::string source;  // "default", "environment" or the name of SGLang's variable
};
std::vector<SettingInForce> settings_in_force(const Settings& settings);
// Every KVFERRY_ variable that is set but no setting's name: most likely misspelt.
void probe_variables(Findings& out);
// The address of ours that packets to the server would carry; none is sent. `unreachable` in words.
Result<std::string> route_source(const Address& server);
// Asks the server for its health and its instance's sizes.
void probe_bootstrap(const Address& server, std::chrono::milliseconds limit, Findings& out);

}  // namespace kvferry::tools
