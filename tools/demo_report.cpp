#include "tools/demo_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/stats.h"

namespace kvferry::tools {
namespace {

using State = Outcome::State;

struct Tally {
  std::size_t requests = 0;
  std::size_t identical = 0;
  std::size_t wrong = 0;
  std::size_t failed = 0;
  std::size_t hung = 0;
  std::uint64_t bytes = 0;
  std::vector<double> handoff_us{};
  std::set<std::string> transports{};

  void add(const Outcome& outcome, bool same) {
    ++requests;
    if (outcome.state == State::hung) ++hung;
    if (outcome.state == State::failed) ++failed;
    if (outcome.state != State::done) return;
    ++(same ? identical : wrong);
    bytes += outcome.answer.bytes;
    handoff_us.push_back(outcome.answer.handoff_us);
    if (!outcome.answer.transport.empty()) transports.insert(outcome.answer.transport);
  }
  std::string transport() const { return fmt::format("{}", fmt::join(transports, ", ")); }
  // Bytes of all hand-offs over the time that all of them took: the rate that one of them sees.
  double gbps() const {
    double us = 0;
    for (double one : handoff_us) us += one;
    return us > 0 ? static_cast<double>(bytes) / us / 1000 : 0;
  }
};

bool same_answer(const DemoResult& result, std::size_t index) {
  return result.outcomes[index].answer.tokens == result.expected[index];
}

std::string engine_name(const DemoResult& result, std::optional<std::size_t> engine) {
  return engine ? result.engine_names[*engine] : std::string("-");
}

void add_pairs(const DemoResult& result, Report& report) {
  std::map<std::pair<std::string, std::string>, Tally> pairs;
  for (std::size_t i = 0; i < result.requests.size(); ++i) {
    const DemoRequest& request = result.requests[i];
    auto names = std::pair(engine_name(result, request.prefill), engine_name(result, request.decode));
    pairs[names].add(result.outcomes[i], same_answer(result, i));
  }
  for (const auto& [names, tally] : pairs) {
    report.row({{"prefill", names.first},
                {"decode", names.second},
                {"requests", tally.requests},
                {"identical", tally.identical},
                {"wrong", tally.wrong},
                {"failed", tally.failed},
                {"hung", tally.hung},
                {"bytes", tally.bytes},
                {"handoff_us_p50", percentile(tally.handoff_us, 50)},
                {"handoff_us_p99", percentile(tally.handoff_us, 99)},
                {"transport", tally.transport()}});
  }
}

const char* state_text(const Outcome& outcome, bool same) {
  if (outcome.state == State::hung) return "hung";
  if (outcome.state == State::failed) return outcome.retried ? "retried, failed again" : "failed";
  if (!same) return outcome.retried ? "retried, wrong" : "wrong";
  return outcome.retried ? "retried, identical" : "identical";
}

void add_notices(const DemoResult& result, Report& report) {
  for (const Notice& notice : result.notices) {
    Row row{{"request", notice.request}, {"noticed_by", notice.by}};
    if (result.killed) row.push_back({"ms_after_kill", notice.ms.value_or(-1)});
    row.push_back({"code", notice.code});
    row.push_back({"then", state_text(result.outcomes[notice.request], same_answer(result, notice.request))});
    row.push_back({"reason", notice.error});
    report.row(std::move(row));
  }
}

void judge_kill(const DemoResult& result, Report& report) {
  std::size_t elsewhere = 0;
  std::size_t identical_elsewhere = 0;
  std::size_t retried = 0;
  std::size_t without_reason = 0;
  for (std::size_t i = 0; i < result.outcomes.size(); ++i) {
    const Outcome& outcome = result.outcomes[i];
    bool identical = outcome.state == State::done && same_answer(result, i);
    if (outcome.retried) ++retried;
    if (outcome.state == State::failed && outcome.answer.error.empty()) ++without_reason;
    if (outcome.needed_killed) continue;
    ++elsewhere;
    if (identical) ++identical_elsewhere;
  }
  report.figure("killed_requests", result.outcomes.size() - elsewhere, "were with the killed engine");
  report.figure("retried", retried);
  report.figure("identical_elsewhere", identical_elsewhere, fmt::format("of {} that did not need it", elsewhere));
  if (without_reason > 0) report.fail(fmt::format("{} requests failed without a reason", without_reason));
  if (identical_elsewhere != elsewhere) {
    report.fail(fmt::format("{} requests that did not need the killed engine were not answered identically",
                            elsewhere - identical_elsewhere));
  }
  if (!result.killed) {
    report.fail("no engine was killed: too few requests for one to be under way halfway");
    return;
  }
  const KillRecord& killed = *result.killed;
  report.note(fmt::format("{} (process {}) {} after {} answers; {} requests needed it.",
                          result.engine_names[killed.engine], killed.pid, killed.how, killed.answers, killed.requests));
  if (killed.ready_ms) {
    report.note(
        fmt::format("Its successor was ready {:.0f} ms after the kill and took part at once.", *killed.ready_ms));
  } else {
    report.fail("the killed engine did not come back");
  }
}

}  // namespace

void judge(const DemoResult& result, Report& report) {
  Tally all;
  for (std::size_t i = 0; i < result.outcomes.size(); ++i) all.add(result.outcomes[i], same_answer(result, i));
  add_pairs(result, report);
  add_notices(result, report);
  report.figure("requests", all.requests);
  report.figure("identical", all.identical, "answers like those of one process");
  report.figure("wrong", all.wrong);
  report.figure("failed", all.failed);
  report.figure("hung", all.hung + result.prefill_open);
  report.figure("bytes", all.bytes);
  report.figure("gbps", all.gbps(), "GB/s while a hand-off is under way");
  report.figure("handoff_us_p50", percentile(all.handoff_us, 50), "us");
  report.figure("handoff_us_p99", percentile(all.handoff_us, 99), "us");
  if (result.kill_wanted) judge_kill(result, report);
  if (!all.transports.empty()) report.note("Transport: " + all.transport());
  if (result.repeated && result.outcomes[*result.repeated].state == State::done) {
    report.note(fmt::format("Request {} repeats a prompt that decode holds already: {} bytes were handed over for it.",
                            *result.repeated, result.outcomes[*result.repeated].answer.bytes));
  }
  if (all.wrong > 0) report.fail(fmt::format("{} answers differ from those of one process", all.wrong));
  if (all.hung > 0) report.fail(fmt::format("{} requests never ended", all.hung));
  if (result.prefill_open > 0) {
    report.fail(fmt::format("{} requests that ended for decode never ended for prefill", result.prefill_open));
  }
  if (!result.kill_wanted && all.failed > 0) report.fail(fmt::format("{} requests failed", all.failed));
  for (const std::string& loss : result.losses) report.fail(loss);
}

}  // namespace kvferry::tools
