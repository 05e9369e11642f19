#include "sim/judge.h"

#include <algorithm>

#include "base/codes.h"
#include "sim/process.h"
#include "sim/request.h"

namespace kvferry::sim {

void Judge::tell(RequestId request, std::string text) {
  if (telling_) lines_.push_back({schedule_.now(), request, std::move(text)});
}

std::string Judge::story() const {
  std::string text;
  for (const Line& line : lines_) {
    if (line.request != 0 && std::ranges::find(involved_, line.request) == involved_.end()) continue;
    const auto us = line.at.time_since_epoch() / std::chrono::microseconds(1);
    text += std::to_string(us / 1'000'000) + "." + std::to_string(1'000'000 + us % 1'000'000).substr(1) + "  " +
            line.text + "\n";
  }
  return text;
}

void Judge::violation(RequestId request, std::string text) {
  if (violated()) return;
  violation_ = std::move(text);
  if (request != 0) violation_ = "request " + std::to_string(request) + ": " + violation_;
  involved_.push_back(request);
  tell(request, "VIOLATION " + violation_);
}

void Judge::drawn(TransferId transfer, RequestId request) { requests_[transfer].push_back(request); }

RequestId Judge::request_of(TransferId transfer) const {
  const auto entry = requests_.find(transfer);
  return entry == requests_.end() ? 0 : entry->second.back();
}

void Judge::on_touch(const Process& process, std::uint32_t component, const std::vector<std::int32_t>& items,
                     TransferId transfer, const char* what) {
  const auto entry = requests_.find(transfer);
  for (const std::int32_t item : items) {
    const RequestId owner = process.memory.owner(component, item);
    if (entry != requests_.end() && std::ranges::find(entry->second, owner) != entry->second.end()) continue;
    const RequestId request = request_of(transfer);
    if (owner != 0) involved_.push_back(owner);
    violation(request, process.name() + " " + what + " item " + std::to_string(item) + " of component " +
                           std::to_string(component) + " for transfer " + std::to_string(transfer.value) + ", but " +
                           (owner == 0 ? "it has been released" : "it belongs to request " + std::to_string(owner)));
    return;
  }
}

void Judge::on_read(const Process& process, std::uint32_t component, const std::vector<std::int32_t>& items,
                    TransferId transfer) {
  on_touch(process, component, items, transfer, "reads");
}

void Judge::on_write(const Process& process, std::uint32_t component, const std::vector<std::int32_t>& items,
                     TransferId transfer) {
  on_touch(process, component, items, transfer, "writes");
}

void Judge::on_state(const Process& process, RequestId request, Poll before, Poll after,
                     const std::optional<Error>& error) {
  const bool concluded = before == Poll::failed || before == Poll::success;
  if (concluded || (after != Poll::failed && after <= before)) {
    violation(request, process.name() + " went from " + poll_name(before) + " to " + poll_name(after));
  }
  if ((after == Poll::failed) != error.has_value()) {
    violation(request, process.name() + " is " + poll_name(after) + (error ? " with an error" : " without a reason"));
  }
}

void Judge::on_bytes(const Process& process, const Request& request, const char* when) {
  const Side& side = request.receiver;
  for (std::uint32_t component = 0; component < side.items.size(); ++component) {
    if (side.items[component].empty()) continue;
    const std::uint64_t first = component == layout::component_kv ? request.prefix : 0;
    if (const auto at = process.memory.first_wrong(component, side.items[component], request.contents, first)) {
      violation(request.id, process.name() + " says success, but position " + std::to_string(*at) + " of component " +
                                std::to_string(component) + " is wrong " + when);
    }
  }
}

}  // namespace kvferry::sim
