// kvferry bootstrap: the server that tells decode ranks where prefill ranks listen, alone.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <iostream>
#include <memory>

#include "kvferry/kvferry.h"
#include "os/fd.h"
#include "tools/commands.h"
#include "tools/report.h"

namespace kvferry::tools {
namespace {

struct Options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8998;
};

int run(const Context& context, const Options& options) {
  // Blocked before the server's threads start, so that the signal waits for the descriptor and for nobody else.
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGINT);
  ::sigaddset(&ends, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  os::Fd signals(::signalfd(-1, &ends, SFD_CLOEXEC));

  auto server = BootstrapServer::start({.host = options.host, .port = options.port, .settings = {}});
  if (!server) return cannot_run(context, server.error().message());
  if (context.json) {
    Report report("");
    report.row({{"address", server->address()}});
    std::cout << report.json() << std::endl;
  } else {
    std::cout << "listening on " << server->address() << std::endl;
  }
  signalfd_siginfo received{};
  while (::read(signals.get(), &received, sizeof received) < 0 && errno == EINTR) {
  }
  return exit_ok;
}

}  // namespace

void add_bootstrap(CLI::App& app, Context& context) {
  CLI::App* command =
      add_command(app, context, "bootstrap", "Run the bootstrap server alone, until Ctrl-C or SIGTERM",
                  "Prefill engines register here and decode engines ask here; it holds no request and may\n"
                  "be restarted at any time. The first line of stdout says where it listens.\n\n"
                  "Example:\n"
                  "  kvferry bootstrap --host 10.0.0.5 --port 8998 &\n"
                  "  curl http://10.0.0.5:8998/health\n\n"
                  "An address that is reachable from outside needs KVFERRY_TOKEN (or\n"
                  "KVFERRY_ALLOW_PUBLIC=1), because whoever registers may draw KV.");
  auto options = std::make_shared<Options>();  // lives in the callback, which CLI11 copies
  command->add_option("--host", options->host, "Address to listen on")->capture_default_str();
  command->add_option("--port", options->port, "Port; 0 lets the kernel pick")->capture_default_str();
  on_run(command, context, [&context, options] { return run(context, *options); });
}

}  // namespace kvferry::tools
