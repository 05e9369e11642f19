// Where reading another process is forbidden, data goes by TCP by itself. Each test forks before any thread runs.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>

#include "process/pair.h"

namespace kvferry::testing {
namespace {

// As a container without ptrace rights has it: process_vm_readv answers EPERM, to every thread of the process.
bool forbid_process_vm_readv() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

bool become_nobody() { return ::setgid(65'534) == 0 && ::setuid(65'534) == 0; }

void must(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "in the child: %s\n", what);
  ::_exit(1);
}

int exit_code_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// A decode process in a child that `restrict`s itself first; receives one room and checks how the bytes came.
void decode_in_a_child(const std::function<bool()>& restrict, bool prefill_shared, const std::string& expected) {
  int to_child[2];
  ASSERT_EQ(::pipe(to_child), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  PairOptions options;
  options.inline_bytes_max = 0;
  options.shared = prefill_shared;
  if (child == 0) {
    must(restrict(), "the restriction was not taken");
    char server[256] = {};
    must(::read(to_child[0], server, sizeof server - 1) > 0, "no address came");
    Buffers buffers(options.regions, options.pages, options.page_bytes, false, 0);
    ManagerOptions manager;
    manager.role = Role::decode;
    manager.memory = buffers.memory;
    manager.format = format_of(options);
    manager.settings.emplace();
    manager.settings->inline_bytes_max = 0;
    auto decode = KvManager::create(manager);
    must(decode.has_value(), "no manager");
    auto receiver = decode->open_receiver(server, 1);
    const std::vector<std::int32_t> page{7};
    must(receiver && receiver->init({page}), "no receiver");
    must(receiver->wait(long_enough).value() == Poll::success, "the room did not succeed");
    must(*buffers.page(2, 7) == std::byte{0xAA}, "the bytes are wrong");
    const auto transports = decode->stats().transports;
    must(transports.size() == 1 && transports[0].starts_with(expected),
         transports.empty() ? "-" : transports[0].c_str());
    ::_exit(0);
  }
  Pair pair(options);
  Sender sender = pair.sending(1);
  const std::vector<std::int32_t> page{3};
  ASSERT_TRUE(sender.init({1}));
  ASSERT_TRUE(sender.send({page}));
  const std::string server = pair.server->address();
  ASSERT_GT(::write(to_child[1], server.data(), server.size()), 0);
  EXPECT_EQ(exit_code_of(child), 0);
}

TEST(Fallback, without_process_vm_readv_data_goes_by_tcp) {
  decode_in_a_child(forbid_process_vm_readv, false, "tcp (same host, but its memory cannot be read");
}

TEST(Fallback, an_unprivileged_decode_process_gets_its_data_by_tcp) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  decode_in_a_child(become_nobody, false, "tcp (");
}

TEST(Fallback, two_processes_that_may_read_each_other_do) {
  decode_in_a_child([] { return true; }, false, "samehost (process_vm_readv");
  decode_in_a_child([] { return true; }, true, "samehost (shared memory");
}

TEST(Fallback, shared_regions_are_read_where_process_vm_readv_is_forbidden) {
  decode_in_a_child(forbid_process_vm_readv, true, "samehost (shared memory");
}

// One room of the child that decode_in_a_child forked, from its grant to its end.
Poll receive_one(KvManager& decode, const std::string& server, std::uint64_t room) {
  auto receiver = decode.open_receiver(server, room);
  const std::vector<std::int32_t> page{7};
  must(receiver && receiver->init({page}), "no receiver");
  return receiver->wait(long_enough).value();
}

TEST(Fallback, a_right_to_read_that_is_lost_after_linking_costs_the_rooms_under_way_and_no_later_one) {
  int to_child[2];
  ASSERT_EQ(::pipe(to_child), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  PairOptions options;
  options.inline_bytes_max = 0;
  if (child == 0) {
    char server[256] = {};
    must(::read(to_child[0], server, sizeof server - 1) > 0, "no address came");
    Buffers buffers(options.regions, options.pages, options.page_bytes, false, 0);
    ManagerOptions manager;
    manager.role = Role::decode;
    manager.memory = buffers.memory;
    manager.format = format_of(options);
    manager.settings.emplace().inline_bytes_max = 0;
    auto decode = KvManager::create(manager);
    must(decode.has_value(), "no manager");
    must(receive_one(*decode, server, 1) == Poll::success, "the first room did not succeed");
    must(decode->stats().transports.at(0).starts_with("samehost (process_vm_readv"), "not linked by process_vm_readv");
    must(forbid_process_vm_readv(), "the restriction was not taken");
    must(receive_one(*decode, server, 2) == Poll::failed, "a room was read without the right to");
    must(receive_one(*decode, server, 3) == Poll::success, "the next room did not go another way");
    must(*buffers.page(2, 7) == std::byte{0xAA}, "the bytes are wrong");
    must(decode->stats().transports.at(0).starts_with("tcp (same host"), "not linked by tcp");
    ::_exit(0);
  }
  Pair pair(options);
  const std::vector<std::int32_t> page{3};
  std::vector<Sender> senders;
  for (std::uint64_t room = 1; room <= 3; ++room) {
    senders.push_back(pair.sending(room));
    ASSERT_TRUE(senders.back().init({1}));
    ASSERT_TRUE(senders.back().send({page}));
  }
  const std::string server = pair.server->address();
  ASSERT_GT(::write(to_child[1], server.data(), server.size()), 0);
  EXPECT_EQ(exit_code_of(child), 0);
}

}  // namespace
}  // namespace kvferry::testing
