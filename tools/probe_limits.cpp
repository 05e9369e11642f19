#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <charconv>

#include "tools/probes.h"
#include "tools/read_file.h"

namespace kvferry::tools {
namespace {

using State = Finding::State;

constexpr rlim_t descriptors_wanted = 4096;  // a session takes two or three, a busy rank has hundreds of peers

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) bytes /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, units[unit]);
}

std::string limit_text(rlim_t value, bool in_bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return in_bytes ? bytes_text(static_cast<double>(value)) : fmt::to_string(value);
}

std::uint64_t leading_number(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void probe_rlimits(Findings& out) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  bool enough = limit.rlim_cur >= descriptors_wanted;
  out.push_back(
      {.area = "limits",
       .name = "open files",
       .state = enough ? State::good : State::warning,
       .found = fmt::format("{} (at most {})", limit_text(limit.rlim_cur, false), limit_text(limit.rlim_max, false)),
       .advice = enough ? "" : fmt::format("raise it for engines with many peers: ulimit -n {}", descriptors_wanted)});
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  out.push_back({.area = "limits",
                 .name = "locked memory",
                 .found = limit_text(limit.rlim_cur, true) + "; tcp and same-host transfers lock nothing",
                 .advice = ""});
}

void probe_rights(const std::string& root, Findings& out) {
  auto yama = read_file(root + "proc/sys/kernel/yama/ptrace_scope");
  out.push_back({.area = "limits",
                 .name = "yama ptrace_scope",
                 .state = !yama || *yama == "0" ? State::good : State::info,
                 .found = !yama          ? "absent: processes of one user may read each other"
                          : *yama == "0" ? "0: processes of one user may read each other"
                                         : *yama + ": a process may read its descendants only, or nothing",
                 .advice = ""});
  std::string status = read_file(root + "proc/self/status").value_or("");
  std::string mode = field_of(status, "Seccomp");
  std::uint64_t capabilities = 0;
  std::string effective = field_of(status, "CapEff");
  std::from_chars(effective.data(), effective.data() + effective.size(), capabilities, 16);
  constexpr unsigned sys_ptrace = 19;
  out.push_back({.area = "limits",
                 .name = "seccomp",
                 .found = mode == "0"   ? "off"
                          : mode == "1" ? "strict"
                          : mode == "2" ? "a filter is in force"
                                        : "unknown",
                 .advice = ""});
  out.push_back(
      {.area = "limits",
       .name = "CAP_SYS_PTRACE",
       .found = (capabilities >> sys_ptrace & 1) != 0 ? "held" : "not held; needed only where yama or seccomp forbids",
       .advice = ""});
}

void probe_memory(const std::string& root, Findings& out) {
  std::string memory = read_file(root + "proc/meminfo").value_or("");
  auto kib = [&](const char* name) { return static_cast<double>(leading_number(field_of(memory, name))) * 1024; };
  std::string group = read_file(root + "sys/fs/cgroup/memory.max").value_or("max");
  std::string bound =
      group == "max" ? "" : ", this group may use " + bytes_text(static_cast<double>(leading_number(group)));
  out.push_back(
      {.area = "machine",
       .name = "memory",
       .found = fmt::format("{}, {} available{}", bytes_text(kib("MemTotal")), bytes_text(kib("MemAvailable")), bound),
       .advice = ""});
  struct statvfs shm {};
  bool there = ::statvfs((root + "dev/shm").c_str(), &shm) == 0;
  double size = static_cast<double>(shm.f_blocks) * static_cast<double>(shm.f_frsize);
  out.push_back({.area = "machine",
                 .name = "/dev/shm",
                 .found = (there ? bytes_text(size) : std::string("absent")) + "; not used, shared regions are memfds",
                 .advice = ""});
  std::uint64_t pages = leading_number(field_of(memory, "HugePages_Total"));
  std::string transparent = read_file(root + "sys/kernel/mm/transparent_hugepage/enabled").value_or("absent");
  out.push_back(
      {.area = "machine",
       .name = "huge pages",
       .found = fmt::format("{} of {} reserved, transparent: {}", pages, bytes_text(kib("Hugepagesize")), transparent),
       .advice = ""});
}

void probe_cores(const std::string& root, Findings& out) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  std::string quota = read_file(root + "sys/fs/cgroup/cpu.max").value_or("max");
  std::string bound;
  if (!quota.starts_with("max")) {
    std::uint64_t period = leading_number(quota.substr(quota.find(' ') + 1));
    if (period > 0) bound = fmt::format(", this group may use {:.1f}", double(leading_number(quota)) / double(period));
  }
  out.push_back(
      {.area = "machine",
       .name = "cores",
       .state = cores >= 2 ? State::good : State::warning,
       .found = fmt::to_string(cores) + bound,
       .advice = cores >= 2 ? "" : "an engine and its data threads share one core: transfers will slow it down"});
  utsname system{};
  ::uname(&system);
  out.push_back({.area = "machine",
                 .name = "kernel",
                 .found = fmt::format("{} {} {}", system.sysname, system.release, system.machine),
                 .advice = ""});
}

}  // namespace

void probe_limits(const std::string& root, Findings& out) {
  probe_rlimits(out);
  probe_rights(root, out);
  probe_memory(root, out);
  probe_cores(root, out);
}

}  // namespace kvferry::tools
