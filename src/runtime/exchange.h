// Everything that crosses between the engine's threads, the movers and the control thread, behind one mutex.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/events.h"
#include "os/event_fd.h"
#include "runtime/room_cell.h"
#include "transport/mover.h"

namespace kvferry::runtime {

// What the control thread takes in one go.
struct Incoming {
  std::vector<std::shared_ptr<RoomCell>> opened;  // cells whose Open event is among the commands
  std::vector<core::SenderEvent> sender;
  std::vector<core::ReceiverEvent> receiver;
  std::vector<transport::MoverEvent> moved;
  bool empty() const { return opened.empty() && sender.empty() && receiver.empty() && moved.empty(); }
};

class Exchange : public transport::MoverSink {
 public:
  explicit Exchange(std::size_t rooms_max) : rooms_max_(rooms_max) {}

  // ---- Engine threads. ----
  // Makes a cell and hands its Open event over. `already_exists` while the number is live, `try_later` at the bound,
  // `closed` after close(). `make_event` turns the cell into the event.
  template <class MakeEvent>
  Result<std::shared_ptr<RoomCell>> open(RoomId room, MakeEvent make_event);
  // Drops a command after close(): the room has ended and its cell says so.
  void post(core::SenderEvent event);
  void post(core::ReceiverEvent event);
  // Frees the number at once; the command that goes with it is posted by the caller before.
  void forget(const RoomCell& cell);
  std::vector<RoomChange> take_changed();
  int event_fd() const { return changed_event_.get(); }
  // Waits until `done` holds, woken by every publish.
  bool wait(std::chrono::milliseconds timeout, const std::function<bool()>& done);

  // ---- Mover threads. ----
  void post(transport::MoverEvent event) override;

  // ---- The control thread. ----
  // `wake` is called, from any thread, when something came and none was waiting before.
  void set_wake(std::function<void()> wake);
  void take(Incoming& incoming);
  // Cells whose state or release changed, told to the engine in one go.
  void publish(std::vector<std::shared_ptr<RoomCell>>& cells);
  // Ends every live room with the error, releases what is not released, refuses everything from now on.
  void close(const Error& error);

 private:
  void notify();  // with the mutex held

  const std::size_t rooms_max_;
  std::mutex mutex_;
  std::condition_variable published_;
  std::unordered_map<std::uint64_t, std::shared_ptr<RoomCell>>
      live_;  // by room number; shared with handles and control
  // Cells that are cleared but not released: close() must release them too.
  std::vector<std::weak_ptr<RoomCell>> fenced_;
  Incoming incoming_;
  std::vector<std::shared_ptr<RoomCell>> changed_;
  bool signalled_ = false;
  bool closed_ = false;
  std::uint64_t next_handle_ = 1;
  std::function<void()> wake_;
  os::EventFd changed_event_;
};

template <class MakeEvent>
Result<std::shared_ptr<RoomCell>> Exchange::open(RoomId room, MakeEvent make_event) {
  std::unique_lock lock(mutex_);
  const std::string number = std::to_string(room.value);
  if (closed_) return Error{Code::closed, "the manager is shut down", room.value};
  if (live_.contains(room.value)) {
    return Error{Code::already_exists, "room " + number + " is live here; clear it before the number is used again",
                 room.value};
  }
  if (live_.size() >= rooms_max_) {
    return Error{Code::try_later, "KVFERRY_ROOMS_MAX = " + std::to_string(rooms_max_) + " rooms are live", room.value};
  }
  auto cell = std::make_shared<RoomCell>(core::HandleId{next_handle_++}, room);
  live_.emplace(room.value, cell);
  incoming_.opened.push_back(cell);
  auto event = make_event(*cell);
  if constexpr (std::is_same_v<decltype(event), core::event::OpenSender>) {
    incoming_.sender.push_back(std::move(event));
  } else {
    incoming_.receiver.push_back(std::move(event));
  }
  notify();
  return cell;
}

}  // namespace kvferry::runtime
