#include "engine/engine_main.h"

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "engine/engine.h"

namespace kvferry::engine {

int engine_main(int argc, char** argv) {
  CLI::App app("An example engine: a small transformer whose prefill and decode halves are joined by kvferry.");
  EngineOptions options;
  std::string role = "both";
  std::string transport;
  app.add_option("--role", role, "which half this process is")->check(CLI::IsMember({"prefill", "decode", "both"}));
  app.add_option("--bootstrap", options.bootstrap, "prefill: bootstrap server to register with, host:port");
  app.add_option("--instance", options.instance, "name of this instance; random where not given");
  app.add_option("--seed", options.seed, "seed of the weights: the same on all sides");
  app.add_option("--pages", options.pages, "pages of the KV cache")->check(CLI::Range(1U, 1U << 20U));
  app.add_option("--chunk-tokens", options.chunk_tokens, "tokens of a prompt computed at once")
      ->check(CLI::Range(1U, 1U << 16U));
  app.add_option("--transport", transport, "how the cache moves; KVFERRY_TRANSPORT where not given")
      ->check(CLI::IsMember({"auto", "tcp", "samehost"}));
  app.add_flag("--shared,!--no-shared", options.shared, "KV memory that processes of this host can map");
  app.add_option("--tp", options.split.tp, "tensor-parallel ranks of a group, a process each")
      ->check(CLI::Range(1, 64));
  app.add_option("--pp", options.split.pp, "pipeline stages")->check(CLI::Range(1, 64));
  app.add_option("--dp", options.split.dp, "data-parallel groups")->check(CLI::Range(1, 64));
  app.add_flag("--mla", options.model.mla, "one latent head instead of grouped heads");
  app.add_flag("--layer-wise", options.layer_wise, "prefill: send layers while later ones are computed");
  app.add_option("--page-tokens", options.model.page_tokens, "tokens of a page")->check(CLI::Range(1U, 1024U));
  app.footer("Orders are lines of JSON on stdin, answers come as lines on stdout; see examples/engine/README.md.");
  CLI11_PARSE(app, argc, argv);
  if (options.model.mla) options.model.kv_heads = 1;
  options.part = role == "prefill" ? Part::prefill : role == "decode" ? Part::decode : Part::both;
  if (!transport.empty()) {
    static const std::map<std::string, Transport> names{
        {"auto", Transport::automatic}, {"tcp", Transport::tcp}, {"samehost", Transport::samehost}};
    options.transport = names.at(transport);
  }
  return run_engine(options);
}

}  // namespace kvferry::engine
