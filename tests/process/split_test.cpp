// Instances of several ranks, split differently on the two sides: every rank a manager of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kvferry/kvferry.h"
#include "layout/ranks.h"

namespace kvferry::testing {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds long_enough = 20s;
constexpr std::uint32_t page_tokens = 8;
constexpr std::uint32_t layers = 4;
constexpr std::uint32_t head_words = 16;  // of one head of one token
constexpr std::int32_t pages = 64;

struct Split {
  const char* name;
  Parallel prefill;
  Parallel decode;
  std::uint32_t kv_heads = 4;
  bool mla = false;
  bool joined = false;
  PageOrder order = PageOrder::token_head_dim;
};

std::uint32_t content(std::uint64_t room, std::uint64_t layer, std::uint64_t half, std::uint64_t head,
                      std::uint64_t token, std::uint64_t word) {
  return static_cast<std::uint32_t>(((((room * 7 + layer) * 2 + half) * 16 + head) * 1024 + token) * 32 + word + 1);
}

// One rank: its share of the model's memory and its manager.
class Rank {
 public:
  Rank(const Split& split, Role role, const Place& place, const std::string& bootstrap, const Settings& settings)
      : split_(split), place_(place) {
    const Parallel& parallel = role == Role::prefill ? split.prefill : split.decode;
    heads_ = layout::heads_of(split.kv_heads, split.mla, parallel.tp, place.tp).value();
    const std::uint32_t stage = layers / parallel.pp;
    first_layer_ = place.pp * stage;
    halves_ = split.mla ? 1 : 2;
    const std::uint32_t regions_a_layer = halves_ == 2 && !split.joined ? 2 : 1;
    words_.assign(stage * regions_a_layer, std::vector<std::uint32_t>(pages * item_words()));
    ManagerOptions options;
    options.role = role;
    for (auto& region : words_) options.memory.kv.push_back({region.data(), region.size() * 4, item_words() * 4});
    options.memory.aux.push_back({aux_.data(), aux_.size() * 8, 8});
    options.memory.first_layer = first_layer_;
    options.format = {.dtype = "float32",
                      .page_tokens = page_tokens,
                      .layers = layers,
                      .kv_heads = split.kv_heads,
                      .head_dim = head_words,
                      .mla = split.mla,
                      .order = split.order,
                      .kv_joined = split.joined};
    options.parallel = parallel;
    options.place = place;
    options.instance = role == Role::prefill ? "prefill" : "decode";
    options.settings = settings;
    if (role == Role::prefill) options.bootstrap = bootstrap;
    auto made = KvManager::create(std::move(options));
    EXPECT_TRUE(made) << (made ? "" : made.error().message());
    manager.emplace(std::move(*made));
  }

  // Tokens [first, first + count * page_tokens) of the room stand in these pages from here on.
  void compute(std::uint64_t room, std::uint64_t first_page, std::span<const std::int32_t> items) {
    each(first_page, items, [room](std::uint32_t& word, auto... where) { word = content(room, where...); });
  }
  std::size_t wrong(std::uint64_t room, std::uint64_t first_page, std::span<const std::int32_t> items) {
    std::size_t count = 0;
    each(first_page, items,
         [&](std::uint32_t word, auto... where) { count += word == content(room, where...) ? 0 : 1; });
    return count;
  }
  std::uint64_t& aux(std::int32_t item) { return aux_[static_cast<std::size_t>(item)]; }
  const Place& place() const { return place_; }

  std::optional<KvManager> manager;

 private:
  std::size_t item_words() const {
    return page_tokens * heads_.size() * head_words * (split_.joined && !split_.mla ? 2 : 1);
  }
  template <class Visit>
  void each(std::uint64_t first_page, std::span<const std::int32_t> items, Visit visit) {
    const std::size_t stage = words_.size() / (halves_ == 2 && !split_.joined ? 2 : 1);
    for (std::size_t layer = 0; layer < stage; ++layer) {
      for (std::uint32_t half = 0; half < halves_; ++half) {
        auto& region = words_[split_.joined || split_.mla ? layer : half * stage + layer];
        for (std::size_t i = 0; i < items.size(); ++i) {
          std::uint32_t* page = region.data() + static_cast<std::size_t>(items[i]) * item_words();
          if (split_.joined) page += half * page_tokens * heads_.size() * head_words;
          for (std::uint64_t t = 0; t < page_tokens; ++t) {
            for (std::uint64_t h = 0; h < heads_.size(); ++h) {
              const std::size_t at =
                  split_.order == PageOrder::token_head_dim ? t * heads_.size() + h : h * page_tokens + t;
              for (std::uint64_t w = 0; w < head_words; ++w) {
                visit(page[at * head_words + w], first_layer_ + layer, half, heads_.begin + h,
                      (first_page + i) * page_tokens + t, w);
              }
            }
          }
        }
      }
    }
  }

  Split split_;
  Place place_;
  layout::Range heads_;
  std::uint32_t first_layer_ = 0;
  std::uint32_t halves_ = 2;
  std::vector<std::vector<std::uint32_t>> words_;
  std::vector<std::uint64_t> aux_ = std::vector<std::uint64_t>(16);
};

class Instances {
 public:
  Instances(const Split& the_split, Transport transport, std::uint64_t inline_bytes_max, Verify verify = Verify::off)
      : split(the_split) {
    settings.transport = transport;
    settings.inline_bytes_max = inline_bytes_max;
    settings.verify = verify;
    auto started = BootstrapServer::start({.settings = settings});
    EXPECT_TRUE(started);
    server.emplace(std::move(*started));
    for (const Place& place : places(split.prefill)) {
      prefill.push_back(std::make_unique<Rank>(split, Role::prefill, place, server->address(), settings));
    }
    for (const Place& place : places(split.decode)) {
      decode.push_back(std::make_unique<Rank>(split, Role::decode, place, "", settings));
    }
  }
  static std::vector<Place> places(const Parallel& parallel) {
    std::vector<Place> all;
    for (std::uint32_t pp = 0; pp < parallel.pp; ++pp) {
      for (std::uint32_t cp = 0; cp < parallel.cp; ++cp) {
        for (std::uint32_t tp = 0; tp < parallel.tp; ++tp) all.push_back({.tp = tp, .pp = pp, .cp = cp});
      }
    }
    return all;
  }

  Split split;
  Settings settings;
  std::optional<BootstrapServer> server;
  std::vector<std::unique_ptr<Rank>> prefill;
  std::vector<std::unique_ptr<Rank>> decode;
};

// Hands one request over on all ranks, in chunks of two pages, with the first `prefix` pages held by decode already.
void hand_over(Instances& both, std::uint64_t room, std::uint64_t total, std::uint64_t prefix) {
  const auto aux_item = static_cast<std::int32_t>(room % 16);
  std::vector<std::int32_t> slots;  // in a shuffled order, the same on every decode rank, as engines have it
  for (std::uint64_t i = 0; i < total - prefix; ++i) {
    slots.push_back(static_cast<std::int32_t>((i * 37 + room * 11) % pages));
  }
  std::vector<Receiver> receivers;
  for (auto& rank : both.decode) {
    rank->aux(aux_item) = 0;
    auto receiver = rank->manager->open_receiver(both.server->address(), room);
    ASSERT_TRUE(receiver) << receiver.error().message();
    ASSERT_TRUE(receiver->init({.pages = slots, .aux_index = aux_item, .prefix_pages = prefix}));
    receivers.push_back(std::move(*receiver));
  }
  std::vector<Sender> senders;
  for (auto& rank : both.prefill) {
    const layout::Range share = layout::share_of(total - prefix, rank->place().cp, both.split.prefill.cp);
    auto sender = rank->manager->open_sender(room);
    ASSERT_TRUE(sender) << sender.error().message();
    ASSERT_TRUE(sender->init({.num_pages = share.size(), .aux_index = aux_item}));
    rank->aux(aux_item) = room;
    std::vector<std::int32_t> items;
    for (std::uint64_t i = share.begin; i < share.end; ++i) {
      items.push_back(static_cast<std::int32_t>((i * 29 + room * 5) % pages));
    }
    rank->compute(room, prefix + share.begin, items);
    for (std::size_t at = 0; at < items.size() || at == 0; at += 2) {
      const std::size_t count = std::min<std::size_t>(2, items.size() - at);
      ASSERT_TRUE(sender->send({.pages = std::span(items).subspan(at, count)}));
    }
    senders.push_back(std::move(*sender));
  }
  for (std::size_t i = 0; i < receivers.size(); ++i) {
    ASSERT_EQ(receivers[i].wait(long_enough).value(), Poll::success)
        << "decode rank " << i << ": " << receivers[i].error().value_or(Error{}).message();
    EXPECT_EQ(both.decode[i]->wrong(room, prefix, slots), 0u) << "decode rank " << i;
    EXPECT_EQ(both.decode[i]->aux(aux_item), room) << "decode rank " << i;
  }
  for (Sender& sender : senders) ASSERT_EQ(sender.wait(long_enough).value(), Poll::success);
}

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
  hand_over(both, 1, 7, 0);
  hand_over(both, 2, 9, 4);
  hand_over(both, 3, 5, 5);  // decode holds all of it
}

// Groups of ranks that feed each other fail together. Others learn of it from their engine, whose ranks agree anyway.
TEST(SplitRanks, killing_a_prefill_rank_fails_the_room_on_every_rank_that_it_is_linked_with) {
  Instances both({"", {.tp = 4}, {.tp = 2}}, Transport::tcp, 0);
  hand_over(both, 1, 4, 0);
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
  hand_over(both, 1, 4, 0);
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
  std::vector<std::vector<std::uint32_t>> words(4, std::vector<std::uint32_t>(8 * page_tokens * 4 * head_words));
  for (auto& region : words) memory.kv.push_back({region.data(), region.size() * 4, page_tokens * 4 * head_words * 4});
  std::vector<std::uint64_t> aux(16);
  memory.aux.push_back({aux.data(), aux.size() * 8, 8});
  ManagerOptions options;
  options.role = Role::prefill;
  options.memory = memory;
  options.format = {
      .dtype = "float32", .page_tokens = page_tokens, .layers = layers, .kv_heads = 4, .head_dim = head_words};
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
