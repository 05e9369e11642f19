// kvferry doctor: what this machine offers, what would be picked and why, and what to do about what it lacks.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "kvferry/kvferry.h"
#include "tools/commands.h"
#include "tools/probes.h"
#include "tools/report.h"

namespace kvferry::tools {
namespace {

using State = Finding::State;
constexpr std::chrono::milliseconds server_limit{3000};

// A prefill rank is really made, so that what keeps it from listening is found here. It registers nowhere: a
// registration would take the place of a real rank.
void listen(const Settings& settings, Findings& out) {
  constexpr std::size_t item_bytes = 4096;
  std::vector<std::byte> keys(8 * item_bytes);
  std::vector<std::byte> values(keys.size());
  ManagerOptions options;
  options.format = {.dtype = "float32", .page_tokens = 1, .layers = 1, .kv_heads = 1, .head_dim = item_bytes / 4};
  for (auto* buffer : {&keys, &values}) {
    options.memory.kv.push_back({.base = buffer->data(), .length = buffer->size(), .item_bytes = item_bytes});
  }
  options.settings = settings;
  auto manager = KvManager::create(std::move(options));
  out.push_back({.area = "picked",
                 .name = "listening",
                 .state = manager ? State::good : State::problem,
                 .found = manager ? "a prefill rank could listen on " + manager->address() : manager.error().text,
                 .advice = manager ? "" : "name an address of this machine in KVFERRY_HOST"});
}

Finding announced(const Settings& settings, const std::optional<Address>& server) {
  Finding pick{.area = "picked", .name = "announced address", .state = State::good, .found = "", .advice = ""};
  if (!settings.host.empty()) {
    pick.found = settings.host + ", as KVFERRY_HOST says";
  } else if (!server) {
    pick.state = State::info;
    pick.found = "the one that routes to the bootstrap server; --bootstrap HOST:PORT shows which";
  } else if (auto source = route_source(*server)) {
    pick.found = *source + ": it routes to " + server->text();
  } else {
    pick.state = State::problem;
    pick.found = source.error().text;
    pick.advice = "check the name and the routes of this machine, or set KVFERRY_HOST";
  }
  return pick;
}

// The pick between two processes on this machine, in the order in which kvferry tries.
Finding same_host_pick(const Settings& settings, const Ways& ways) {
  Finding pick{.area = "picked", .name = "pairs on this machine", .state = State::good, .found = "", .advice = ""};
  bool same_host_works = ways.pidfd && (ways.process_vm_readv || ways.memfd);
  if (settings.transport == Transport::tcp) {
    pick.found = "tcp, as KVFERRY_TRANSPORT says";
  } else if (ways.pidfd && ways.process_vm_readv) {
    pick.found =
        "samehost: the receiver reads by process_vm_readv, or copies from memory that kvferry::SharedMemory allocated";
  } else if (same_host_works) {
    pick.found = "samehost where the memory is a kvferry::SharedMemory, else tcp: process_vm_readv is forbidden";
    pick.state = State::warning;
    pick.advice = "see process_vm_readv above";
  } else if (settings.transport == Transport::samehost) {
    pick.found = "nothing: KVFERRY_TRANSPORT is samehost, and this machine forbids it";
    pick.state = State::problem;
    pick.advice = "unset KVFERRY_TRANSPORT, or see the transports above";
  } else {
    pick.found = "tcp: this machine forbids the faster ways";
    pick.state = State::warning;
    pick.advice = "see process_vm_readv, memfd and pidfd above";
  }
  return pick;
}

Finding remote_pick(const Settings& settings, const Ways& ways) {
  Finding pick{.area = "picked", .name = "pairs on two machines", .state = State::good, .found = "tcp", .advice = ""};
  if (settings.transport == Transport::samehost) {
    pick.state = State::warning;
    pick.found = "nothing: KVFERRY_TRANSPORT is samehost";
    pick.advice = "unset KVFERRY_TRANSPORT where engines stand on several machines";
  } else if (!ways.tcp) {
    pick.state = State::problem;
    pick.found = "nothing: tcp does not work here";
    pick.advice = "see tcp above";
  }
  return pick;
}

void verdict(const Findings& findings, Report& report) {
  std::size_t warnings = 0;
  std::size_t problems = 0;
  report.hide_column("advice");
  for (const Finding& finding : findings) {
    report.row({{"area", finding.area},
                {"name", finding.name},
                {"state", state_name(finding.state)},
                {"found", finding.found},
                {"advice", finding.advice}});
    std::string line = fmt::format("{}: {}", finding.name, finding.found);
    if (!finding.advice.empty()) line += ". " + finding.advice;
    if (finding.state == State::problem) {
      report.fail(line);
      ++problems;
    } else if (finding.state == State::warning) {
      report.note("warning: " + line);
      ++warnings;
    }
  }
  report.figure("problems", problems);
  report.figure("warnings", warnings);
  if (problems > 0) report.note("Verdict: not ready, the problems are below.");
  if (problems == 0 && warnings > 0)
    report.note("Verdict: ready; the warnings cost speed or convenience, not correctness.");
  if (problems == 0 && warnings == 0) report.note("Verdict: ready, nothing to be done.");
}

int run(const Context& context, const std::string& server) {
  std::optional<Address> address;
  if (!server.empty()) {
    auto parsed = Address::parse(server);
    if (!parsed) {
      cannot_run(context, "--bootstrap: " + parsed.error().text);
      return exit_usage;
    }
    address = *parsed;
  }
  Report report("What this machine offers to kvferry");
  Findings findings;
  Ways ways = probe_transports("/", findings);  // forks, so it goes first
  auto settings = Settings::from_environment();
  if (!settings) {
    findings.push_back({.area = "setting",
                        .name = "environment",
                        .state = State::problem,
                        .found = settings.error().text,
                        .advice = "correct or unset the variable; the defaults are shown here"});
  }
  const Settings in_force = settings ? *settings : Settings{};
  probe_variables(findings);
  probe_addresses(in_force, findings);
  probe_devices("/", findings);
  probe_limits("/", findings);
  listen(in_force, findings);
  findings.push_back(announced(in_force, address));
  findings.push_back(same_host_pick(in_force, ways));
  findings.push_back(remote_pick(in_force, ways));
  if (address) probe_bootstrap(*address, server_limit, findings);
  for (const SettingInForce& setting : settings_in_force(in_force)) {
    report.row({{"setting", setting.name}, {"value", setting.value}, {"from", setting.source}});
  }
  verdict(findings, report);
  return report.finish(context);
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  CLI::App* command =
      add_command(app, context, "doctor", "Show what this machine offers, what would be picked and why",
                  "Every way of moving bytes is really tried. Each problem comes with what to do about it; the exit\n"
                  "code is 1 while there is one.\n\n"
                  "Example:\n"
                  "  kvferry doctor\n"
                  "  kvferry doctor --bootstrap 10.0.0.5:8998    is that server there, and who has registered?");
  auto server = std::make_shared<std::string>();  // lives in the callback, which CLI11 copies
  command->add_option("--bootstrap", *server, "Also ask this bootstrap server, HOST:PORT");
  on_run(command, context, [&context, server] { return run(context, *server); });
}

}  // namespace kvferry::tools
