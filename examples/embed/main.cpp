// A prefill and a decode engine in one process, handing over one request of three pages. In real life they are two
// processes on two machines; nothing in prefill() or decode() would change.
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "kvferry/kvferry.h"

using namespace kvferry;

constexpr std::size_t page_bytes = 16 * 8 * 128 * 2;  // 16 tokens, 8 heads of 128 values, bfloat16
constexpr std::size_t pages = 64, buffers = 2 * 4;    // K and V of four layers

// What an engine tells kvferry once: its role, its model and where its KV cache lies.
ManagerOptions describe(Role role, std::vector<std::byte>& cache) {
  ManagerOptions options;
  options.role = role;
  options.format.layers = 4;
  options.format.kv_heads = 8;
  options.format.head_dim = 128;
  for (std::size_t i = 0; i < buffers; ++i) {
    options.memory.kv.push_back({cache.data() + i * pages * page_bytes, pages * page_bytes, page_bytes});
  }
  return options;
}

// readme: begin
Result<Poll> prefill(KvManager& manager, std::uint64_t room) {
  Result<Sender> sender = manager.open_sender(room);
  if (!sender) return sender.error();
  const std::int32_t first[] = {3, 4}, second[] = {17};  // pages of this engine's cache
  if (auto done = sender->init({.num_pages = 3}); !done) return done.error();
  if (auto done = sender->send({.pages = first}); !done) return done.error();   // as soon as they are computed
  if (auto done = sender->send({.pages = second}); !done) return done.error();  // completes the three: the last chunk
  return sender->wait(std::chrono::seconds(10));
}

Result<Poll> decode(KvManager& manager, const std::string& bootstrap, std::uint64_t room) {
  Result<Receiver> receiver = manager.open_receiver(bootstrap, room);
  if (!receiver) return receiver.error();
  const std::int32_t into[] = {40, 8, 9};  // pages of this engine's cache
  if (auto done = receiver->init({.pages = into}); !done) return done.error();
  return receiver->wait(std::chrono::seconds(10));  // success: every byte is in place
}
// readme: end

int fail(const char* what, const Error& error) {
  std::fprintf(stderr, "%s: %s\n", what, error.message().c_str());
  return 1;
}

int main() {
  std::vector<std::byte> computed(buffers * pages * page_bytes), received(computed.size());
  for (std::size_t i = 0; i < computed.size(); ++i) computed[i] = static_cast<std::byte>(i * 31 + i / page_bytes);

  Result<BootstrapServer> server = BootstrapServer::start({});
  if (!server) return fail("bootstrap server", server.error());
  ManagerOptions options = describe(Role::prefill, computed);
  options.bootstrap = server->address();
  Result<KvManager> prefill_rank = KvManager::create(options);
  if (!prefill_rank) return fail("prefill manager", prefill_rank.error());
  Result<KvManager> decode_rank = KvManager::create(describe(Role::decode, received));
  if (!decode_rank) return fail("decode manager", decode_rank.error());

  const std::uint64_t room = 7;  // the number that the load balancer gives both sides
  Result<Poll> sent = Poll::bootstrapping;
  std::thread prefill_engine([&] { sent = prefill(*prefill_rank, room); });
  Result<Poll> got = decode(*decode_rank, server->address(), room);
  prefill_engine.join();
  if (!sent) return fail("prefill", sent.error());
  if (!got) return fail("decode", got.error());

  const std::size_t from[] = {3, 4, 17}, to[] = {40, 8, 9};
  bool equal = true;
  for (std::size_t buffer = 0; buffer < buffers; ++buffer) {
    for (std::size_t i = 0; i < 3; ++i) {
      equal = equal && std::memcmp(&computed[(buffer * pages + from[i]) * page_bytes],
                                   &received[(buffer * pages + to[i]) * page_bytes], page_bytes) == 0;
    }
  }
  std::printf("room %llu: prefill says %s, decode says %s, %zu bytes are %s\n", static_cast<unsigned long long>(room),
              poll_name(*sent), poll_name(*got), 3 * buffers * page_bytes, equal ? "equal" : "NOT EQUAL");
  return *sent == Poll::success && *got == Poll::success && equal ? 0 : 1;
}
