// What must always hold, the story of what happened, and the hash of the trace.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/events.h"
#include "sim/memory.h"
#include "sim/schedule.h"

namespace kvferry::sim {

class Process;
struct Request;

class Judge {
 public:
  Judge(const Schedule& schedule, bool telling) : schedule_(schedule), telling_(telling) {}

  // ---- The story: only kept where it was asked for; a line of request 0 belongs to all of them. ----
  bool telling() const { return telling_; }
  void tell(RequestId request, std::string text);
  std::string story() const;  // of the requests that the violation names
  void mix(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ull; }
  std::uint64_t hash() const { return hash_; }

  // The first violation ends the run.
  void violation(RequestId request, std::string text);
  bool violated() const { return !violation_.empty(); }
  const std::string& text() const { return violation_; }

  // ---- Which request a transfer belongs to. ----
  void drawn(TransferId transfer, RequestId request);
  RequestId request_of(TransferId transfer) const;

  // ---- Checked at every touch of a page by a mover. ----
  void on_read(const Process& process, std::uint32_t component, const std::vector<std::int32_t>& items,
               TransferId transfer);
  void on_write(const Process& process, std::uint32_t component, const std::vector<std::int32_t>& items,
                TransferId transfer);
  // ---- Checked at every change of a room. ----
  void on_state(const Process& process, RequestId request, Poll before, Poll after, const std::optional<Error>& error);
  // Every granted byte of a successful receiver is the one that its sender computed.
  void on_bytes(const Process& process, const Request& request, const char* when);

 private:
  void on_touch(const Process& process, std::uint32_t component, const std::vector<std::int32_t>& items,
                TransferId transfer, const char* what);

  struct Line {
    Instant at;
    RequestId request;
    std::string text;
  };
  const Schedule& schedule_;
  bool telling_;
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
  std::string violation_;
  std::vector<RequestId> involved_;
  std::vector<Line> lines_;
  std::map<TransferId, std::vector<RequestId>> requests_;  // one, unless ids are used again on purpose
};

}  // namespace kvferry::sim
