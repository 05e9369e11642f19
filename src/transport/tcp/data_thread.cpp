#include "transport/tcp/data_thread.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "os/thread.h"

namespace kvferry::transport {
namespace {
constexpr std::size_t scratch_bytes = 262'144;

// Refused options do no harm: a test's socket pair has none of them.
void tune(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
}  // namespace

DataThread::DataThread(MoverSink& sink, const std::string& name)
    : sink_(sink), scratch_(scratch_bytes), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  thread_ = os::start_thread(name, [this] { run(); });
}

DataThread::~DataThread() {
  post(Quit{});
  thread_.join();
}

void DataThread::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    mailbox_.push_back(std::move(command));
  }
  if (!mail_.exchange(true, std::memory_order_acq_rel)) wake_.signal();
}

void DataThread::run() {
  while (!quit_) {
    take_commands();
    wait(turns_.empty());
    for (std::size_t i = turns_.size(); i > 0 && !quit_; --i) {
      const auto turn = turns_.take();
      if (!turn) break;
      Session& session = *sessions_.at(turn->key);
      session.queued = false;
      serve(session, turn->budget_bytes);
      if (mail_.load(std::memory_order_acquire)) break;  // a window that closes does not wait for the others' turns
    }
  }
}

void DataThread::wait(bool idle) {
  std::array<epoll_event, 64> events;
  const bool stay = idle && !quit_;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), stay ? -1 : 0);
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    auto* session = static_cast<Session*>(event.data.ptr);
    if (session == nullptr) continue;  // the mailbox
    if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) session->readable = true;
    if ((event.events & EPOLLOUT) != 0) session->writable = true;
    queue(*session);
  }
}

void DataThread::take_commands() {
  if (!mail_.load(std::memory_order_acquire)) return;
  wake_.clear();
  mail_.store(false, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    commands_.swap(mailbox_);
  }
  for (Command& command : commands_) {
    std::visit([this](auto& one) { on(one); }, command);
  }
  commands_.clear();
}

// A frame met no window: it may have been opened since the last look at the mailbox.
void DataThread::fetch_opened(SessionId id) {
  if (!mail_.load(std::memory_order_acquire)) return;
  std::vector<Window> opened;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(mailbox_, [&](Command& command) {
      auto* window = std::get_if<Window>(&command);
      if (window == nullptr || window->session != id) return false;
      opened.push_back(std::move(*window));
      return true;
    });
  }
  for (Window& window : opened) on(window);
}

DataThread::Session* DataThread::find(SessionId session) {
  const auto found = sessions_.find(session.value);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void DataThread::queue(Session& session, std::int64_t left_bytes) {
  if (session.queued || !session.ready()) return;
  session.queued = true;
  turns_.add(session.id.value, left_bytes);
}

void DataThread::serve(Session& session, std::int64_t budget_bytes) {
  std::int64_t used = 0;
  if (session.readable && session.fd) {
    auto taken = session.receiving.read(session.fd.get(), budget_bytes);
    used += taken.bytes;
    if (taken.blocked) session.readable = false;
    if (taken.lost) lose(session, std::move(*taken.lost));
  }
  if (session.writable && session.fd && !session.sending.idle() && used < budget_bytes) {
    const auto written = session.sending.write(session.fd.get(), budget_bytes - used);
    used += written.bytes;
    if (written.blocked) session.writable = false;
    if (written.error != 0) {
      lose(session,
           Error{Code::peer_lost, std::string("writing the data stream failed: ") + std::strerror(written.error)});
    }
  }
  queue(session, budget_bytes - used);
}

// Explicit, because a forked child may hold the same socket: its copy would keep the stream and its events alive.
void DataThread::close_stream(Session& session) {
  if (!session.fd) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.fd.get(), nullptr);
  ::shutdown(session.fd.get(), SHUT_RDWR);
  session.fd.reset();
}

void DataThread::lose(Session& session, Error error) {
  close_stream(session);
  session.sending.clear();
  sink_.post(SessionLost{session.id, std::move(error)});
}

void DataThread::on(OpenSession& opened) {
  tune(opened.stream.get());
  const SessionId id = opened.session;
  const int fd = opened.stream.get();
  auto session = std::make_unique<Session>(sink_, std::move(opened), scratch_, [this, id] { fetch_opened(id); });
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = session.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    lose(*session, Error{Code::internal, std::string("the data stream cannot be watched: ") + std::strerror(errno)});
  }
  sessions_.insert_or_assign(id.value, std::move(session));
}

void DataThread::on(Window& window) {
  if (Session* session = find(window.session); session != nullptr) session->receiving.open(std::move(window));
}

void DataThread::on(CloseWindow& closed) {
  if (Session* session = find(closed.session); session != nullptr) session->receiving.close(closed.transfer);
  sink_.post(WindowClosed{closed.session, closed.transfer});
}

void DataThread::on(ChunkOrder& order) {
  Session* session = find(order.session);
  if (session == nullptr || !session->fd) return;  // the loss was reported
  session->sending.add(std::move(order));
  queue(*session);
}

void DataThread::on(Stop& stopped) {
  if (Session* session = find(stopped.session); session != nullptr) session->sending.stop(stopped.transfer);
  sink_.post(Stopped{stopped.session, stopped.transfer});
}

void DataThread::on(CloseSession& closed) {
  if (Session* session = find(closed.session); session != nullptr) {
    if (session->queued) turns_.remove(closed.session.value);
    close_stream(*session);
    sessions_.erase(closed.session.value);
  }
  sink_.post(SessionClosed{closed.session});
}

}  // namespace kvferry::transport
