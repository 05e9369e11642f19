#include "tools/bench_prefill.h"

#include <fmt/format.h>

#include <sstream>

#include "base/try.h"

namespace kvferry::tools {

namespace {
constexpr Child::Millis silence_max{60'000};
}

Result<BenchPrefill> BenchPrefill::make(WorkerSetup setup, Environment environment) {
  KVF_TRY(server, BootstrapServer::start({}));
  setup.bootstrap = server.address();
  return BenchPrefill(std::move(setup), std::move(environment), std::move(server));
}

Result<void> BenchPrefill::launch() {
  ChildOptions options;
  options.arguments = {"bench-worker",
                       "--bootstrap=" + setup_.bootstrap,
                       "--instance=" + setup_.instance,
                       fmt::format("--page-bytes={}", setup_.page_bytes),
                       fmt::format("--room-pages={}", setup_.room_pages),
                       fmt::format("--places={}", setup_.places),
                       fmt::format("--ballast-bytes={}", setup_.ballast_bytes)};
  if (setup_.way == Way::tcp) options.arguments.push_back("--tcp");
  options.environment = environment_;
  process_.reset();  // the one before is gone before the next begins
  KVF_TRY(process, Child::start(options));
  process_.emplace(std::move(process));
  return {};
}

Result<double> BenchPrefill::registered() {
  KVF_TRY(numbers, hear());
  if (numbers.size() != 1) return Error{.code = Code::protocol, .text = "the prefill process did not say when"};
  return static_cast<double>(numbers[0]) / 1e9;
}

Result<void> BenchPrefill::start() {
  KVF_CHECK(launch());
  KVF_CHECK(registered());
  return {};
}

Result<void> BenchPrefill::tell(const std::string& order) { return process_->write_line(order); }

Result<BenchPrefill::Numbers> BenchPrefill::hear() {
  KVF_TRY(line, process_->read_line(silence_max));
  std::istringstream words(line);
  std::string first;
  words >> first;
  if (first != "ok") return Error{.text = "the prefill process: " + line};
  Numbers numbers;
  for (std::uint64_t number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

Result<BenchPrefill::Numbers> BenchPrefill::ask(const std::string& order) {
  KVF_CHECK(tell(order));
  return hear();
}

}  // namespace kvferry::tools
