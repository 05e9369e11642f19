#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rapidcheck.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "kvferry/kvferry.h"
#include "os/fd.h"
#include "support.h"
#include "transport/samehost/memory_socket.h"
#include "transport/samehost/pull.h"
#include "transport/samehost/samehost_mover.h"
#include "transport/samehost/shared_memory.h"

namespace kvferry::transport {
namespace {

constexpr Bits128 secret{7, 9};

std::unique_ptr<PeerMemory> open_own(const Memory& memory) {
  auto opened = open_peer_memory(own_same_host(), "", describe_regions(memory), secret, 5000);
  EXPECT_TRUE(opened) << opened.error().text;
  return opened ? std::move(*opened) : nullptr;
}

// A child that lies still until it is killed, with its own place in memory.
class Child {
 public:
  Child() {
    int up[2];
    EXPECT_EQ(::pipe2(up, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const protocol::SameHost me = own_same_host();
      [[maybe_unused]] const auto n = ::write(up[1], &me, sizeof me);
      for (;;) ::pause();
    }
    char told[sizeof same_host];  // read as bytes: g++ 12 takes the struct for its first member
    EXPECT_EQ(::read(up[0], told, sizeof told), static_cast<ssize_t>(sizeof told));
    std::memcpy(&same_host, told, sizeof told);
    ::close(up[0]);
    ::close(up[1]);
  }
  ~Child() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  protocol::SameHost same_host;

 private:
  pid_t pid_ = -1;
};

// Runs `body` in a child and says what it returned; 99 where it could not start.
template <class Body>
int in_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

TEST(SameHost, every_byte_of_every_chunk_is_right) {
  const bool held = rc::check("random chunks", [] {
    const auto regions = *rc::gen::inRange<std::size_t>(1, 6);
    const auto count = *rc::gen::inRange<std::size_t>(0, 60);
    const auto item = *rc::gen::element<std::size_t>(1, 48, 4096, 65'536, 1'200'000);
    const auto seed = static_cast<unsigned>(*rc::gen::inRange(0, 1000));
    const bool shared = *rc::gen::arbitrary<bool>();
    const std::size_t items = item > 100'000 ? 4 : 64;
    const std::size_t pages = std::min(count, items);
    const std::vector<std::size_t> sizes(regions, item);
    TestMemory from(items, sizes, {24, 100}, {{40}});
    TestMemory to(items, sizes, {24, 100}, {{40}});
    from.fill(seed);
    std::optional<SharedMemory> block;
    if (shared) {  // the first kv region moves into a memfd, the others stay private
      auto made = SharedMemory::allocate(items * item);
      RC_ASSERT(made.has_value());
      block.emplace(std::move(*made));
      std::memcpy(block->data(), from.memory.kv[0].base, items * item);
      from.memory.kv[0].base = block->data();
    }
    auto server = MemoryServer::start(from.memory);
    RC_ASSERT((server != nullptr) == shared);
    if (server) server->expect(secret);
    auto peer = open_peer_memory(own_same_host(), server ? server->socket_name() : "", describe_regions(from.memory),
                                 secret, 5000);
    RC_ASSERT(peer.has_value());
    RC_ASSERT((*peer)->method() == (shared ? "shared memory and process_vm_readv" : "process_vm_readv"));
    TestSink sink;
    auto mover = SameHostMover::create(3, sink);
    mover->open_session(session_1, std::move(*peer), layout::View::of(to.memory));
    const auto source_items = shuffled(pages, items, seed);
    const auto target_items = shuffled(pages, items, seed + 1);
    mover->open_window(Window{session_1, transfer_1, 4, {{0, target_items}, {1, {1}}, {2, {3, 0}}}});
    const std::size_t half = pages / 2;
    const auto middle = source_items.begin() + static_cast<std::ptrdiff_t>(half);
    const auto wide = static_cast<std::uint32_t>(regions);
    mover->move(
        ChunkOrder{session_1, transfer_1, {0, 4, 4 + half, 0, wide, false}, {{0, {source_items.begin(), middle}}}});
    mover->move(ChunkOrder{session_1,
                           transfer_1,
                           {1, 4 + half, 4 + pages, 0, wide, true},
                           {{0, {middle, source_items.end()}}, {1, {2}}, {2, {1, 2}}}});
    const auto first = sink.wait<Placed>();
    const auto second = sink.wait<Placed>();
    RC_ASSERT(first && second && first->span.number == 0u && second->span.number == 1u);
    RC_ASSERT(second->with_aux && second->state_items == (std::vector<std::uint64_t>{2}));
    RC_ASSERT(first->bytes + second->bytes == pages * regions * item + 124 + 80);
    RC_ASSERT(same_items(from.memory.kv, source_items, to.memory.kv, target_items));
    RC_ASSERT(same_items(from.memory.aux, {2}, to.memory.aux, {1}));
    RC_ASSERT(same_items(from.memory.state[0].regions, {1, 2}, to.memory.state[0].regions, {3, 0}));
  });
  EXPECT_TRUE(held);
}

TEST(SameHost, chunks_outside_the_window_or_the_peers_regions_are_rejected) {
  TestMemory from(8, {4096});
  TestMemory to(16, {4096});
  TestSink sink;
  auto mover = SameHostMover::create(2, sink);
  mover->open_session(session_1, open_own(from.memory), layout::View::of(to.memory));
  mover->open_window(Window{session_1, transfer_1, 2, {{0, {9, 10}}}});
  mover->move(ChunkOrder{session_1, transfer_1, {0, 2, 5, 0, 1, true}, {{0, {1, 2, 3}}}});
  auto rejected = sink.wait<Rejected>(transfer_1);
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->error.code, Code::out_of_range);
  mover->open_window(Window{session_1, transfer_2, 0, {{0, {9, 10}}}});
  mover->move(ChunkOrder{session_1, transfer_2, {0, 0, 1, 0, 1, true}, {{0, {8}}}});
  ASSERT_TRUE(sink.wait<Rejected>(transfer_2)) << "the peer has 8 items";
  // The session goes on.
  mover->open_window(Window{session_1, TransferId{103}, 0, {{0, {9}}}});
  mover->move(ChunkOrder{session_1, TransferId{103}, {0, 0, 1, 0, 1, true}, {{0, {7}}}});
  ASSERT_TRUE(sink.wait<Placed>(TransferId{103}));
}

TEST(SameHost, memory_that_is_not_mapped_in_the_peer_rejects_the_transfer_alone) {
  TestMemory to(64, {4096});
  void* const hole = ::mmap(nullptr, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<std::byte*>(hole) + 4 * 4096, 60 * 4096), 0);
  Memory from;
  from.kv.push_back({hole, 64 * 4096, 4096});
  TestSink sink;
  auto mover = SameHostMover::create(2, sink);
  mover->open_session(session_1, open_own(from), layout::View::of(to.memory));
  mover->open_window(Window{session_1, transfer_1, 0, {{0, shuffled(64, 64, 1)}}});
  mover->open_window(Window{session_1, transfer_2, 0, {{0, {0}}}});
  std::vector<std::int32_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  mover->move(ChunkOrder{session_1, transfer_1, {0, 0, 64, 0, 1, true}, {{0, all}}});
  const auto rejected = sink.wait<Rejected>(transfer_1);
  ASSERT_TRUE(rejected);
  EXPECT_NE(rejected->error.text.find("not mapped"), std::string::npos) << rejected->error.text;
  mover->move(ChunkOrder{session_1, transfer_2, {0, 0, 1, 0, 1, true}, {{0, {2}}}});
  EXPECT_TRUE(sink.wait<Placed>(transfer_2));
  ::munmap(hole, 4 * 4096);
}

TEST(SameHost, a_killed_source_loses_the_session) {
  TestMemory buffers(64, {4096});
  Child child;  // has the same memory at the same addresses
  auto peer = open_peer_memory(child.same_host, "", describe_regions(buffers.memory), secret, 5000);
  ASSERT_TRUE(peer) << peer.error().text;
  TestSink sink;
  auto mover = SameHostMover::create(2, sink);
  mover->open_session(session_1, std::move(*peer), layout::View::of(buffers.memory));
  mover->open_window(Window{session_1, transfer_1, 0, {{0, {3}}}});
  mover->move(ChunkOrder{session_1, transfer_1, {0, 0, 1, 0, 1, false}, {{0, {1}}}});
  ASSERT_TRUE(sink.wait<Placed>(transfer_1));
  child.kill();
  mover->open_window(Window{session_1, transfer_2, 0, {{0, {3}}}});
  mover->move(ChunkOrder{session_1, transfer_2, {0, 0, 1, 0, 1, false}, {{0, {1}}}});
  const auto lost = sink.wait<SessionLost>();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->error.code, Code::peer_lost);
  mover->close_window(session_1, transfer_1);
  EXPECT_TRUE(sink.wait<WindowClosed>(transfer_1));
  mover->close_session(session_1);
  EXPECT_TRUE(sink.wait<SessionClosed>());
  EXPECT_EQ(sink.count<Placed>(), 0u);
}

TEST(SameHost, no_byte_lands_after_a_window_closed) {
  TestMemory from(2048, {16'384});
  TestMemory to(2048, {16'384});
  std::memset(from.buffers[0].data(), 1, from.buffers[0].size());
  TestSink sink;
  auto mover = SameHostMover::create(2, sink);
  mover->open_session(session_1, open_own(from.memory), layout::View::of(to.memory));
  for (int i = 0; i < 10; ++i) {
    mover->open_window(Window{session_1, transfer_1, 0, {{0, shuffled(2000, 2000, 1)}}});
    mover->move(ChunkOrder{session_1, transfer_1, {0, 0, 2000, 0, 1, true}, {{0, shuffled(2000, 2000, 2)}}});
    if (i % 2 == 0) sink.wait<Progress>();
    mover->close_window(session_1, transfer_1);
    ASSERT_TRUE(sink.wait<WindowClosed>(transfer_1));
    std::memset(to.buffers[0].data(), 2, to.buffers[0].size());
    // Whatever the workers had under way would have ended before this other transfer does.
    mover->open_window(Window{session_1, transfer_2, 0, {{0, {2001}}}});
    mover->move(ChunkOrder{session_1, transfer_2, {0, 0, 1, 0, 1, true}, {{0, {0}}}});
    ASSERT_TRUE(sink.wait<Placed>(transfer_2));
    mover->close_window(session_1, transfer_2);
    ASSERT_TRUE(sink.wait<WindowClosed>(transfer_2));
    ASSERT_FALSE(contains(to.buffers[0].data(), 2000 * 16'384, std::byte{1}));
  }
}

TEST(SameHost, a_process_is_proven_by_its_nonce) {
  auto me = own_same_host();
  auto found = verify_process(me);
  ASSERT_TRUE(found) << found.error().text;
  EXPECT_NE(::fcntl(found->get(), F_GETFD) & FD_CLOEXEC, 0);
  auto other = me;
  other.nonce.low ^= 1;
  EXPECT_EQ(verify_process(other).error().code, Code::unsupported);
  other = me;
  other.nonce_address = 8;
  EXPECT_EQ(verify_process(other).error().code, Code::unsupported);
  for (std::uint64_t pid : {std::uint64_t{0}, std::uint64_t{4'194'304}, std::uint64_t{1} << 40}) {
    other = me;
    other.pid = pid;
    EXPECT_EQ(verify_process(other).error().code, Code::unsupported);
  }
  Child child;
  EXPECT_NE(child.same_host.nonce, me.nonce) << "a forked child is another process";
}

TEST(SameHost, where_a_filter_forbids_the_call_the_reason_is_said) {
  const auto parent = own_same_host();
  EXPECT_EQ(in_child([&] {
              scmp_filter_ctx filter = ::seccomp_init(SCMP_ACT_ALLOW);
              if (filter == nullptr ||
                  ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(process_vm_readv), 0) != 0 ||
                  ::seccomp_load(filter) != 0) {
                return 98;
              }
              ::seccomp_release(filter);
              const auto verified = verify_process(parent);
              if (verified) return 1;
              if (verified.error().code != Code::unsupported) return 2;
              if (verified.error().text.find("ptrace") == std::string::npos) return 3;
              return open_peer_memory(parent, "", {{0, 4096, 4096, 4096, -1, 0}}, secret, 100) ? 4 : 0;
            }),
            0);
}

TEST(SameHost, a_process_without_rights_is_told) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  const auto parent = own_same_host();
  EXPECT_EQ(in_child([&] {
              if (::setgroups(0, nullptr) != 0 || ::setgid(65'534) != 0 || ::setuid(65'534) != 0) return 98;
              const auto verified = verify_process(parent);
              return !verified && verified.error().code == Code::unsupported ? 0 : 1;
            }),
            0);
}

struct SharedSource {
  SharedMemory block = *SharedMemory::allocate(64 * 4096);
  Memory memory;
  std::unique_ptr<MemoryServer> server;
  SharedSource() {
    memory.kv.push_back({block.data(), 32 * 4096, 4096});
    memory.kv.push_back({block.data() + 32 * 4096, 32 * 4096, 4096});
    for (std::size_t i = 0; i < block.size(); ++i) block.data()[i] = static_cast<std::byte>(i / 4096);
    server = MemoryServer::start(memory);
  }
};

TEST(SharedMemoryTest, is_sealed_found_again_and_forgotten_when_freed) {
  const void* where = nullptr;
  {
    auto made = SharedMemory::allocate(10'000);
    ASSERT_TRUE(made);
    EXPECT_GE(made->size(), 10'000u);
    where = made->data();
    const auto block = find_shared(made->data() + 100, 5'000);
    ASSERT_TRUE(block);
    EXPECT_NE(::fcntl(block->fd, F_GET_SEALS) & F_SEAL_SHRINK, 0);
    EXPECT_NE(::ftruncate(block->fd, 4096), 0);
    EXPECT_NE(::fcntl(block->fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_FALSE(find_shared(made->data() + 100, made->size()));
    SharedMemory moved = std::move(*made);
    EXPECT_TRUE(find_shared(moved.data(), 1));
  }
  EXPECT_FALSE(find_shared(where, 1));
  EXPECT_FALSE(SharedMemory::allocate(0));
  EXPECT_EQ(SharedMemory::allocate(std::size_t{1} << 60).error().code, Code::unsupported);
}

TEST(MemoryServerTest, shared_regions_are_read_where_process_vm_readv_is_forbidden) {
  SharedSource source;
  ASSERT_TRUE(source.server);
  source.server->expect(secret);
  const auto parent = own_same_host();
  const auto regions = describe_regions(source.memory);
  EXPECT_EQ(regions[1].shared, 0);
  EXPECT_EQ(regions[1].shared_offset, 32u * 4096);
  TestMemory to(32, {4096, 4096});
  EXPECT_EQ(in_child([&] {
              scmp_filter_ctx filter = ::seccomp_init(SCMP_ACT_ALLOW);
              ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(process_vm_readv), 0);
              if (::seccomp_load(filter) != 0) return 98;
              ::seccomp_release(filter);
              auto peer = open_peer_memory(parent, source.server->socket_name(), regions, secret, 5000);
              if (!peer) return 1;
              if ((*peer)->method() != "shared memory") return 2;
              auto& readable = static_cast<ReadablePeer&>(**peer);
              const std::vector<std::int32_t> pages{3, 30};
              const std::vector<std::int32_t> slots{0, 1};
              const layout::View view = layout::View::of(to.memory);
              const Pull pull{readable.regions(0), view.regions(0), pages, slots};
              Puller puller;
              const std::atomic<bool> cancelled{false};
              if (!puller.run(readable, std::span(&pull, 1), cancelled)) return 3;
              return to.buffers[0][4096] == std::byte{30} && to.buffers[1][0] == std::byte{35} ? 0 : 4;
            }),
            0);
}

TEST(MemoryServerTest, mappings_are_undone_where_the_opener_says) {
  SharedSource source;
  source.server->expect(secret);
  std::vector<std::function<void()>> elsewhere;
  auto peer = open_peer_memory(own_same_host(), source.server->socket_name(), describe_regions(source.memory), secret,
                               5000, [&](std::function<void()> work) { elsewhere.push_back(std::move(work)); });
  ASSERT_TRUE(peer) << peer.error().text;
  const auto mapped = static_cast<ReadablePeer&>(**peer).regions(0)[0].region.base;
  const auto is_mapped = [&] { return ::msync(mapped, 4096, MS_ASYNC) == 0; };
  TestMemory to(32, {4096, 4096});
  TestSink sink;
  auto mover = SameHostMover::create(2, sink);
  mover->open_session(session_1, std::move(*peer), layout::View::of(to.memory));
  mover->close_session(session_1);
  ASSERT_TRUE(sink.wait<SessionClosed>());
  ASSERT_EQ(elsewhere.size(), 1u);
  EXPECT_TRUE(is_mapped());
  elsewhere.clear();
  EXPECT_FALSE(is_mapped());
}

TEST(MemoryServerTest, a_wrong_secret_gets_nothing_and_a_right_one_works_once) {
  SharedSource source;
  source.server->expect(secret);
  const auto regions = describe_regions(source.memory);
  const auto open = [&](const Bits128& said) {
    auto peer = open_peer_memory(own_same_host(), source.server->socket_name(), regions, said, 5000);
    EXPECT_TRUE(peer) << "process_vm_readv is there to fall back on";
    return (*peer)->method();
  };
  EXPECT_EQ(open(Bits128{1, 1}), "process_vm_readv");
  EXPECT_EQ(open(secret), "shared memory");
  EXPECT_EQ(open(secret), "process_vm_readv");
  source.server->expect(secret);
  source.server->forget(secret);
  EXPECT_EQ(open(secret), "process_vm_readv");
}

TEST(MemoryServerTest, silent_peers_hold_up_nobody_and_are_sent_away) {
  SharedSource source;
  std::vector<os::Fd> silent;
  for (int i = 0; i < 40; ++i) {
    silent.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    socklen_t length = 0;
    const auto address = abstract_address(source.server->socket_name(), length);
    ASSERT_EQ(::connect(silent.back().get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  }
  source.server->expect(secret);
  auto peer =
      open_peer_memory(own_same_host(), source.server->socket_name(), describe_regions(source.memory), secret, 20'000);
  ASSERT_TRUE(peer);
  EXPECT_EQ((*peer)->method(), "shared memory");
  pollfd entry{.fd = silent.front().get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&entry, 1, 20'000), 1);
  char byte = 0;
  EXPECT_EQ(::recv(silent.front().get(), &byte, 1, 0), 0);
}

}  // namespace
}  // namespace kvferry::transport
