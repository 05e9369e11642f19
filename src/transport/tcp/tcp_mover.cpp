#include "transport/tcp/tcp_mover.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/tcp/data_thread.h"

namespace kvferry::transport {
namespace {

// The control thread's side: which data thread has which session. All work is posted there.
class Threads final : public TcpMover {
 public:
  Threads(std::uint32_t data_threads, MoverSink& sink)
      : sink_(sink), data_threads_(std::max<std::uint32_t>(data_threads, 1)) {}

  void open_session(SessionId session, os::Fd stream, layout::View view) override {
    if (threads_.empty()) {
      for (std::uint32_t i = 0; i < data_threads_; ++i) {
        threads_.push_back(std::make_unique<DataThread>(sink_, fmt::format("kvf-tcp-{}", i)));
      }
      sessions_a_thread_.resize(data_threads_, 0);
    }
    const auto least = std::min_element(sessions_a_thread_.begin(), sessions_a_thread_.end());
    ++*least;
    const auto thread = static_cast<std::size_t>(least - sessions_a_thread_.begin());
    thread_of_.insert_or_assign(session.value, thread);
    threads_[thread]->post(DataThread::OpenSession{session, std::move(stream), std::move(view)});
  }

  void open_window(Window window) override {
    if (DataThread* thread = find(window.session); thread != nullptr) thread->post(std::move(window));
  }

  void close_window(SessionId session, TransferId transfer) override {
    DataThread* thread = find(session);
    if (thread == nullptr) return sink_.post(WindowClosed{session, transfer});
    thread->post(DataThread::CloseWindow{session, transfer});
  }

  void move(ChunkOrder order) override {
    if (DataThread* thread = find(order.session); thread != nullptr) thread->post(std::move(order));
  }

  void stop(SessionId session, TransferId transfer) override {
    DataThread* thread = find(session);
    if (thread == nullptr) return sink_.post(Stopped{session, transfer});
    thread->post(DataThread::Stop{session, transfer});
  }

  void close_session(SessionId session) override {
    const auto found = thread_of_.find(session.value);
    if (found == thread_of_.end()) return sink_.post(SessionClosed{session});
    threads_[found->second]->post(DataThread::CloseSession{session});
    --sessions_a_thread_[found->second];
    thread_of_.erase(found);
  }

 private:
  DataThread* find(SessionId session) {
    const auto found = thread_of_.find(session.value);
    return found == thread_of_.end() ? nullptr : threads_[found->second].get();
  }

  MoverSink& sink_;
  const std::uint32_t data_threads_;
  std::unordered_map<std::uint64_t, std::size_t> thread_of_;
  std::vector<std::size_t> sessions_a_thread_;
  std::vector<std::unique_ptr<DataThread>> threads_;
};

}  // namespace

std::unique_ptr<TcpMover> TcpMover::create(std::uint32_t data_threads, MoverSink& sink) {
  return std::make_unique<Threads>(data_threads, sink);
}

}  // namespace kvferry::transport
