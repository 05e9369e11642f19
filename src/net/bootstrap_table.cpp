#include "net/bootstrap_table.h"

#include <algorithm>
#include <string>

#include "base/assert.h"
#include "base/try.h"

namespace kvferry::net {
namespace {

std::string name(const Place& place) {
  return "dp group " + std::to_string(place.dp) + ", tp rank " + std::to_string(place.tp) + ", pp rank " +
         std::to_string(place.pp) + (place.cp == 0 ? "" : ", cp rank " + std::to_string(place.cp));
}

std::string name(const Parallel& parallel) {
  return "tp " + std::to_string(parallel.tp) + " x dp " + std::to_string(parallel.dp) + " x pp " +
         std::to_string(parallel.pp) + (parallel.cp == 1 ? "" : " x cp " + std::to_string(parallel.cp));
}

bool inside(const Place& place, const Parallel& parallel) {
  return place.dp < parallel.dp && place.tp < parallel.tp && place.pp < parallel.pp && place.cp < parallel.cp;
}

// Saturates, so that sizes from outside cannot wrap to a small number.
std::uint64_t ranks_of(const Parallel& parallel) {
  std::uint64_t ranks = 1;
  for (const std::uint64_t size : {parallel.tp, parallel.dp, parallel.pp, parallel.cp}) {
    if (__builtin_mul_overflow(ranks, size, &ranks)) return UINT64_MAX;
  }
  return ranks;
}

}  // namespace

Result<RegistrationAnswer> BootstrapTable::put(const Registration& registration, const Bits128& new_lease,
                                               Instant now) {
  expire(now);
  if (!inside(registration.place, registration.parallel)) {
    return Error{Code::invalid_argument,
                 name(registration.place) + " does not lie inside of " + name(registration.parallel)};
  }
  if (const std::uint64_t ranks = ranks_of(registration.parallel); ranks > ranks_max_) {
    return Error{Code::try_later, "an instance of " + name(registration.parallel) + " has " + std::to_string(ranks) +
                                      " ranks, this server holds at most " + std::to_string(ranks_max_)};
  }
  if (registration.lease) {
    const auto entry = entries_.find(registration.place);
    if (entry != entries_.end() && entry->second.lease == *registration.lease) {
      return renew(registration, entry->second, now);
    }
    if (was_replaced(registration)) {
      return Error{Code::already_exists, "this lease was replaced: another process has registered as " +
                                             name(registration.place) + "; this one stops registering"};
    }
  }
  return add(registration, new_lease, now);
}

Result<RegistrationAnswer> BootstrapTable::renew(const Registration& registration, Entry& entry, Instant now) {
  if (registration.instance != instance_ || registration.parallel != *parallel_) {
    return Error{Code::mismatch, "the renewal says instance \"" + registration.instance + "\", " +
                                     name(registration.parallel) + "; it was registered as \"" + instance_ + "\", " +
                                     name(*parallel_)};
  }
  if (!registration.attributes.empty()) attributes_ = registration.attributes;
  entry.address = registration.address;
  entry.leased = registration.leased;
  entry.expires = now + registration.ttl;
  if (entry.leased && (!expiry_earliest_ || entry.expires < *expiry_earliest_)) expiry_earliest_ = entry.expires;
  return RegistrationAnswer{entry.lease, entry.generation};
}

Result<RegistrationAnswer> BootstrapTable::add(const Registration& registration, const Bits128& new_lease,
                                               Instant now) {
  if (const auto old = entries_.find(registration.place); old != entries_.end() && registration.instance == instance_ &&
                                                          registration.start_number != 0 &&
                                                          registration.start_number < old->second.start_number) {
    // Not for good: where the clocks of two hosts differ, the one that lives gets the place when the lease runs out.
    return Error{Code::mismatch, "a process that started later is registered as " + name(registration.place) +
                                     "; it has the place until its lease runs out"};
  }
  KVF_CHECK(accept_instance(registration));
  if (!registration.attributes.empty()) attributes_ = registration.attributes;
  if (const auto old = entries_.find(registration.place); old != entries_.end()) forget(old->first, old->second);
  History& history = histories_.try_emplace(registration.place, History{.generation = generation_floor_}).first->second;
  Entry entry{.address = registration.address,
              .incarnation = registration.incarnation,
              .lease = new_lease,
              .generation = ++history.generation,
              .start_number = registration.start_number,
              .leased = registration.leased,
              .expires = now + registration.ttl};
  if (entry.leased && (!expiry_earliest_ || entry.expires < *expiry_earliest_)) expiry_earliest_ = entry.expires;
  const RegistrationAnswer answer{entry.lease, entry.generation};
  entries_.insert_or_assign(registration.place, std::move(entry));
  KVF_ASSERT(entries_.size() <= ranks_max_);
  if (entries_.size() == ranks_of(*parallel_)) complete_once_ = true;
  return answer;
}

// Decides whether the registration belongs to the instance that is here, or begins a new one.
Result<void> BootstrapTable::accept_instance(const Registration& registration) {
  if (parallel_ && registration.instance == instance_ && registration.parallel == *parallel_) return {};
  if (parallel_ && registration.instance == instance_) {
    // Registrations that never expire say nothing about life: an engine that restarts with new sizes replaces them.
    const auto alive = std::ranges::count_if(entries_, [](const auto& item) { return item.second.leased; });
    if (alive != 0) {
      return Error{Code::mismatch, "sizes differ from the " + std::to_string(alive) +
                                       " live ranks of this instance: registered with " + name(*parallel_) +
                                       ", this one says " + name(registration.parallel)};
    }
  }
  start_over(registration);
  return {};
}

void BootstrapTable::start_over(const Registration& registration) {
  for (const auto& [place, entry] : entries_) forget(place, entry);
  entries_.clear();
  for (auto history = histories_.begin(); history != histories_.end();) {
    if (inside(history->first, registration.parallel)) {
      ++history;
      continue;
    }
    generation_floor_ = std::max(generation_floor_, history->second.generation);
    history = histories_.erase(history);
  }
  instance_ = registration.instance;
  parallel_ = registration.parallel;
  attributes_.clear();
  complete_once_ = false;
}

bool BootstrapTable::was_replaced(const Registration& registration) const {
  if (!parallel_) return false;
  if (registration.instance != instance_ && !entries_.empty()) {
    // Only where the server has forgotten all leases can the later instance be the one that asks.
    return std::ranges::any_of(entries_,
                               [&](const auto& item) { return registration.start_number <= item.second.start_number; });
  }
  if (const auto history = histories_.find(registration.place); history != histories_.end()) {
    if (std::ranges::find(history->second.replaced, *registration.lease) != history->second.replaced.end()) return true;
  }
  const auto entry = entries_.find(registration.place);
  if (entry == entries_.end()) return false;
  // Somebody else is there and this lease is unknown: after a restart of the server the later start is the right one.
  return registration.start_number == 0 || registration.start_number <= entry->second.start_number;
}

void BootstrapTable::forget(const Place& place, const Entry& entry) {
  History& history = histories_.at(place);
  history.replaced[history.replaced_next++ % history.replaced.size()] = entry.lease;
}

void BootstrapTable::remove(const Bits128& lease) {
  const auto entry = std::ranges::find_if(entries_, [&](const auto& item) { return item.second.lease == lease; });
  if (entry != entries_.end()) entries_.erase(entry);
}

Error BootstrapTable::missing(const char* what) const {
  const std::uint64_t expected = parallel_ ? ranks_of(*parallel_) : 0;
  return Error{Code::try_later, std::string(what) + ": " + std::to_string(entries_.size()) + " of " +
                                    (parallel_ ? std::to_string(expected) : "an unknown number of") +
                                    " prefill ranks are registered"};
}

Result<Route> BootstrapTable::route(const Place& place, Instant now) {
  expire(now);
  if (!parallel_) return missing("the prefill instance has not registered yet");
  if (!inside(place, *parallel_)) {
    return Error{Code::unreachable, name(place) + " does not exist: the instance has " + name(*parallel_)};
  }
  if (!complete_once_) return missing("the prefill instance has not registered completely yet");
  const auto entry = entries_.find(place);
  if (entry == entries_.end()) return missing((name(place) + " is gone and has not registered again").c_str());
  return Route{entry->second.address, instance_, entry->second.incarnation, entry->second.generation};
}

Result<InstanceSizes> BootstrapTable::sizes(Instant now) {
  expire(now);
  if (!parallel_) return missing("the prefill instance has not registered yet");
  if (!complete_once_) return missing("the prefill instance has not registered completely yet");
  if (entries_.empty()) return missing("the prefill instance is gone and has not registered again");
  return InstanceSizes{*parallel_, instance_, attributes_};
}

void BootstrapTable::expire(Instant now) {
  if (!expiry_earliest_ || now < *expiry_earliest_) return;
  expiry_earliest_.reset();
  for (auto item = entries_.begin(); item != entries_.end();) {
    const Entry& entry = item->second;
    if (entry.leased && entry.expires <= now) {
      item = entries_.erase(item);
      continue;
    }
    if (entry.leased && (!expiry_earliest_ || entry.expires < *expiry_earliest_)) expiry_earliest_ = entry.expires;
    ++item;
  }
}

}  // namespace kvferry::net
