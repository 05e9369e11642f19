// What this machine can do at best between two processes, measured by plain system calls. Each function walks the pages
// of a Scatter once and answers the seconds that took, or the error of the call that failed. The caller owns all
// memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "bench/memory.h"
#include "kvferry/result.h"
#include "os/fd.h"

namespace kvferry::bench {

// One core copying inside one process.
double memcpy_seconds(const std::byte* source, std::byte* target, const Scatter& scatter);

// process_vm_readv out of another process, 1,024 pieces a call. `source` is an address there.
Result<double> vm_read_seconds(pid_t process, std::uint64_t source, std::byte* target, const Scatter& scatter);

// A loopback listener; the kernel picks the port.
struct Listener {
  os::Fd fd;
  std::uint16_t port = 0;
};
Result<Listener> listen_on_loopback();
Result<os::Fd> accept_stream(const Listener& listener);
Result<os::Fd> connect_to_loopback(std::uint16_t port);

// The writing half: connects `streams` streams, waits on each for one byte, then writes its share of the pages, 64 a
// writev. Uses threads where there are several streams.
Result<void> tcp_write(std::uint16_t port, unsigned streams, const std::byte* source, const Scatter& scatter);
// The reading half: accepts the streams, says go and reads every page straight into its place, one read loop a page,
// one thread a stream. Starts to count when it says go. At 4 KiB this is what a naive reader does.
Result<double> tcp_read_seconds(const Listener& listener, unsigned streams, std::byte* target, const Scatter& scatter);

// Answers every message of the epoll ping-pong until the other side closes.
Result<void> pong(std::uint16_t port);
// Round trips of one small message between two processes that wait in epoll_wait, in microseconds.
Result<std::vector<double>> ping_us(const os::Fd& stream, unsigned rounds);

}  // namespace kvferry::bench
