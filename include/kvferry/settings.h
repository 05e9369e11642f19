// Every setting of kvferry. Each has a default that works, a field here and an environment variable KVFERRY_<NAME>.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kvferry/export.h"
#include "kvferry/result.h"

namespace kvferry {

enum class Transport : std::uint8_t { automatic, tcp, samehost };
// The end-to-end check: what the receiver holds is compared with what the sender held, before `success` is shown.
enum class Verify : std::uint8_t { off, crc32c };

struct KVFERRY_API Settings {
  using Millis = std::chrono::milliseconds;

  // Who may talk to whom.
  std::string host = {};      // KVFERRY_HOST: address to listen on and to announce; found by itself when empty
  std::string token = {};     // KVFERRY_TOKEN: shared secret proven both ways on registration, links and streams
  bool allow_public = false;  // KVFERRY_ALLOW_PUBLIC: accept public addresses without a token
  Transport transport = Transport::automatic;  // KVFERRY_TRANSPORT: auto, tcp or samehost
  Verify verify = Verify::off;                 // KVFERRY_VERIFY: off or crc32c; of decode managers, prefill follows

  // Deadlines, all on the monotonic clock.
  Millis bootstrap_timeout{300'000};  // KVFERRY_BOOTSTRAP_TIMEOUT: a sender that never got its grants
  Millis send_timeout{600'000};       // KVFERRY_SEND_TIMEOUT: no `send` after the grant
  Millis progress_timeout{300'000};   // KVFERRY_PROGRESS_TIMEOUT: no progress while transferring, either side
  Millis waiting_timeout{300'000};    // KVFERRY_WAITING_TIMEOUT: a receiver that waits for its first bytes
  Millis ping_interval{1'000};        // KVFERRY_PING_INTERVAL
  std::uint32_t ping_misses_max = 3;  // KVFERRY_PING_MISSES: pings in a row without an answer before a peer is dead
  Millis health_interval{5'000};      // KVFERRY_HEALTH_INTERVAL: between questions how a bootstrap server is
  Millis connect_timeout{5'000};      // KVFERRY_CONNECT_TIMEOUT: connecting and shaking hands, each
  Millis lease_ttl{15'000};           // KVFERRY_LEASE_TTL: a registration that is not renewed for so long is dropped

  // Sizes. What happens at each bound is said at the bound (src/base/limits.h).
  std::uint32_t data_threads = 2;  // KVFERRY_DATA_THREADS: threads a transport moves bytes with, at least 2
  std::uint64_t inline_bytes_max =
      65'536;                        // KVFERRY_INLINE_BYTES_MAX: rooms up to this size travel on the control link
  std::uint32_t rooms_max = 65'536;  // KVFERRY_ROOMS_MAX: live rooms a manager
  std::uint32_t orphan_grants_max = 4'096;  // KVFERRY_ORPHAN_GRANTS_MAX: grants a session may leave for unopened rooms
  std::uint32_t chunks_queued_max = 1'024;  // KVFERRY_QUEUE_SIZE: chunks of one room that wait for its grant

  // Reads KVFERRY_<NAME>, then the SGLANG_DISAGGREGATION_<NAME> that SGLang's users know, then keeps the default.
  // Durations are seconds with an optional unit ("30", "1.5", "200ms", "5s", "2m"). A value that is not allowed is
  // `invalid_argument` with the variable's name, the value and what is allowed. `lookup` stands for getenv in tests.
  using Lookup = std::function<std::optional<std::string>(std::string_view name)>;
  static Result<Settings> from_environment(const Lookup& lookup);
  static Result<Settings> from_environment();

  // Checks values that were set in code, with the same words.
  Result<void> check() const;
};

}  // namespace kvferry
