#include "tools/replay_messages.h"

#include <gtest/gtest.h>

#include "tools/replay_model.h"

namespace kvferry::tools {
namespace {

TEST(ReplayMessages, a_setup_survives_its_line) {
  const ReplaySetup setup{.role = Role::decode,
                          .model = "llama-8b",
                          .layers = 3,
                          .page_tokens = 64,
                          .pages = 1u << 30,
                          .seed = 7,
                          .transport = "tcp",
                          .host = "10.0.0.1",
                          .instance = "decode-7",
                          .bootstrap = "[::1]:80"};
  auto back = setup_of(to_line(setup));
  ASSERT_TRUE(back) << back.error().text;
  EXPECT_EQ(back->role, setup.role);
  EXPECT_EQ(back->model, setup.model);
  EXPECT_EQ(back->layers, setup.layers);
  EXPECT_EQ(back->page_tokens, setup.page_tokens);
  EXPECT_EQ(back->pages, setup.pages);
  EXPECT_EQ(back->seed, setup.seed);
  EXPECT_EQ(back->transport, setup.transport);
  EXPECT_EQ(back->host, setup.host);
  EXPECT_EQ(back->instance, setup.instance);
  EXPECT_EQ(back->bootstrap, setup.bootstrap);
}

TEST(ReplayMessages, an_assignment_survives_its_line) {
  const Assignment assignment{
      .room = ~std::uint64_t{0}, .tokens = 700, .hashes = {0, ~std::uint64_t{0}}, .bootstrap = "127.0.0.1:1"};
  auto back = order_of(to_line(assignment));
  ASSERT_TRUE(back) << back.error().text;
  const auto& same = std::get<Assignment>(*back);
  EXPECT_EQ(same.room, assignment.room);
  EXPECT_EQ(same.tokens, assignment.tokens);
  EXPECT_EQ(same.hashes, assignment.hashes);
  EXPECT_EQ(same.bootstrap, assignment.bootstrap);
}

TEST(ReplayMessages, giving_up_a_room_survives_its_line) {
  auto back = order_of(to_line(GiveUp{~std::uint64_t{0}}));
  ASSERT_TRUE(back) << back.error().text;
  EXPECT_EQ(std::get<GiveUp>(*back).room, ~std::uint64_t{0});
}

TEST(ReplayMessages, an_outcome_survives_its_line) {
  const RoomOutcome outcome{
      .room = 9, .error = "line\n\"two\"", .wrong_items = 1, .bytes = 2, .prefix_tokens = 3, .us = 4.5};
  const std::string line = to_line(outcome);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  auto back = outcome_of(line);
  ASSERT_TRUE(back) << back.error().text;
  EXPECT_EQ(back->room, outcome.room);
  EXPECT_EQ(back->error, outcome.error);
  EXPECT_EQ(back->wrong_items, outcome.wrong_items);
  EXPECT_EQ(back->bytes, outcome.bytes);
  EXPECT_EQ(back->prefix_tokens, outcome.prefix_tokens);
  EXPECT_EQ(back->us, outcome.us);
}

TEST(ReplayMessages, a_line_that_is_none_is_an_error) {
  EXPECT_FALSE(outcome_of(""));
  EXPECT_FALSE(outcome_of("{}"));
  EXPECT_FALSE(order_of(R"({"room": -1, "tokens": 1, "hashes": [], "bootstrap": ""})"));
  EXPECT_FALSE(setup_of("terminate called"));
}

TEST(ReplayModel, every_model_scales_to_about_4_kib_a_token) {
  for (const char* name : {"llama-8b", "llama-70b", "qwen2-7b", "deepseek-v3-mla"}) {
    auto model = model_shape(name, 0);
    ASSERT_TRUE(model) << model.error().text;
    EXPECT_GE(model->token_bytes(), 3500u) << name;
    EXPECT_LE(model->token_bytes(), 4700u) << name;
  }
}

TEST(ReplayModel, the_full_model_has_the_bytes_that_people_know) {
  EXPECT_EQ(model_shape("llama-8b", 32)->token_bytes(), 128u * 1024);
  EXPECT_EQ(model_shape("llama-70b", 80)->token_bytes(), 320u * 1024);
  EXPECT_EQ(model_shape("deepseek-v3-mla", 61)->token_bytes(), 61u * 1152);
}

TEST(ReplayModel, an_unknown_model_is_refused_with_the_known_ones) {
  auto model = model_shape("gpt-9", 0);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().text.find("llama-8b"), std::string::npos);
}

}  // namespace
}  // namespace kvferry::tools
