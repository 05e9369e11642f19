// Instances of several ranks, split differently on the two sides: every rank a manager of its own, and memory in which
// every word says which it is.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvferry/kvferry.h"
#include "layout/ranks.h"

namespace kvferry::testing {

using namespace std::chrono_literals;
inline constexpr std::chrono::milliseconds long_enough = 20s;
inline constexpr std::uint32_t usual_page = 8;  // tokens
inline constexpr std::uint32_t layers = 4;
inline constexpr std::uint32_t head_words = 16;  // of one head of one token
inline constexpr std::int32_t pages = 128;

enum class Sending { in_order, by_layer, backwards };

struct Split {
  const char* name;
  Parallel prefill;
  Parallel decode;
  std::uint32_t kv_heads = 4;
  bool mla = false;
  bool joined = false;
  PageOrder order = PageOrder::token_head_dim;
  std::uint32_t prefill_page = usual_page;
  std::uint32_t decode_page = usual_page;
  Sending sending = Sending::in_order;
};

inline std::uint64_t pages_of(std::uint64_t tokens, std::uint64_t page) { return (tokens + page - 1) / page; }

inline std::uint32_t content(std::uint64_t room, std::uint64_t layer, std::uint64_t half, std::uint64_t head,
                             std::uint64_t token, std::uint64_t word) {
  return static_cast<std::uint32_t>(((((room * 7 + layer) * 2 + half) * 16 + head) * 1024 + token) * 32 + word + 1);
}

// One rank: its share of the model's memory and its manager.
class Rank {
 public:
  Rank(const Split& split, Role role, const Place& place, const std::string& bootstrap, const Settings& settings)
      : page_tokens(role == Role::prefill ? split.prefill_page : split.decode_page), split_(split), place_(place) {
    const Parallel& parallel = role == Role::prefill ? split.prefill : split.decode;
    heads_ = layout::heads_of(split.kv_heads, split.mla, parallel.tp, place.tp).value();
    const std::uint32_t stage = layers / parallel.pp;
    first_layer = place.pp * stage;
    end_layer = first_layer + stage;
    halves_ = split.mla ? 1 : 2;
    const std::uint32_t regions_a_layer = halves_ == 2 && !split.joined ? 2 : 1;
    words_.assign(stage * regions_a_layer, std::vector<std::uint32_t>(pages * item_words()));
    ManagerOptions options;
    options.role = role;
    for (auto& region : words_) options.memory.kv.push_back({region.data(), region.size() * 4, item_words() * 4});
    options.memory.aux.push_back({aux_.data(), aux_.size() * 8, 8});
    options.memory.first_layer = first_layer;
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

  // These tokens of the room stand in these pages from here on, of which the first is `first_page` of the request.
  void compute(std::uint64_t room, std::uint64_t first_page, std::span<const std::int32_t> items,
               const layout::Range& tokens) {
    each(first_page, items, tokens, [room](std::uint32_t& word, auto... where) { word = content(room, where...); });
  }
  std::size_t wrong(std::uint64_t room, std::uint64_t first_page, std::span<const std::int32_t> items,
                    const layout::Range& tokens, std::uint64_t layers_end = layers) {
    std::size_t count = 0;
    each(first_page, items, tokens, [&](std::uint32_t word, std::uint64_t layer, auto... where) {
      count += layer >= layers_end || word == content(room, layer, where...) ? 0 : 1;
    });
    return count;
  }
  std::uint64_t& aux(std::int32_t item) { return aux_[static_cast<std::size_t>(item)]; }
  const Place& place() const { return place_; }

  std::optional<KvManager> manager;
  std::uint32_t page_tokens;
  std::uint32_t first_layer = 0;
  std::uint32_t end_layer = 0;

 private:
  std::size_t item_words() const {
    return page_tokens * heads_.size() * head_words * (split_.joined && !split_.mla ? 2 : 1);
  }
  template <class Visit>
  void each(std::uint64_t first_page, std::span<const std::int32_t> items, const layout::Range& tokens, Visit visit) {
    const std::size_t stage = words_.size() / (halves_ == 2 && !split_.joined ? 2 : 1);
    for (std::size_t layer = 0; layer < stage; ++layer) {
      for (std::uint32_t half = 0; half < halves_; ++half) {
        auto& region = words_[split_.joined || split_.mla ? layer : half * stage + layer];
        for (std::size_t i = 0; i < items.size(); ++i) {
          std::uint32_t* page = region.data() + static_cast<std::size_t>(items[i]) * item_words();
          if (split_.joined) page += half * page_tokens * heads_.size() * head_words;
          for (std::uint64_t t = 0; t < page_tokens; ++t) {
            const std::uint64_t token = (first_page + i) * page_tokens + t;
            if (token < tokens.begin || token >= tokens.end) continue;
            for (std::uint64_t h = 0; h < heads_.size(); ++h) {
              const std::size_t at =
                  split_.order == PageOrder::token_head_dim ? t * heads_.size() + h : h * page_tokens + t;
              for (std::uint64_t w = 0; w < head_words; ++w) {
                visit(page[at * head_words + w], first_layer + layer, half, heads_.begin + h, token, w);
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

// All of these pages in chunks of two, as the split wants them sent.
inline void send(Sender& sender, const Rank& rank, std::span<const std::int32_t> items, Sending sending) {
  const std::size_t chunks = std::max<std::size_t>((items.size() + 1) / 2, 1);
  const auto chunk = [&](std::size_t number) {
    return items.subspan(number * 2, std::min<std::size_t>(2, items.size() - number * 2));
  };
  if (sending == Sending::in_order || items.empty()) {
    for (std::size_t i = 0; i < chunks; ++i) ASSERT_TRUE(sender.send({.pages = chunk(i)}));
    return;
  }
  for (std::size_t i = 0; i < chunks; ++i) {
    for (std::uint32_t layer = rank.first_layer; layer < rank.end_layer; ++layer) {
      Result<void> sent;
      if (sending == Sending::by_layer) {
        sent = sender.send({.pages = chunk(i), .layers = LayerRange{layer, layer + 1}});
      } else {
        const std::size_t number = chunks - 1 - i;
        const std::uint32_t back = rank.end_layer - 1 - (layer - rank.first_layer);
        sent = sender.send({.pages = chunk(number), .layers = LayerRange{back, back + 1}, .first_page = number * 2});
      }
      ASSERT_TRUE(sent) << sent.error().message();
    }
  }
}

// Items in a shuffled order, the same on every rank of an instance, as engines have it.
inline std::vector<std::int32_t> shuffled(std::uint64_t first, std::uint64_t count, std::uint64_t room,
                                          std::uint64_t step) {
  std::vector<std::int32_t> items;
  for (std::uint64_t i = first; i < first + count; ++i) {
    items.push_back(static_cast<std::int32_t>((i * step + room * 11) % pages));
  }
  return items;
}

// The tokens that a prefill rank sends: its share of what decode has not, in pages of the larger size.
inline layout::Range tokens_of(const Instances& both, const Rank& rank, std::uint64_t total, std::uint64_t prefix) {
  const std::uint64_t page = std::max(both.split.prefill_page, both.split.decode_page);
  const std::uint64_t first = prefix / page;
  const layout::Range share = layout::share_of(pages_of(total, page) - first, rank.place().cp, both.split.prefill.cp);
  return layout::intersection({prefix, total}, {(first + share.begin) * page, (first + share.end) * page});
}

// Hands one request over on all ranks, of which decode holds the first `prefix` tokens already.
inline void hand_over(Instances& both, std::uint64_t room, std::uint64_t total, std::uint64_t prefix) {
  const auto aux_item = static_cast<std::int32_t>(room % 16);
  const std::uint64_t decode_page = both.split.decode_page;
  const std::uint64_t held = prefix / decode_page;
  const auto slots = shuffled(0, pages_of(total, decode_page) - held, room, 37);
  std::vector<Receiver> receivers;
  for (auto& rank : both.decode) {
    rank->aux(aux_item) = 0;
    auto receiver = rank->manager->open_receiver(both.server->address(), room);
    ASSERT_TRUE(receiver) << receiver.error().message();
    ASSERT_TRUE(receiver->init({.pages = slots, .aux_index = aux_item, .prefix_pages = held}));
    receivers.push_back(std::move(*receiver));
  }
  std::vector<Sender> senders;
  for (auto& rank : both.prefill) {
    const layout::Range tokens = tokens_of(both, *rank, total, prefix);
    const std::uint64_t first = tokens.begin / rank->page_tokens;
    const std::uint64_t count = tokens.empty() ? 0 : pages_of(tokens.end, rank->page_tokens) - first;
    auto sender = rank->manager->open_sender(room);
    ASSERT_TRUE(sender) << sender.error().message();
    ASSERT_TRUE(sender->init({.num_pages = count, .aux_index = aux_item}));
    rank->aux(aux_item) = room;
    const auto items = shuffled(first, count, room, 29);
    rank->compute(room, first, items, tokens);
    send(*sender, *rank, items, both.split.sending);
    senders.push_back(std::move(*sender));
  }
  for (std::size_t i = 0; i < receivers.size(); ++i) {
    ASSERT_EQ(receivers[i].wait(long_enough).value(), Poll::success)
        << "decode rank " << i << ": " << receivers[i].error().value_or(Error{}).message();
    EXPECT_EQ(both.decode[i]->wrong(room, held, slots, {prefix, total}), 0u) << "decode rank " << i;
    EXPECT_EQ(both.decode[i]->aux(aux_item), room) << "decode rank " << i;
  }
  for (Sender& sender : senders) ASSERT_EQ(sender.wait(long_enough).value(), Poll::success);
}

}  // namespace kvferry::testing
