// Each setting once: its names, where it lives and what is allowed. Reading, checking and the documents go by this
// table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>

#include "kvferry/settings.h"

namespace kvferry {

// Names without their prefixes, KVFERRY_ and SGLANG_DISAGGREGATION_.
template <class T>
struct Range {
  T Settings::*field;
  T min;
  T max;
};
using Field = std::variant<std::string Settings::*, bool Settings::*, Transport Settings::*, Verify Settings::*,
                           Range<Settings::Millis>, Range<std::uint32_t>, Range<std::uint64_t>>;
struct SettingRow {
  const char* name;
  const char* sglang_name;  // null where SGLang has none
  Field field;
};

namespace settings_bounds {
using std::chrono::hours;
using std::chrono::milliseconds;
inline constexpr milliseconds shortest{1};
inline constexpr milliseconds longest = hours(24 * 7);
inline constexpr std::uint32_t table_max = 1u << 24;
}  // namespace settings_bounds

inline constexpr std::array settings_table{
    SettingRow{"HOST", nullptr, &Settings::host},
    SettingRow{"TOKEN", nullptr, &Settings::token},
    SettingRow{"ALLOW_PUBLIC", nullptr, &Settings::allow_public},
    SettingRow{"TRANSPORT", nullptr, &Settings::transport},
    SettingRow{"VERIFY", nullptr, &Settings::verify},
    SettingRow{
        "BOOTSTRAP_TIMEOUT", "BOOTSTRAP_TIMEOUT",
        Range<Settings::Millis>{&Settings::bootstrap_timeout, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{"SEND_TIMEOUT", nullptr,
               Range<Settings::Millis>{&Settings::send_timeout, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{
        "PROGRESS_TIMEOUT", nullptr,
        Range<Settings::Millis>{&Settings::progress_timeout, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{
        "WAITING_TIMEOUT", "WAITING_TIMEOUT",
        Range<Settings::Millis>{&Settings::waiting_timeout, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{"PING_INTERVAL", "HEARTBEAT_INTERVAL",
               Range<Settings::Millis>{&Settings::ping_interval, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{"PING_MISSES", "HEARTBEAT_MAX_FAILURE", Range<std::uint32_t>{&Settings::ping_misses_max, 1, 1'000}},
    SettingRow{
        "HEALTH_INTERVAL", nullptr,
        Range<Settings::Millis>{&Settings::health_interval, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{
        "CONNECT_TIMEOUT", nullptr,
        Range<Settings::Millis>{&Settings::connect_timeout, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{"LEASE_TTL", nullptr,
               Range<Settings::Millis>{&Settings::lease_ttl, settings_bounds::shortest, settings_bounds::longest}},
    SettingRow{"DATA_THREADS", "THREAD_POOL_SIZE", Range<std::uint32_t>{&Settings::data_threads, 2, 256}},
    SettingRow{"INLINE_BYTES_MAX", nullptr, Range<std::uint64_t>{&Settings::inline_bytes_max, 0, 16u << 20}},
    SettingRow{"ROOMS_MAX", nullptr, Range<std::uint32_t>{&Settings::rooms_max, 1, settings_bounds::table_max}},
    SettingRow{"ORPHAN_GRANTS_MAX", nullptr,
               Range<std::uint32_t>{&Settings::orphan_grants_max, 1, settings_bounds::table_max}},
    SettingRow{"QUEUE_SIZE", "QUEUE_SIZE", Range<std::uint32_t>{&Settings::chunks_queued_max, 1, 65'536}},
};

}  // namespace kvferry
