// One data thread of the TCP mover: an epoll loop over its sessions' sockets and a mailbox of commands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "layout/view.h"
#include "os/event_fd.h"
#include "os/fd.h"
#include "transport/fair_queue.h"
#include "transport/mover.h"
#include "transport/tcp/receive_frames.h"
#include "transport/tcp/send_frames.h"

namespace kvferry::transport {

class DataThread {
 public:
  struct OpenSession {
    SessionId session;
    os::Fd stream;
    layout::View view;
  };
  struct CloseWindow {
    SessionId session;
    TransferId transfer;
  };
  struct Stop {
    SessionId session;
    TransferId transfer;
  };
  struct CloseSession {
    SessionId session;
  };
  struct Quit {};
  using Command = std::variant<OpenSession, Window, CloseWindow, ChunkOrder, Stop, CloseSession, Quit>;

  DataThread(MoverSink& sink, const std::string& name);
  ~DataThread();
  DataThread(const DataThread&) = delete;
  DataThread& operator=(const DataThread&) = delete;

  // Any thread. Commands are taken in their order. Bounded by what core has open and queued.
  void post(Command command);

 private:
  struct Session {
    Session(MoverSink& sink, OpenSession opened, std::span<std::byte> scratch, std::function<void()> fetch_opened)
        : id(opened.session),
          fd(std::move(opened.stream)),
          view(std::move(opened.view)),
          sending(view, id, sink),
          receiving(view, id, sink, scratch, std::move(fetch_opened)) {}
    SessionId id;
    os::Fd fd;  // none once the session is lost
    const layout::View view;
    SendFrames sending;
    ReceiveFrames receiving;
    bool readable = false;
    bool writable = true;
    bool queued = false;  // stands in turns_
    bool ready() const { return fd && (readable || (writable && !sending.idle())); }
  };

  void run();
  void wait(bool idle);
  void take_commands();
  void fetch_opened(SessionId id);
  void serve(Session& session, std::int64_t budget_bytes);
  void close_stream(Session& session);
  void lose(Session& session, Error error);
  void queue(Session& session, std::int64_t left_bytes = 0);
  Session* find(SessionId session);

  void on(OpenSession& opened);
  void on(Window& window);
  void on(CloseWindow& closed);
  void on(ChunkOrder& order);
  void on(Stop& stopped);
  void on(CloseSession& closed);
  void on(Quit&) { quit_ = true; }

  MoverSink& sink_;
  std::vector<std::byte> scratch_;
  os::EventFd wake_;
  os::Fd epoll_;

  std::mutex mutex_;
  std::vector<Command> mailbox_;  // under mutex_
  std::atomic<bool> mail_{false};

  // The thread's own.
  std::vector<Command> commands_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;  // epoll points at them
  FairQueue<std::uint64_t> turns_;
  bool quit_ = false;
  std::thread thread_;  // last: starts when everything else is there
};

}  // namespace kvferry::transport
