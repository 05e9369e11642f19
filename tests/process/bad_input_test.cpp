// What cannot be right is refused in words, where it belongs, and everything else goes on.
#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "process/pair.h"

namespace kvferry::testing {
namespace {

// The pair still hands over a room.
void expect_works(Pair& pair, std::uint64_t room) {
  const auto pages = shuffled_pages(3, 256, static_cast<unsigned>(room));
  fill_pages(pair.prefill_memory, pair.options.page_bytes, pages, 0, room);
  Sender sender = pair.sending(room);
  Receiver receiver = pair.receive(room);
  ASSERT_TRUE(receiver.init({pages}));
  ASSERT_TRUE(sender.init({pages.size()}));
  ASSERT_TRUE(sender.send({pages}));
  ASSERT_EQ(receiver.wait(long_enough).value(), Poll::success) << receiver.error()->message();
  ASSERT_EQ(sender.wait(long_enough).value(), Poll::success) << sender.error()->message();
  EXPECT_TRUE(pages_equal(pair.prefill_memory, pages, pair.decode_memory, pages, pair.options.page_bytes));
}

std::string failure_of(RoomHandle& handle) {
  const auto state = handle.wait(long_enough);
  if (!state || *state != Poll::failed) return "did not fail";
  return handle.error()->message();
}

void expect_has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in: " << text;
}

// A TCP connection of a stranger.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Stranger() { ::close(fd_); }
  void say(std::string_view bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Everything until the other side closes.
  std::string hear() {
    std::string heard;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd_, buffer, sizeof buffer, 0)) > 0;) heard.append(buffer, static_cast<size_t>(n));
    return heard;
  }

 private:
  int fd_;
};

TEST(BadInput, a_page_outside_of_the_regions_is_refused_at_the_call_and_nothing_is_lost) {
  Pair pair;
  Sender sender = pair.sending(1);
  Receiver receiver = pair.receive(1);
  const std::vector<std::int32_t> good{3}, beyond{256}, negative{-1};
  EXPECT_EQ(receiver.init({beyond}).error().code, Code::out_of_range);
  EXPECT_EQ(receiver.init({negative}).error().code, Code::out_of_range);
  EXPECT_EQ(receiver.init({good, 64}).error().code, Code::out_of_range);
  ASSERT_TRUE(receiver.init({good}));
  EXPECT_EQ(receiver.init({good}).error().code, Code::invalid_argument);
  ASSERT_TRUE(sender.init({1}));
  EXPECT_EQ(sender.send({beyond}).error().code, Code::out_of_range);
  EXPECT_EQ(sender.send({negative}).error().code, Code::out_of_range);
  ASSERT_TRUE(sender.send({good}));
  EXPECT_EQ(receiver.wait(long_enough).value(), Poll::success);
}

TEST(BadInput, sending_more_than_announced_or_after_the_last_chunk_is_refused) {
  Pair pair;
  Sender sender = pair.sending(1);
  const std::vector<std::int32_t> two{1, 2}, three{1, 2, 3};
  EXPECT_EQ(sender.send({two}).error().code, Code::invalid_argument);  // before init
  ASSERT_TRUE(sender.init({2}));
  expect_has(sender.send({three}).error().message(), {"3 pages", "announced 2"});
  ASSERT_TRUE(sender.send({two}));
  EXPECT_EQ(sender.send({two}).error().code, Code::invalid_argument);
  EXPECT_EQ(sender.send({}).error().code, Code::invalid_argument);
}

TEST(BadInput, counts_that_disagree_fail_the_room_on_both_sides_with_all_the_numbers) {
  Pair pair;
  const auto pages = shuffled_pages(5, 256, 1);
  Sender sender = pair.sending(1);
  Receiver receiver = pair.receive(1);
  ASSERT_TRUE(receiver.init({pages, {}, 4}));
  ASSERT_TRUE(sender.init({9}));
  expect_has(failure_of(sender), {"mismatch", "announced 9", "granted 9", "first 4"});
  expect_has(failure_of(receiver), {"mismatch", "announced 9", "granted 9", "first 4"});
  expect_works(pair, 2);
}

TEST(BadInput, chunks_that_wait_for_a_grant_are_bounded_and_the_engine_is_told) {
  Pair pair;
  pair.settings.chunks_queued_max = 4;
  pair.start_prefill();
  Sender sender = pair.sending(1);
  ASSERT_TRUE(sender.init({100}));
  const std::vector<std::int32_t> page{1};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(sender.send({page}));
  EXPECT_EQ(sender.send({page}).error().code, Code::try_later);
  expect_works(pair, 2);
}

TEST(BadInput, a_grant_for_a_room_that_nobody_opens_waits_and_goes_with_its_receiver) {
  Pair pair;
  expect_works(pair, 1);
  const auto pages = shuffled_pages(2, 256, 1);
  {
    Receiver receiver = pair.receive(77);
    ASSERT_TRUE(receiver.init({pages}));
    while (pair.prefill->stats().orphan_grants != 1) std::this_thread::yield();
  }
  while (pair.prefill->stats().orphan_grants != 0) std::this_thread::yield();
  expect_works(pair, 2);
}

TEST(BadInput, ranks_that_do_not_fit_are_refused_when_they_link_with_both_values) {
  Pair pair;
  const auto expect_refused = [&](ManagerOptions other, std::initializer_list<const char*> parts) {
    other.role = Role::decode;
    other.memory = pair.decode_memory.memory;
    other.settings = pair.settings;
    auto decode = KvManager::create(std::move(other));
    ASSERT_TRUE(decode) << decode.error().message();
    auto receiver = decode->open_receiver(pair.server->address(), 5);
    ASSERT_TRUE(receiver);
    expect_has(failure_of(*receiver), parts);
  };
  ManagerOptions other;
  other.format = format_of(pair.options);
  other.format.page_tokens = 64;
  expect_refused(other, {"mismatch", "16", "64"});
  other.format = format_of(pair.options);
  other.format.dtype = "float8_e4m3";
  expect_refused(other, {"mismatch", "bfloat16", "float8_e4m3"});
  other.format = format_of(pair.options);
  other.format.layers = 80;
  expect_refused(other, {"mismatch", "80", "2"});
  expect_works(pair, 6);
}

TEST(BadInput, a_token_that_one_side_lacks_is_named_on_both) {
  Pair pair({.token = "a shared secret"});
  expect_works(pair, 1);
  Settings without = pair.settings;
  without.token.clear();
  ManagerOptions options;
  options.role = Role::decode;
  options.memory = pair.decode_memory.memory;
  options.format = format_of(pair.options);
  options.settings = without;
  auto decode = KvManager::create(std::move(options));
  ASSERT_TRUE(decode);
  auto receiver = decode->open_receiver(pair.server->address(), 5);
  ASSERT_TRUE(receiver);
  expect_has(failure_of(*receiver), {"unauthorized", "KVFERRY_TOKEN"});
  expect_works(pair, 2);
}

TEST(BadInput, http_and_noise_on_the_control_port_are_answered_or_closed_and_rooms_go_on) {
  Pair pair;
  pair.settings.connect_timeout = 300ms;
  pair.start_prefill();
  Stranger browser(pair.prefill->address());
  browser.say("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  expect_has(browser.hear(), {"HTTP/1.1 400", "control port"});
  Stranger noise(pair.prefill->address());
  noise.say(std::string(64, '\xfe'));
  noise.hear();
  Stranger half(pair.prefill->address());
  half.say(std::string("KVF1\x10", 5));
  expect_works(pair, 1);  // while it stays silent
  half.hear();            // until the handshake's deadline closes it
  Stranger huge(pair.prefill->address());
  huge.say(std::string("KVF1\xff\xff\xff\x7f\x00\x00\x00\x00", 12));
  huge.hear();
  expect_works(pair, 2);
}

TEST(BadInput, the_control_protocol_on_the_http_port_is_refused_and_the_server_goes_on) {
  Pair pair;
  Stranger lost(pair.server->address());
  lost.say(std::string("KVF1\x04\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04\r\n\r\n", 20));
  expect_has(lost.hear(), {"400"});
  expect_works(pair, 1);
}

TEST(BadInput, an_unknown_host_or_a_dead_bootstrap_server_is_named_when_the_wait_ends) {
  Pair pair;
  pair.settings.waiting_timeout = 400ms;
  pair.start_decode();
  auto unknown = pair.decode->open_receiver("no-such-host.invalid:8998", 1);
  ASSERT_TRUE(unknown);
  auto silent = pair.decode->open_receiver("127.0.0.1:1", 2);
  ASSERT_TRUE(silent);
  expect_has(failure_of(*unknown), {"timeout", "waiting timeout", "no-such-host.invalid"});
  expect_has(failure_of(*silent), {"timeout", "waiting timeout", "127.0.0.1:1"});
  EXPECT_EQ(pair.decode->open_receiver("10.0.0.1", 3).error().code, Code::invalid_argument);
  expect_works(pair, 4);
}

TEST(BadInput, a_port_in_use_or_a_public_address_without_a_token_is_refused_at_start) {
  Pair pair;
  ManagerOptions options;
  options.memory = pair.prefill_memory.memory;
  options.format = format_of(pair.options);
  options.settings = pair.settings;
  const std::string taken = pair.prefill->address();
  options.port = static_cast<std::uint16_t>(std::stoi(taken.substr(taken.rfind(':') + 1)));
  auto second = KvManager::create(options);
  ASSERT_FALSE(second);
  expect_has(second.error().message(), {"unreachable", "in use"});
  options.settings->host = "8.8.8.8";
  auto open_to_all = KvManager::create(options);
  ASSERT_FALSE(open_to_all);
  expect_has(open_to_all.error().message(), {"unauthorized", "KVFERRY_TOKEN"});
}

TEST(BadInput, memory_that_is_null_empty_ragged_or_not_mapped_does_not_register) {
  Pair pair;
  const auto refused = [&](Region region) {
    ManagerOptions options;
    options.memory = pair.prefill_memory.memory;
    options.memory.kv[1] = region;
    options.settings = pair.settings;
    const auto made = KvManager::create(std::move(options));
    return made ? std::string("registered") : made.error().message();
  };
  const Region good = pair.prefill_memory.memory.kv[1];
  expect_has(refused({nullptr, good.length, good.item_bytes}), {"invalid_argument", "region 1"});
  expect_has(refused({good.base, 0, good.item_bytes}), {"invalid_argument", "region 1"});
  expect_has(refused({good.base, good.length, 5000}), {"invalid_argument", "region 1"});
  expect_has(refused({good.base, good.length, good.item_bytes, MemoryKind::cuda}), {"unsupported", "region 1"});
  void* hole = ::mmap(nullptr, good.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  ::munmap(hole, good.length);
  expect_has(refused({hole, good.length, good.item_bytes}), {"invalid_argument", "region 1", "not mapped"});
}

std::size_t open_sockets() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).string().starts_with("socket:")) ++count;
  }
  return count;
}

// A copy of a link in a child that sleeps on would hide from the peer that this process was killed.
TEST(BadInput, a_forked_child_has_no_links_streams_and_listeners) {
  const std::size_t before = open_sockets();
  for (const PairOptions& options : {PairOptions{Transport::tcp}, PairOptions{Transport::samehost, true}}) {
    Pair pair(options);
    expect_works(pair, 1);
    ASSERT_GT(open_sockets(), before);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(open_sockets() == before ? 0 : 1);
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    expect_works(pair, 2);
  }
}

TEST(BadInput, a_manager_refuses_to_work_in_a_forked_child) {
  Pair pair;
  expect_works(pair, 1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto sender = pair.prefill->open_sender(9);
    pair.prefill.reset();
    pair.decode.reset();
    pair.server.reset();
    ::_exit(!sender && sender.error().code == Code::closed ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expect_works(pair, 2);
}

}  // namespace
}  // namespace kvferry::testing
