// The prefill processes of `bench failover` and `bench memory`: real ones (`kvferry bench-worker`), so that they can be
// killed, stopped and started again. They are told what to do over stdin, a line an order; each answers one line, `ok`
// and numbers, or `error` and words.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench_pair.h"
#include "tools/context.h"

namespace kvferry::tools {

struct WorkerSetup {
  std::string bootstrap;
  std::string instance;
  Way way = Way::samehost;
  std::size_t page_bytes = 0;
  std::size_t room_pages = 0;       // of every room
  std::size_t places = 0;           // rooms that fit its memory
  std::uint64_t ballast_bytes = 0;  // private memory to touch and keep
};

// The orders. The first line comes by itself, once decode can find the process: the last moment at which it could not.
//   hold FIRST COUNT SENT           opens rooms and sends SENT pages of every second one
//   granted                         answered when all held rooms are granted
//   stall                           from now on the kernel does not serve the memory of any room
//   push                            sends what is left of the held rooms
//   drop                            answered when all held rooms are over: succeeded, failed
//   loop FIRST SLOTS ROOMS FAULTS   starts a closed loop; with faults some rooms are aborted, see fault_of
//   join                            answered when the loop has had all its rooms: succeeded, failed
//   leave                           ends the loop where it is: succeeded, failed
//   fork                            leaves a child behind that sleeps until stdin closes: its process id
//   size                            resident bytes, heap bytes
void add_bench_worker(CLI::App& app, Context& context);

// Which side gives a room up, where a loop is to have failures: two of a hundred rooms.
enum class LoopFault : std::uint8_t { none, sender_aborts, receiver_aborts };
inline LoopFault fault_of(std::uint64_t room) {
  if (room % 100 == 33) return LoopFault::sender_aborts;
  return room % 100 == 66 ? LoopFault::receiver_aborts : LoopFault::none;
}

struct MemoryUse {
  std::uint64_t resident_bytes = 0;  // of the whole process, /proc/self/statm
  std::uint64_t heap_bytes = 0;      // handed out by malloc, all arenas
};
Result<MemoryUse> memory_use();

}  // namespace kvferry::tools
