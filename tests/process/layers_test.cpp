// Layers that are sent one by one, and state components beside them.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "process/split_ranks.h"

namespace kvferry::testing {
namespace {

TEST(Layers, that_have_come_can_be_read_while_later_ones_are_computed) {
  for (const Transport transport : {Transport::tcp, Transport::samehost}) {
    Instances both({.name = "", .prefill = {.tp = 2}, .decode = {.tp = 1}}, transport, 0);
    Rank& decode = *both.decode.front();
    const std::vector<std::int32_t> slots{4, 9, 2};
    const layout::Range tokens{0, 24};
    auto receiver = decode.manager->open_receiver(both.server->address(), 1);
    ASSERT_TRUE(receiver && receiver->init({.pages = slots}));
    std::vector<Sender> senders;
    for (auto& rank : both.prefill) {
      auto sender = rank->manager->open_sender(1);
      ASSERT_TRUE(sender && sender->init({.num_pages = 3}));
      rank->compute(1, 0, slots, tokens);
      senders.push_back(std::move(*sender));
    }
    const auto limit = std::chrono::steady_clock::now() + long_enough;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      EXPECT_EQ(receiver->layers_received(), layer);
      for (Sender& sender : senders) {
        ASSERT_TRUE(sender.send({.pages = slots, .layers = LayerRange{layer, layer + 1}}));
      }
      while (receiver->layers_received() == layer && std::chrono::steady_clock::now() < limit) {
        static_cast<void>(decode.manager->changed());
        pollfd changed{decode.manager->event_fd(), POLLIN, 0};
        ::poll(&changed, 1, 100);
      }
      ASSERT_EQ(receiver->layers_received(), layer + 1);
      EXPECT_EQ(decode.wrong(1, 0, slots, tokens, layer + 1), 0u);
    }
    EXPECT_EQ(receiver->wait(long_enough).value(), Poll::success);
  }
}

TEST(Layers, that_are_sent_twice_or_are_not_here_are_refused_and_nothing_is_lost) {
  Instances both({.name = "", .prefill = {.pp = 2}, .decode = {}}, Transport::tcp, 0);
  auto sender = both.prefill[1]->manager->open_sender(1);
  const std::vector<std::int32_t> page{1};
  ASSERT_TRUE(sender && sender->init({.num_pages = 2}));
  const auto refused = [&](const Chunk& chunk) { return sender->send(chunk).error().message(); };
  EXPECT_NE(refused({.pages = page, .layers = LayerRange{1, 3}}).find("layers [1, 3), but [2, 4) are here"),
            std::string::npos);
  EXPECT_NE(refused({.pages = page, .layers = LayerRange{2, 2}}).find("layers [2, 2)"), std::string::npos);
  ASSERT_TRUE(sender->send({.pages = page, .layers = LayerRange{2, 3}}));
  EXPECT_NE(refused({.pages = page, .first_page = 0})
                .find("pages [0, 1) of layers [2, 4) were sent already, or some of them"),
            std::string::npos);
  EXPECT_NE(refused({.pages = page, .first_page = 2}).find("1 pages from page 2 on, init announced 2"),
            std::string::npos);
  EXPECT_NE(refused({.pages = page, .state = {{1}}, .layers = LayerRange{3, 4}}).find("last chunk"), std::string::npos);
  EXPECT_TRUE(sender->send({.pages = page, .layers = LayerRange{3, 4}}));
  EXPECT_TRUE(sender->send({.pages = page}));
  EXPECT_NE(refused({.pages = page}).find("after the last chunk"), std::string::npos);
}

// A manager with one kv page size and these state components, each of eight items of one region.
struct StateRank {
  StateRank(Role role, const std::vector<StateComponent>& components, const std::string& bootstrap,
            const Settings& settings) {
    ManagerOptions options;
    options.role = role;
    options.memory.kv = {{kv.data(), kv.size() * 4, 64}};
    for (const StateComponent& component : components) {
      auto& buffer = buffers.emplace_back(8);
      options.memory.state.push_back({{{buffer.data(), 64, 8}}, component.name, component.optional});
    }
    options.format = {.dtype = "float32", .page_tokens = 16, .layers = 1, .kv_heads = 1, .head_dim = 1, .mla = true};
    options.instance = role == Role::prefill ? "prefill" : "decode";
    options.settings = settings;
    if (role == Role::prefill) options.bootstrap = bootstrap;
    auto made = KvManager::create(std::move(options));
    EXPECT_TRUE(made) << (made ? "" : made.error().message());
    manager.emplace(std::move(*made));
  }
  std::vector<std::uint32_t> kv = std::vector<std::uint32_t>(128);
  std::deque<std::vector<std::uint64_t>> buffers;
  std::optional<KvManager> manager;
};

using StateWay = std::tuple<Transport, bool>;
class States : public ::testing::TestWithParam<StateWay> {};
INSTANTIATE_TEST_SUITE_P(All, States,
                         ::testing::Combine(::testing::Values(Transport::tcp, Transport::samehost), ::testing::Bool()));

TEST_P(States, that_both_sides_have_move_and_others_stay) {
  Settings settings;
  settings.transport = std::get<0>(GetParam());
  settings.inline_bytes_max = std::get<1>(GetParam()) ? 1u << 20 : 0;
  auto server = BootstrapServer::start({.settings = settings});
  ASSERT_TRUE(server);
  StateRank prefill(Role::prefill, {{{}, "draft", true}, {{}, "mamba"}, {}}, server->address(), settings);
  StateRank decode(Role::decode, {{}, {{}, "mamba"}, {{}, "window", true}}, "", settings);
  const std::vector<std::int32_t> page{3};
  auto receiver = decode.manager->open_receiver(server->address(), 1);
  ASSERT_TRUE(receiver && receiver->init({.pages = page, .state = {{7}, {5, 2}, {1}}}));
  auto sender = prefill.manager->open_sender(1);
  ASSERT_TRUE(sender && sender->init({.num_pages = 1}));
  prefill.buffers[1][4] = 104;
  prefill.buffers[1][6] = 106;
  prefill.buffers[2][0] = 200;
  ASSERT_TRUE(sender->send({.pages = page, .state = {{0}, {4, 6}, {0}}}));
  ASSERT_EQ(receiver->wait(long_enough).value(), Poll::success) << receiver->error()->message();
  EXPECT_EQ(decode.buffers[1][5], 104u);
  EXPECT_EQ(decode.buffers[1][2], 106u);
  EXPECT_EQ(decode.buffers[0][7], 200u);
}

TEST(States, that_only_one_side_has_are_refused_when_they_link) {
  Settings settings;
  auto server = BootstrapServer::start({.settings = settings});
  ASSERT_TRUE(server);
  StateRank prefill(Role::prefill, {{{}, "mamba"}}, server->address(), settings);
  StateRank decode(Role::decode, {}, "", settings);
  auto receiver = decode.manager->open_receiver(server->address(), 1);
  ASSERT_TRUE(receiver);
  EXPECT_EQ(receiver->wait(long_enough).value(), Poll::failed);
  EXPECT_EQ(receiver->error()->code, Code::mismatch);
  EXPECT_NE(receiver->error()->text.find("state component 0 (mamba): only prefill has it"), std::string::npos)
      << receiver->error()->text;
}

}  // namespace
}  // namespace kvferry::testing
