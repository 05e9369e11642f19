#include "tools/demo_cluster.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>

#include <cerrno>
#include <filesystem>

#include "base/try.h"

namespace kvferry::tools {
namespace {
constexpr std::chrono::milliseconds bootstrap_limit{10'000};
}

Result<std::unique_ptr<Cluster>> Cluster::start(const ClusterOptions& options) {
  std::unique_ptr<Cluster> cluster(new Cluster());
  std::string folder = (std::filesystem::temp_directory_path() / "kvferry-demo-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return Error{Code::unsupported, fmt::format("cannot make a folder for logs ({}): {}", folder, ::strerror(errno))};
  }
  cluster->logs_ = folder;
  cluster->options_ = options;
  const auto side = [&](const char* role, const Split& split) {
    std::vector<std::string> arguments{"--role", role};
    const auto add = [&](const char* name, std::uint32_t value) {
      arguments.insert(arguments.end(), {name, std::to_string(value)});
    };
    add("--tp", split.tp);
    add("--pp", split.pp);
    add("--dp", split.dp);
    add("--page-tokens", split.page_tokens);
    add("--chunk-tokens", options.chunk_tokens);
    if (options.layer_wise) arguments.emplace_back("--layer-wise");
    if (!options.transport.empty()) arguments.insert(arguments.end(), {"--transport", options.transport});
    if (options.shared) arguments.emplace_back("--shared");
    return arguments;
  };
  for (std::size_t i = 0; i < options.prefills; ++i) {
    KVF_TRY(bootstrap, cluster->add_bootstrap(i));
    auto arguments = side("prefill", options.prefill);
    arguments.insert(arguments.end(), {"--bootstrap", bootstrap});
    cluster->engines_.push_back(cluster->make(fmt::format("prefill-{}", i), std::move(arguments), bootstrap));
  }
  for (std::size_t i = 0; i < options.decodes; ++i) {
    cluster->engines_.push_back(cluster->make(fmt::format("decode-{}", i), side("decode", options.decode), ""));
  }
  for (auto& one : cluster->engines_) KVF_CHECK(one->start());
  return cluster;
}

std::unique_ptr<EngineProcess> Cluster::make(const std::string& name, std::vector<std::string> arguments,
                                             const std::string& bootstrap) const {
  arguments.insert(arguments.end(), {"--instance", name, "--seed", std::to_string(options_.seed)});
  if (options_.mla) arguments.emplace_back("--mla");
  return std::make_unique<EngineProcess>(name, bootstrap, std::move(arguments), log_path(name));
}

Result<EngineProcess*> Cluster::start_alone() {
  alone_ = make("alone", {"--role", "both"}, "");
  KVF_CHECK(alone_->start());
  return alone_.get();
}

Result<std::string> Cluster::add_bootstrap(std::size_t index) {
  constexpr std::string_view greeting = "listening on ";
  KVF_TRY(child, Child::start({.arguments = {"bootstrap", "--host", "127.0.0.1", "--port", "0"},
                               .stderr_path = log_path(fmt::format("bootstrap-{}", index))}));
  auto line = child.read_line(bootstrap_limit);
  if (!line) return Error{line.error().code, "the bootstrap server did not start: " + line.error().text};
  if (!line->starts_with(greeting)) return Error{Code::protocol, "the bootstrap server said: " + *line};
  bootstraps_.push_back(std::move(child));
  return line->substr(greeting.size());
}

Cluster::~Cluster() {
  std::error_code ignored;
  if (!keep_logs_ && !logs_.empty()) std::filesystem::remove_all(logs_, ignored);
}

std::vector<EngineProcess*> Cluster::engines() {
  std::vector<EngineProcess*> out;
  for (auto& engine : engines_) out.push_back(engine.get());
  return out;
}

std::vector<std::string> Cluster::quit(std::chrono::milliseconds limit) {
  std::vector<std::string> late;
  for (auto& engine : engines_) {
    if (engine->running() && !engine->quit(limit)) late.push_back(engine->name());
  }
  return late;
}

const std::string& Cluster::keep_logs() {
  keep_logs_ = true;
  return logs_;
}

}  // namespace kvferry::tools
