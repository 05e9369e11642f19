// Peers whose memory the kernel does not serve: a read of it waits until the peer dies.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "bench/unserved.h"
#include "kvferry/kvferry.h"
#include "support.h"
#include "transport/samehost/samehost_mover.h"

namespace kvferry::transport {
namespace {

constexpr std::size_t page_bytes = 4096;

bool permitted() {
  void* page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool made = bench::UnservedMemory::make({static_cast<std::byte*>(page), page_bytes}).has_value();
  ::munmap(page, page_bytes);
  return made;
}

// A process with a region whose first page is not served, and a shared one beside it.
class StalledPeer {
 public:
  explicit StalledPeer(std::size_t item_bytes = page_bytes, std::size_t bytes = page_bytes) : bytes_(bytes) {
    page_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory_.kv = {{page_, bytes, item_bytes, MemoryKind::host}};
    memory_.aux = {{shared_.data(), page_bytes, page_bytes, MemoryKind::host}};
    EXPECT_EQ(::pipe(words_), 0);
    own_same_host();  // the nonce is there before the fork, so it lies at one address in both
    pid_ = ::fork();
    if (pid_ == 0) stall();
    char socket_name[64] = {};
    EXPECT_GT(::read(words_[0], socket_name, sizeof socket_name - 1), 0);
    socket_name_ = socket_name;
  }
  StalledPeer(const StalledPeer&) = delete;
  StalledPeer& operator=(const StalledPeer&) = delete;
  ~StalledPeer() {
    kill();
    ::close(words_[0]);
    ::close(words_[1]);
    ::munmap(page_, bytes_);
  }

  std::unique_ptr<PeerMemory> open() const {
    protocol::SameHost where = own_same_host();
    where.pid = static_cast<std::uint64_t>(pid_);
    auto peer = open_peer_memory(where, socket_name_, describe_regions(memory_), {}, 5000);
    EXPECT_TRUE(peer) << peer.error().text;
    return peer ? std::move(*peer) : nullptr;
  }
  // Until somebody waits for the page.
  void wait_for_reader() const {
    char read = 0;
    EXPECT_EQ(::read(words_[0], &read, 1), 1);
  }
  // The page is there from now on.
  void serve() const { ::kill(pid_, SIGUSR1); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  [[noreturn]] void stall() const {
    sigset_t served;
    ::sigemptyset(&served);
    ::sigaddset(&served, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &served, nullptr);
    auto server = MemoryServer::start(memory_);
    auto unserved = bench::UnservedMemory::make({static_cast<std::byte*>(page_), page_bytes});
    if (!unserved || !server) ::_exit(1);
    server->expect({});
    const std::string& name = server->socket_name();
    if (::write(words_[1], name.data(), name.size()) != static_cast<ssize_t>(name.size())) ::_exit(1);
    pollfd reader{.fd = unserved->fd(), .events = POLLIN, .revents = 0};
    ::poll(&reader, 1, -1);
    if (::write(words_[1], "w", 1) != 1) ::_exit(1);
    int signal = 0;
    ::sigwait(&served, &signal);
    { const auto gone = std::move(*unserved); }
    for (;;) ::pause();
  }

  std::size_t bytes_;
  void* page_ = nullptr;
  SharedMemory shared_ = *SharedMemory::allocate(page_bytes);
  Memory memory_;
  std::string socket_name_;
  int words_[2] = {-1, -1};
  pid_t pid_ = -1;
};

ChunkOrder one_page(SessionId session, TransferId transfer) {
  return {session, transfer, {0, 0, 1, 0, 1, true}, {{0, {0}}}};
}

TEST(StalledPeers, what_the_death_of_a_peer_lets_go_on_is_not_taken_for_its_bytes) {
  if (!permitted()) GTEST_SKIP() << "userfaultfd is not permitted here";
  for (int round = 0; round < 20; ++round) {
    StalledPeer stalled;
    TestMemory to(1, {page_bytes});
    TestSink sink;
    auto mover = SameHostMover::create(2, sink);
    mover->open_session(session_1, stalled.open(), layout::View::of(to.memory));
    mover->open_window(Window{session_1, transfer_1, 0, {{0, {0}}}});
    mover->move(one_page(session_1, transfer_1));
    stalled.wait_for_reader();
    stalled.kill();
    EXPECT_TRUE(sink.wait<SessionLost>());
    EXPECT_EQ(sink.count<Placed>(), 0u);
    mover->close_session(session_1);
    EXPECT_TRUE(sink.wait<SessionClosed>());
  }
}

// The private bytes of the room are zeros of the dying process; its last step reads from shared memory alone.
TEST(StalledPeers, what_a_shared_region_still_holds_does_not_stand_for_the_private_ones) {
  if (!permitted()) GTEST_SKIP() << "userfaultfd is not permitted here";
  constexpr std::size_t small = 4;
  std::vector<std::int32_t> all(1024);  // a step of their own
  std::iota(all.begin(), all.end(), 0);
  for (int round = 0; round < 100; ++round) {
    StalledPeer stalled(small);
    TestMemory to(1024, {small}, {page_bytes});
    TestSink sink;
    auto mover = SameHostMover::create(2, sink);
    mover->open_session(session_1, stalled.open(), layout::View::of(to.memory));
    mover->open_window(Window{session_1, transfer_1, 0, {{0, all}, {1, {0}}}});
    mover->move({session_1, transfer_1, {0, 0, 1024, 0, 1, true}, {{0, all}, {1, {0}}}});
    stalled.wait_for_reader();
    stalled.kill();
    ASSERT_TRUE(sink.wait<SessionLost>());
    ASSERT_EQ(sink.count<Placed>(), 0u);
    mover->close_session(session_1);
    ASSERT_TRUE(sink.wait<SessionClosed>());
  }
}

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(threads), end(threads)));
}

// The session has one worker at a time and nobody else does anything: whoever took over must go on with its chunk.
TEST(StalledPeers, a_lone_chunk_goes_on_after_its_worker_was_stood_in_for) {
  if (!permitted()) GTEST_SKIP() << "userfaultfd is not permitted here";
  constexpr std::size_t item = 1 << 20;
  StalledPeer stalled(item, 3 * item);
  TestMemory to(3, {item}, {page_bytes});
  TestSink sink;
  auto mover = SameHostMover::create(2, sink);
  mover->open_session(session_1, stalled.open(), layout::View::of(to.memory));
  const std::size_t before = threads_of_this_process();
  mover->open_window(Window{session_1, transfer_1, 0, {{0, {0, 1, 2}}}});
  mover->move({session_1, transfer_1, {0, 0, 3, 0, 1, true}, {{0, {0, 1, 2}}}});
  stalled.wait_for_reader();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (threads_of_this_process() == before && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_EQ(threads_of_this_process(), before + 1);
  stalled.serve();
  EXPECT_TRUE(sink.wait<Placed>(transfer_1, std::chrono::seconds(20)));
}

TEST(StalledPeers, as_many_as_there_are_threads_hold_up_nobody_else) {
  if (!permitted()) GTEST_SKIP() << "userfaultfd is not permitted here";
  constexpr std::size_t stalls = 5;
  std::vector<std::unique_ptr<StalledPeer>> stalled;
  for (std::size_t i = 0; i < stalls; ++i) stalled.push_back(std::make_unique<StalledPeer>());
  TestMemory to(stalls + 1, {page_bytes});
  TestMemory from(1, {page_bytes});
  from.fill(7);
  TestSink sink;
  auto mover = SameHostMover::create(2, sink);
  for (std::size_t i = 0; i < stalls; ++i) {
    const SessionId session{100 + i};
    mover->open_session(session, stalled[i]->open(), layout::View::of(to.memory));
    mover->open_window(Window{session, TransferId{100 + i}, 0, {{0, {static_cast<std::int32_t>(i)}}}});
    mover->move(one_page(session, TransferId{100 + i}));
  }
  for (const auto& peer : stalled) peer->wait_for_reader();
  auto healthy = open_peer_memory(own_same_host(), "", describe_regions(from.memory), {}, 5000);
  ASSERT_TRUE(healthy);
  mover->open_session(session_1, std::move(*healthy), layout::View::of(to.memory));
  mover->open_window(Window{session_1, transfer_1, 0, {{0, {stalls}}}});
  mover->move(one_page(session_1, transfer_1));
  EXPECT_TRUE(sink.wait<Placed>(transfer_1));
  EXPECT_TRUE(same_items(from.memory.kv, {0}, to.memory.kv, {stalls}));
  stalled.clear();  // lets the threads go that wait
  for (std::size_t i = 0; i < stalls; ++i) EXPECT_TRUE(sink.wait<SessionLost>());
}

}  // namespace
}  // namespace kvferry::transport
