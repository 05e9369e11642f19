// Rooms between instances that are split differently, and what happens to them when a rank dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "process/split_ranks.h"

namespace kvferry::testing {
namespace {

bool is_granted(const std::vector<const Sender*>& senders) {
  const auto granted = [&] {
    return std::ranges::all_of(senders, [](const Sender* sender) { return sender->poll() == Poll::waiting_for_input; });
  };
  const auto limit = std::chrono::steady_clock::now() + long_enough;
  while (!granted() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  return granted();
}

const std::vector<Split> splits{
    {"wider_decode", {.tp = 2}, {.tp = 4}},
    {"wider_prefill", {.tp = 4}, {.tp = 2}},
    {"to_one", {.tp = 4}, {.tp = 1}},
    {"replicated_heads", {.tp = 4}, {.tp = 2}, 2},
    {"replicated_on_decode", {.tp = 1}, {.tp = 4}, 2},
    {"mla_wider_prefill", {.tp = 2}, {.tp = 1}, 1, true},
    {"mla_wider_decode", {.tp = 1}, {.tp = 2}, 1, true},
    {"pipeline_to_one", {.pp = 2}, {}},
    {"pipeline_to_pipeline", {.pp = 2}, {.pp = 2}},
    {"pipeline_and_heads", {.tp = 2, .pp = 2}, {.tp = 4}},
    {"context", {.cp = 3}, {}},
    {"context_and_heads", {.tp = 2, .cp = 2}, {.tp = 1}},
    {"joined", {.tp = 2}, {.tp = 1}, 4, false, true},
    {"head_first", {.tp = 1}, {.tp = 2}, 4, false, false, PageOrder::head_token_dim},
    {"joined_head_first", {.tp = 2}, {.tp = 4}, 4, false, true, PageOrder::head_token_dim},
    {.name = "layers", .prefill = {}, .decode = {}, .sending = Sending::by_layer},
    {.name = "layers_pipeline", .prefill = {.tp = 2, .pp = 2}, .decode = {.tp = 1}, .sending = Sending::by_layer},
    {.name = "backwards", .prefill = {.pp = 2}, .decode = {.pp = 2}, .sending = Sending::backwards},
    {.name = "larger_decode_pages", .prefill = {}, .decode = {}, .prefill_page = 4, .decode_page = 16},
    {.name = "larger_prefill_pages", .prefill = {}, .decode = {}, .prefill_page = 16, .decode_page = 4},
    {.name = "pages_and_heads",
     .prefill = {.tp = 2, .cp = 2},
     .decode = {.tp = 4},
     .order = PageOrder::head_token_dim,
     .prefill_page = 4,
     .decode_page = 8,
     .sending = Sending::backwards},
    {.name = "pages_and_stages",
     .prefill = {.tp = 2, .pp = 2},
     .decode = {.tp = 1},
     .joined = true,
     .prefill_page = 16,
     .decode_page = 8,
     .sending = Sending::by_layer},
};

using Way = std::tuple<Split, Transport, bool>;
class Splits : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(All, Splits,
                         ::testing::Combine(::testing::ValuesIn(splits),
                                            ::testing::Values(Transport::tcp, Transport::samehost), ::testing::Bool()),
                         [](const auto& way) {
                           return std::string(std::get<0>(way.param).name) +
                                  (std::get<1>(way.param) == Transport::tcp ? "_tcp" : "_samehost") +
                                  (std::get<2>(way.param) ? "_inline" : "");
                         });

TEST_P(Splits, every_rank_gets_its_bytes) {
  const auto& [split, transport, inlined] = GetParam();
  Instances both(split, transport, inlined ? 1u << 20 : 0, inlined ? Verify::off : Verify::crc32c);
  hand_over(both, 1, 55, 0);
  hand_over(both, 2, 72, 2ul * 16);
  hand_over(both, 3, 79, 3ul * 16 + 8 / split.decode_page * split.decode_page);
  hand_over(both, 4, 48, 48);  // decode holds all of it
}

// Groups of ranks that feed each other fail together. Others learn of it from their engine, whose ranks agree anyway.
TEST(SplitRanks, killing_a_prefill_rank_fails_the_room_on_every_rank_that_it_is_linked_with) {
  Instances both({"", {.tp = 4}, {.tp = 2}}, Transport::tcp, 0);
  hand_over(both, 1, 32, 0);
  std::vector<Receiver> receivers;
  std::vector<Sender> senders;
  const std::vector<std::int32_t> page{1};
  for (auto& rank : both.decode) {
    auto receiver = rank->manager->open_receiver(both.server->address(), 2);
    ASSERT_TRUE(receiver && receiver->init({.pages = page}));
    receivers.push_back(std::move(*receiver));
  }
  for (auto& rank : both.prefill) {
    auto sender = rank->manager->open_sender(2);
    ASSERT_TRUE(sender && sender->init({.num_pages = 1}));
    senders.push_back(std::move(*sender));
  }
  std::vector<const Sender*> all;
  for (const Sender& sender : senders) all.push_back(&sender);
  ASSERT_TRUE(is_granted(all));
  const std::string lost = both.prefill[3]->manager->address();
  both.prefill[3]->manager.reset();  // feeds decode rank 1
  EXPECT_EQ(receivers[1].wait(long_enough).value(), Poll::failed);
  EXPECT_EQ(receivers[1].error()->code, Code::peer_lost);
  EXPECT_EQ(senders[2].wait(long_enough).value(), Poll::failed) << "it feeds the same decode rank";
  EXPECT_NE(senders[2].error()->text.find("(peer_lost): peer " + lost + ": "), std::string::npos)
      << "the reason is the same: " << senders[2].error()->message();
  EXPECT_EQ(receivers[0].poll(), Poll::waiting_for_input);
}

TEST(SplitRanks, killing_a_decode_rank_fails_the_room_on_every_rank_of_its_group) {
  Instances both({"", {.tp = 1}, {.tp = 2}}, Transport::samehost, 0);
  hand_over(both, 1, 32, 0);
  const std::vector<std::int32_t> page{1};
  std::vector<Receiver> receivers;
  for (auto& rank : both.decode) {
    auto receiver = rank->manager->open_receiver(both.server->address(), 2);
    ASSERT_TRUE(receiver && receiver->init({.pages = page}));
    receivers.push_back(std::move(*receiver));
  }
  auto sender = both.prefill[0]->manager->open_sender(2);
  ASSERT_TRUE(sender && sender->init({.num_pages = 1}));
  ASSERT_TRUE(is_granted({&*sender}));
  both.decode[1]->manager.reset();
  EXPECT_EQ(sender->wait(long_enough).value(), Poll::failed);
  EXPECT_EQ(receivers[0].wait(long_enough).value(), Poll::failed);
  EXPECT_NE(receivers[0].error()->text.find("peer_lost"), std::string::npos) << receivers[0].error()->message();
  EXPECT_TRUE(receivers[0].wait_pages_released(long_enough));
}

TEST(SplitRanks, layers_that_nobody_holds_fail_the_room_in_words) {
  Split split{"", {.pp = 2}, {}};
  Settings settings;
  auto server = BootstrapServer::start({.settings = settings});
  ASSERT_TRUE(server);
  // Both prefill ranks say that they begin with layer 0: layers 2 and 3 are missing.
  Split lying = split;
  lying.prefill = {.pp = 2};
  std::vector<std::unique_ptr<Rank>> prefill;
  prefill.push_back(std::make_unique<Rank>(lying, Role::prefill, Place{.pp = 0}, server->address(), settings));
  Memory memory;
  std::vector<std::vector<std::uint32_t>> words(4, std::vector<std::uint32_t>(8 * usual_page * 4 * head_words));
  for (auto& region : words) memory.kv.push_back({region.data(), region.size() * 4, usual_page * 4 * head_words * 4});
  std::vector<std::uint64_t> aux(16);
  memory.aux.push_back({aux.data(), aux.size() * 8, 8});
  ManagerOptions options;
  options.role = Role::prefill;
  options.memory = memory;
  options.format = {
      .dtype = "float32", .page_tokens = usual_page, .layers = layers, .kv_heads = 4, .head_dim = head_words};
  options.parallel = {.pp = 2};
  options.place = {.pp = 1};
  options.instance = "prefill";
  options.bootstrap = server->address();
  options.settings = settings;
  auto second = KvManager::create(std::move(options));
  ASSERT_TRUE(second) << second.error().message();
  Rank decode(split, Role::decode, {}, "", settings);
  auto receiver = decode.manager->open_receiver(server->address(), 1);
  ASSERT_TRUE(receiver);
  EXPECT_EQ(receiver->wait(long_enough).value(), Poll::failed);
  EXPECT_EQ(receiver->error()->code, Code::mismatch);
  EXPECT_NE(receiver->error()->text.find("of a page in kv region 0"), std::string::npos) << receiver->error()->text;
}

}  // namespace
}  // namespace kvferry::testing
