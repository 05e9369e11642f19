#include <atomic>
#include <utility>

#include "base/try.h"
#include "kvferry/kvferry.h"
#include "layout/pages.h"
#include "net/auth.h"
#include "runtime/manager.h"

namespace kvferry {

const char* version() noexcept { return KVFERRY_VERSION; }

KvManager::KvManager(std::shared_ptr<runtime::Manager> manager) : manager_(std::move(manager)) {}
KvManager::KvManager(KvManager&&) noexcept = default;

KvManager& KvManager::operator=(KvManager&& other) noexcept {
  if (this != &other) {
    if (manager_) manager_->shut_down();
    manager_ = std::move(other.manager_);
  }
  return *this;
}

KvManager::~KvManager() {
  if (manager_) manager_->shut_down();
}

Result<KvManager> KvManager::create(ManagerOptions options) {
  KVF_TRY(manager, runtime::Manager::create(std::move(options)));
  return KvManager(std::move(manager));
}

Result<Sender> KvManager::open_sender(std::uint64_t room) {
  KVF_CHECK(manager_->usable());
  if (manager_->role != Role::prefill) {
    return Error{Code::invalid_argument, "a decode manager opens receivers, not senders", room};
  }
  KVF_TRY(cell, manager_->exchange.open(RoomId{room}, [](const runtime::RoomCell& c) {
    return core::event::OpenSender{c.handle, c.room};
  }));
  return Sender(manager_, std::move(cell));
}

Result<Receiver> KvManager::open_receiver(const std::string& bootstrap, std::uint64_t room,
                                          std::optional<std::uint32_t> prefill_dp_rank) {
  KVF_CHECK(manager_->usable());
  if (manager_->role != Role::decode) {
    return Error{Code::invalid_argument, "a prefill manager opens senders, not receivers", room};
  }
  KVF_TRY(address, Address::parse(bootstrap));
  const TransferId transfer{net::random_bits().low};
  KVF_TRY(cell, manager_->exchange.open(RoomId{room}, [&](const runtime::RoomCell& c) {
    return core::event::OpenReceiver{c.handle, c.room, transfer, std::move(address), prefill_dp_rank};
  }));
  return Receiver(manager_, std::move(cell));
}

int KvManager::event_fd() const noexcept { return manager_->exchange.event_fd(); }
std::vector<RoomChange> KvManager::changed() { return manager_->exchange.take_changed(); }
std::string KvManager::address() const { return manager_->control ? manager_->control->address() : std::string(); }
ManagerStats KvManager::stats() const { return manager_->control ? manager_->control->stats() : ManagerStats{}; }

}  // namespace kvferry
