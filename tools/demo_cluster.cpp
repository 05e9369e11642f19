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
  std::vector<std::string> common{"--seed", std::to_string(options.seed)};
  auto engine = [&](const std::string& name, const std::string& role, const std::string& bootstrap) {
    std::vector<std::string> arguments{"--role", role, "--instance", name};
    arguments.insert(arguments.end(), common.begin(), common.end());
    if (!bootstrap.empty()) arguments.insert(arguments.end(), {"--bootstrap", bootstrap});
    return std::make_unique<EngineProcess>(name, bootstrap, std::move(arguments), cluster->log_path(name));
  };
  cluster->alone_ = engine("alone", "both", "");
  KVF_CHECK(cluster->alone_->start());
  if (!options.transport.empty()) common.insert(common.end(), {"--transport", options.transport});
  if (options.shared) common.push_back("--shared");
  for (std::size_t i = 0; i < options.prefills; ++i) {
    KVF_TRY(bootstrap, cluster->add_bootstrap(i));
    cluster->engines_.push_back(engine(fmt::format("prefill-{}", i), "prefill", bootstrap));
  }
  for (std::size_t i = 0; i < options.decodes; ++i) {
    cluster->engines_.push_back(engine(fmt::format("decode-{}", i), "decode", ""));
  }
  for (auto& one : cluster->engines_) KVF_CHECK(one->start());
  return cluster;
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
