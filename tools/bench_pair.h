// Two processes to measure between: the command itself decodes and leads, a forked child prefills and does as it is
// told. They speak over a channel between measurements, never during one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "bench/child.h"
#include "kvferry/kvferry.h"

namespace kvferry::tools {

// A way for bytes to go: which transport is forced and what memory the sender's region is.
enum class Way : std::uint8_t { tcp, samehost, shared };
const char* way_name(Way way);

enum class Ask : std::uint32_t {
  open,        // a manager: way, page_bytes, bootstrap
  close,       // the manager
  send_room,   // copy: open room, init, send every page in chunks; answered before any grant
  end_room,    // copy: wait for its end
  tcp_write,   // raw: the writing half, to port
  pong,        // raw: answer pings on port; answered when the other side closes
  stream,      // handoff: `rooms` rooms from `room` on, `window` of them in flight
  arm_rooms,   // handoff: open, init and send `rooms` rooms from `room` on, wait for none
  drain_rooms  // handoff: wait until the armed rooms are over
};

struct BenchCommand {
  Ask ask = Ask::close;
  Way way = Way::tcp;
  std::uint16_t port = 0;
  std::uint32_t streams = 1;
  std::uint64_t page_bytes = 0;
  std::uint64_t seed = 0;  // of the order of pages
  std::uint64_t room = 0;
  std::uint64_t rooms = 0;
  std::uint64_t window = 0;
  std::array<char, 256> bootstrap{};
  void set_bootstrap(std::string_view address) { address.copy(bootstrap.data(), bootstrap.size() - 1); }
};

struct BenchAnswer {
  bool ok = true;
  double cpu_seconds = 0;     // what the child used since it took the command
  std::uint64_t address = 0;  // open: where the sender's memory starts
  std::array<char, 600> error{};
};

// Child: does what is asked until the channel closes; answers what main should return.
int serve(const bench::Channel& channel, const std::function<Result<BenchAnswer>(const BenchCommand&)>& handle);

// For processes of a bench: a peer is taken down on purpose, which is no reason to warn that it is lost.
void quiet_at_the_end();

// Leader: asks and waits for the answer, or in two halves, to work meanwhile.
Result<void> tell(const bench::Child& child, const BenchCommand& command);
Result<BenchAnswer> hear(const bench::Child& child);
Result<BenchAnswer> ask(const bench::Child& child, const BenchCommand& command);

// A manager with one region of pages; `bootstrap` is for prefill alone. The options are for who changes some of them.
Result<ManagerOptions> bench_manager_options(Role role, std::span<std::byte> memory, std::size_t page_bytes, Way way,
                                             const std::string& bootstrap);
Result<KvManager> make_bench_manager(Role role, std::span<std::byte> memory, std::size_t page_bytes, Way way,
                                     const std::string& bootstrap);

// Waits on the manager's descriptor until one of its rooms changed; `timeout` after a minute of silence.
Result<void> wait_for_change(const KvManager& manager);
// Waits until the room is in `state` or beyond; its error where it failed.
Result<void> wait_for_state(KvManager& manager, const RoomHandle& room, Poll state);

}  // namespace kvferry::tools
