// The arithmetic does not depend on how a prompt is cut, where its pages lie, or who computed them.
#include "engine/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "engine/alone.h"
#include "engine/page_allocator.h"

namespace {

using namespace kvferry::engine;

ModelConfig small() { return {.layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .positions_max = 256}; }

std::vector<std::int32_t> prompt_of(std::size_t tokens, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> prompt(tokens);
  for (std::int32_t& token : prompt) token = static_cast<std::int32_t>(random.below(512));
  return prompt;
}

// One request in a cache of its own.
struct Bench {
  explicit Bench(const Model& the_model, std::optional<std::uint64_t> shuffle = {})
      : model(the_model), allocator(16, shuffle), pages(*allocator.allocate(16)) {}

  void prefill(std::span<const std::int32_t> prompt, std::size_t from, std::size_t chunk) {
    for (std::size_t start = from; start < prompt.size(); start += chunk) {
      std::vector<Row> rows;
      for (std::size_t i = start; i < std::min(prompt.size(), start + chunk); ++i) {
        rows.push_back({.token = prompt[i], .position = static_cast<std::uint32_t>(i), .pages = pages});
      }
      rows.back().logits = logits;
      model.forward(rows, cache, work);
    }
  }
  std::vector<int> decode(std::size_t position, std::size_t count) {
    std::vector<int> tokens{argmax(logits)};
    while (tokens.size() < count) {
      const Row row{tokens.back(), static_cast<std::uint32_t>(position++), pages, logits};
      model.forward({&row, 1}, cache, work);
      tokens.push_back(argmax(logits));
    }
    return tokens;
  }

  const Model& model;
  CacheShape shape = model.config().cache_shape(16, 1);
  PrivateMemory memory{shape.total_bytes()};
  KvCache cache{shape, memory.bytes()};
  PageAllocator allocator;
  std::vector<std::int32_t> pages;
  Model::Workspace work;
  std::vector<float> logits = std::vector<float>(model.config().vocab);
};

// Copies the pages as a hand-off does: item by item in every region.
void hand_over(const Bench& source, std::size_t first, std::size_t last, Bench& target) {
  const kvferry::Memory from = source.cache.regions();
  const kvferry::Memory to = target.cache.regions();
  for (std::size_t region = 0; region < from.kv.size(); ++region) {
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t item = from.kv[region].item_bytes;
      std::memcpy(
          static_cast<std::byte*>(to.kv[region].base) + item * static_cast<std::size_t>(target.pages[i]),
          static_cast<const std::byte*>(from.kv[region].base) + item * static_cast<std::size_t>(source.pages[i]), item);
    }
  }
}

TEST(model, one_go_chunks_and_single_tokens_give_the_same_bits) {
  const Model model(small(), 7);
  const auto prompt = prompt_of(85, 1);
  Bench whole(model);
  whole.prefill(prompt, 0, prompt.size());
  for (const std::size_t chunk : {1U, 2U, 7U, 16U, 33U, 64U}) {
    Bench cut(model, chunk);
    cut.prefill(prompt, 0, chunk);
    EXPECT_EQ(checksum(whole.logits), checksum(cut.logits)) << "chunk of " << chunk;
    Bench copy(model);
    hand_over(cut, 0, 6, copy);
    for (std::size_t page = 0; page < 5; ++page) {
      EXPECT_EQ(0, std::memcmp(whole.cache.k(1, whole.pages[page]), copy.cache.k(1, copy.pages[page]),
                               whole.shape.page_bytes()));
    }
  }
}

TEST(model, rows_of_other_requests_beside_it_change_nothing) {
  const Model model(small(), 7);
  const auto prompt = prompt_of(20, 2);
  Bench single(model);
  single.prefill(prompt, 0, prompt.size());
  const auto alone = single.decode(prompt.size(), 2);

  Bench shared(model);
  const std::span<const std::int32_t> pages(shared.pages);
  std::vector<std::vector<float>> logits(3, std::vector<float>(512));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    std::vector<Row> rows;
    for (std::size_t r = 0; r < 3; ++r) {
      const auto token = static_cast<std::int32_t>(r == 1 ? prompt[i] : prompt[(i + 5 * r) % prompt.size()]);
      rows.push_back({token, static_cast<std::uint32_t>(i), pages.subspan(r * 3, 3), logits[r]});
    }
    model.forward(rows, shared.cache, shared.work);
  }
  EXPECT_EQ(alone[0], argmax(logits[1]));
}

TEST(model, decoding_from_copied_pages_answers_as_one_process) {
  const Model model(small(), 11);
  for (const std::size_t tokens : {1U, 15U, 16U, 17U, 100U}) {
    const auto prompt = prompt_of(tokens, tokens);
    Bench prefill(model, 3);
    prefill.prefill(prompt, 0, 32);
    Bench decode(model, 4);
    hand_over(prefill, 0, model.config().pages_for(tokens), decode);
    decode.logits = prefill.logits;
    EXPECT_EQ(answer_alone(model, prompt, 12), decode.decode(tokens, 12)) << tokens << " tokens";
  }
}

TEST(model, a_prefix_of_an_earlier_request_answers_as_one_process) {
  const Model model(small(), 11);
  auto first = prompt_of(70, 5);
  auto second = prompt_of(90, 6);
  std::copy_n(first.begin(), 64, second.begin());
  Bench earlier(model);
  earlier.prefill(first, 0, 16);
  Bench prefill(model, 8);
  prefill.prefill(second, 0, 48);
  Bench decode(model, 9);
  hand_over(earlier, 0, 4, decode);
  hand_over(prefill, 4, 6, decode);
  decode.logits = prefill.logits;
  EXPECT_EQ(answer_alone(model, second, 12), decode.decode(second.size(), 12));
}

TEST(model, every_page_of_the_cache_matters) {
  const Model model(ModelConfig{}, 42);
  const auto prompt = prompt_of(120, 3);
  const auto right = answer_alone(model, prompt, 16);
  for (std::size_t page = 0; page < 8; ++page) {
    Bench bench(model);
    bench.prefill(prompt, 0, 64);
    std::fill_n(bench.cache.v(0, bench.pages[page]), bench.shape.page_floats(), 0.0F);
    const auto before = checksum(bench.logits);
    const Row row{right[0], 120, bench.pages, bench.logits};
    model.forward({&row, 1}, bench.cache, bench.work);
    EXPECT_NE(before, checksum(bench.logits)) << page;
  }
}

// Keys are cached after their rotation: without more, two whole pages could change places unnoticed.
TEST(model, two_pages_that_changed_places_are_noticed) {
  const Model model(ModelConfig{}, 42);
  std::size_t answers_changed = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto prompt = prompt_of(120, seed);
    Bench right(model);
    right.prefill(prompt, 0, 64);
    Bench wrong(model);
    wrong.prefill(prompt, 0, 64);
    std::swap(wrong.pages[1], wrong.pages[4]);
    const auto expected = right.decode(prompt.size(), 16);
    answers_changed += expected != wrong.decode(prompt.size(), 16) ? 1 : 0;
    EXPECT_NE(checksum(right.logits), checksum(wrong.logits)) << seed;
  }
  EXPECT_GE(answers_changed, 6U);
}

TEST(model, answers_vary_with_prompt_and_seed) {
  const Model model(ModelConfig{}, 1);
  std::set<std::vector<int>> answers;
  std::set<int> tokens;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto answer = answer_alone(model, prompt_of(40, i), 12);
    answers.insert(answer);
    tokens.insert(answer.begin(), answer.end());
  }
  EXPECT_EQ(8U, answers.size());
  EXPECT_GT(tokens.size(), 40U);
  EXPECT_NE(answer_alone(model, prompt_of(40, 0), 12), answer_alone(ModelConfig{}, 2, prompt_of(40, 0), 12));
}

// The same bits on every machine and with every compiler: a change of these numbers is a change of the model.
TEST(model, its_bits_are_pinned) {
  const Model model(ModelConfig{}, 1);
  Bench bench(model);
  bench.prefill(prompt_of(50, 1), 0, 50);
  EXPECT_EQ(9668834057238774480U, checksum(bench.logits));
}

TEST(model, sizes_it_cannot_work_with_are_refused_by_name) {
  ModelConfig config;
  EXPECT_TRUE(config.check());
  config.head_dim = 12;
  EXPECT_FALSE(config.check());
  config = {};
  config.vocab = 500;
  ASSERT_FALSE(config.check());
  EXPECT_NE(std::string::npos, config.check().error().text.find("vocab is 500"));
}

TEST(model, requests_it_cannot_answer_are_refused_in_words) {
  const ModelConfig config;
  const std::vector<std::int32_t> prompt(100, 3);
  EXPECT_TRUE(check_request(config, prompt, 16, 8));
  EXPECT_FALSE(check_request(config, prompt, 0, 8));
  EXPECT_FALSE(check_request(config, {}, 16, 8));
  EXPECT_FALSE(check_request(config, prompt, 16, 7));
  EXPECT_FALSE(check_request(config, prompt, 2000, 1000));
  EXPECT_FALSE(check_request(config, std::vector<std::int32_t>{512}, 1, 8));
  EXPECT_FALSE(check_request(config, std::vector<std::int32_t>{-1}, 1, 8));
}

}  // namespace
