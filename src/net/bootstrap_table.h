// The bootstrap server's state as a value: which prefill rank listens where. No I/O, no clock; the server and tests
// drive it. Field names and answers are those of docs/reference/http.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/ids.h"
#include "base/time.h"
#include "kvferry/layout.h"
#include "kvferry/result.h"

namespace kvferry::net {

// One PUT /route, checked.
struct Registration {
  std::string instance;  // empty where the engine gave none: one instance a server then
  Parallel parallel;     // tp counts one dp group
  Place place;
  Address address;               // where the rank listens for links
  Incarnation incarnation;       // zero where the engine gave none
  std::optional<Bits128> lease;  // renewal of this lease; none for a first registration
  bool leased = false;           // false: never expires (an engine that registers once)
  Duration ttl{};
  std::uint64_t start_number = 0;  // of the process; a lower one never replaces a higher one. 0: not known
  std::string attributes = {};     // a JSON object that the engines give each other, kept as it is; empty for none
};
struct RegistrationAnswer {
  Bits128 lease;
  std::uint64_t generation = 0;
};
struct Route {
  Address address;
  std::string instance;
  Incarnation incarnation;
  std::uint64_t generation = 0;
};
struct InstanceSizes {
  Parallel parallel;
  std::string instance;
  std::string attributes = {};  // those that a rank of the instance gave last
};

class BootstrapTable {
 public:
  explicit BootstrapTable(std::size_t ranks_max = 16'384) : ranks_max_(ranks_max) {}
  // `already_exists` for a renewal of a replaced lease (HTTP 409), `mismatch` for sizes that differ from live ranks of
  // the same instance and for an older start of a live rank, `try_later` at ranks_max, `invalid_argument` for a place
  // outside of the sizes. A rank of another instance name, or new sizes with no lease of the old alive, replaces what
  // was there. A renewal that the table does not know of registers anew. `new_lease` is used where no lease is renewed.
  Result<RegistrationAnswer> put(const Registration& registration, const Bits128& new_lease, Instant now);
  // Removes a registration (orderly shutdown); unknown or replaced leases change nothing.
  void remove(const Bits128& lease);
  // `try_later` with both counts until every rank of the instance has registered once (503); after that only for a rank
  // that is gone, so that the others are still found. `unreachable` for an unknown rank (404).
  Result<Route> route(const Place& place, Instant now);
  Result<InstanceSizes> sizes(Instant now);
  std::size_t ranks() const { return entries_.size(); }
  // The name that the instance gave itself; empty where it gave none.
  const std::string& instance() const { return instance_; }

 private:
  struct Entry {
    Address address;
    Incarnation incarnation;
    Bits128 lease;
    std::uint64_t generation = 0;
    std::uint64_t start_number = 0;
    bool leased = false;
    Instant expires{};
  };
  // What is remembered of a place after its entry is gone: a replaced rank that was asleep must not come back.
  struct History {
    std::uint64_t generation = 0;
    std::array<Bits128, 4> replaced{};  // the last ones; older ones are taken for forgotten
    std::size_t replaced_next = 0;
  };

  Result<RegistrationAnswer> renew(const Registration& registration, Entry& entry, Instant now);
  Result<RegistrationAnswer> add(const Registration& registration, const Bits128& new_lease, Instant now);
  Result<void> accept_instance(const Registration& registration);
  void start_over(const Registration& registration);
  bool was_replaced(const Registration& registration) const;
  Error missing(const char* what) const;
  void expire(Instant now);
  void forget(const Place& place, const Entry& entry);

  std::size_t ranks_max_;
  std::string instance_;
  std::string attributes_;
  std::optional<Parallel> parallel_;
  bool complete_once_ = false;  // every rank of this instance has been there at the same time
  std::map<Place, Entry> entries_;
  std::map<Place, History> histories_;        // places of the present sizes only, so bounded as entries_ are
  std::uint64_t generation_floor_ = 0;        // above every generation of the histories that were let go
  std::optional<Instant> expiry_earliest_{};  // no later than the first lease that runs out
};

}  // namespace kvferry::net
