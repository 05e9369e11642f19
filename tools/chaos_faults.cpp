#include "tools/chaos_faults.h"

#include <algorithm>
#include <array>
#include <random>

namespace kvferry::tools {

namespace {

constexpr std::array<const char*, 6> names{"kill", "stop", "pause", "cut", "delay", "bootstrap"};
constexpr double first_at_s = 1;

class Draw {
 public:
  explicit Draw(const FaultPlan& plan) : plan_(plan), random_(plan.seed), calm_from_(plan.prefill + plan.decode) {}

  std::vector<Fault> all() {
    std::vector<Fault> faults;
    if (plan_.kinds.empty()) return faults;
    std::exponential_distribution<double> gap(1 / plan_.every_s);
    for (double at = first_at_s; at < plan_.seconds; at += gap(random_)) {
      if (auto fault = one(at)) faults.push_back(*fault);
    }
    return faults;
  }

 private:
  std::optional<Fault> one(double at) {
    const FaultKind kind = plan_.kinds[below(plan_.kinds.size())];
    Fault fault{.at_s = at, .kind = kind, .worker = 0, .lasts_s = duration(kind)};
    std::vector<std::size_t> candidates;
    for (std::size_t worker = 0; worker < calm_from_.size(); ++worker) {
      if (may_have(worker, kind, at)) candidates.push_back(worker);
    }
    // Drawn before it is known whether it is of use, so that one fault less does not change all that come after it.
    const std::size_t choice = below(1'000'003);
    if (candidates.empty() || at + fault.lasts_s + plan_.settle_s > plan_.seconds) return {};
    fault.worker = candidates[choice % candidates.size()];
    calm_from_[fault.worker] = at + fault.lasts_s + plan_.settle_s;
    return fault;
  }

  bool may_have(std::size_t worker, FaultKind kind, double at) const {
    const bool is_prefill = worker < plan_.prefill;
    if (kind == FaultKind::bootstrap && !is_prefill) return false;
    if (kind == FaultKind::kill && (worker == 0 || worker == plan_.prefill)) return false;
    if (calm_from_[worker] > at) return false;
    const auto first = calm_from_.begin() + static_cast<std::ptrdiff_t>(is_prefill ? 0 : plan_.prefill);
    const std::size_t count = is_prefill ? plan_.prefill : plan_.decode;
    const auto troubled = std::count_if(first, first + static_cast<std::ptrdiff_t>(count),
                                        [at](double calm_from) { return calm_from > at; });
    return static_cast<std::size_t>(troubled) + 1 <= std::max<std::size_t>(1, count / 2);
  }

  double duration(FaultKind kind) {
    switch (kind) {
      case FaultKind::kill:
        return between(0.1, 1.5);
      case FaultKind::stop:
      case FaultKind::cut:
        return plan_.silence_max_s * between(1.5, 3);
      case FaultKind::pause:
        return plan_.silence_max_s * between(0.05, 0.4);
      case FaultKind::delay:
        return between(1, 4);
      case FaultKind::bootstrap:
        return between(0.2, 2);
    }
    return 0;
  }

  double between(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }

  const FaultPlan& plan_;
  std::mt19937_64 random_;
  std::vector<double> calm_from_;  // a worker each
};

}  // namespace

const char* fault_name(FaultKind kind) { return names[static_cast<std::size_t>(kind)]; }

std::optional<FaultKind> fault_named(std::string_view name) {
  const auto at = std::ranges::find(names, name);
  if (at == names.end()) return {};
  return static_cast<FaultKind>(at - names.begin());
}

std::string fault_names() {
  std::string all;
  for (const char* name : names) all += (all.empty() ? "" : ",") + std::string(name);
  return all;
}

std::vector<Fault> draw_faults(const FaultPlan& plan) { return Draw(plan).all(); }

}  // namespace kvferry::tools
