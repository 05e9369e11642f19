// Peers whose memory the kernel does not serve: a read of it waits until the peer dies.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/unserved.h"
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

// A process with a region of one page that is not served.
class StalledPeer {
 public:
  StalledPeer() {
    page_ = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    region_ = {page_, page_bytes, page_bytes, MemoryKind::host};
    EXPECT_EQ(::pipe(words_), 0);
    own_same_host();  // the nonce is there before the fork, so it lies at one address in both
    pid_ = ::fork();
    if (pid_ == 0) stall();
    char ready = 0;
    EXPECT_EQ(::read(words_[0], &ready, 1), 1);
  }
  StalledPeer(const StalledPeer&) = delete;
  StalledPeer& operator=(const StalledPeer&) = delete;
  ~StalledPeer() {
    kill();
    ::close(words_[0]);
    ::close(words_[1]);
    ::munmap(page_, page_bytes);
  }

  std::unique_ptr<PeerMemory> open() const {
    protocol::SameHost where = own_same_host();
    where.pid = static_cast<std::uint64_t>(pid_);
    Memory memory;
    memory.kv = {region_};
    auto peer = open_peer_memory(where, "", describe_regions(memory), {}, 5000);
    EXPECT_TRUE(peer) << peer.error().text;
    return peer ? std::move(*peer) : nullptr;
  }
  // Until somebody waits for the page.
  void wait_for_reader() const {
    char read = 0;
    EXPECT_EQ(::read(words_[0], &read, 1), 1);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  [[noreturn]] void stall() const {
    auto unserved = bench::UnservedMemory::make({static_cast<std::byte*>(page_), page_bytes});
    if (!unserved || ::write(words_[1], "r", 1) != 1) ::_exit(1);
    pollfd reader{.fd = unserved->fd(), .events = POLLIN, .revents = 0};
    ::poll(&reader, 1, -1);
    if (::write(words_[1], "w", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }

  void* page_ = nullptr;
  Region region_;
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
