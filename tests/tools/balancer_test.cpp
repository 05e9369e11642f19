#include "tools/balancer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>

#include "fake_engine.h"
#include "tools/demo_prompts.h"
#include "tools/demo_report.h"

namespace {

using namespace kvferry::tools;
using State = Outcome::State;
using std::chrono::milliseconds;

// One prefill and two decode engines, all fake.
class Demo : public ::testing::Test {
 protected:
  Demo() {
    ::signal(SIGPIPE, SIG_IGN);
    std::filesystem::create_directories(folder_);
    for (const char* name : {"prefill-0", "decode-0", "decode-1"}) {
      std::string role(name, std::string_view(name).find('-'));
      std::vector<std::string> arguments{"--role", role, "--state", folder_ + "/" + name};
      owned_.push_back(std::make_unique<EngineProcess>(name, "127.0.0.1:1", std::move(arguments), folder_ + "/log"));
      engines_.push_back(owned_.back().get());
      EXPECT_TRUE(owned_.back()->start());
    }
  }
  ~Demo() override {
    owned_.clear();
    std::filesystem::remove_all(folder_);
  }

  // A request whose prompt begins with an order; 0 is none.
  void ask(std::int32_t order, std::size_t decode = 1) {
    auto number = static_cast<std::int32_t>(result_.requests.size());
    result_.requests.push_back(
        {.prompt = {order, number, 7}, .max_tokens = 3, .prefill = 0, .decode = decode, .after = {}});
    result_.expected.push_back({order + number + 7, 3});
  }

  DemoResult& run(std::optional<Kill> kill = {}) {
    Balancer balancer(engines_, result_.requests, limits_);
    auto ran = balancer.run(kill, [](std::size_t) {});
    EXPECT_TRUE(ran) << ran.error().message();
    for (const EngineProcess* engine : engines_) result_.engine_names.push_back(engine->name());
    result_.outcomes = balancer.outcomes();
    result_.notices = balancer.notices();
    result_.losses = balancer.losses();
    result_.killed = balancer.killed();
    result_.prefill_open = balancer.prefill_open();
    result_.kill_wanted = kill.has_value();
    return result_;
  }

  std::string json() {
    Report report("");
    judge(result_, report);
    return report.json();
  }

  std::string folder_ = ::testing::TempDir() + "kvferry-demo-test-" + std::to_string(::getpid());
  std::vector<std::unique_ptr<EngineProcess>> owned_;
  std::vector<EngineProcess*> engines_;
  Balancer::Limits limits_{
      .request = milliseconds{60'000}, .orphan = milliseconds{60'000}, .farewell = milliseconds{1}};
  DemoResult result_;
};

TEST_F(Demo, every_request_goes_to_its_pair_and_is_answered) {
  for (std::size_t i = 0; i < 20; ++i) ask(0, 1 + i % 2);
  result_.requests[9].after = 8;
  run();
  for (const Outcome& outcome : result_.outcomes) EXPECT_EQ(outcome.state, State::done);
  EXPECT_NE(json().find(R"({"ok":true,"figures":{"requests":20,"identical":20,"wrong":0,"failed":0,"hung":0,)"),
            std::string::npos)
      << json();
  for (EngineProcess* engine : engines_) EXPECT_TRUE(engine->quit(milliseconds{20'000}));
}

TEST_F(Demo, a_wrong_answer_is_found) {
  ask(0);
  ask(fake::lie);
  run();
  EXPECT_NE(json().find(R"("ok":false)"), std::string::npos);
  EXPECT_NE(json().find(R"("wrong":1)"), std::string::npos);
}

TEST_F(Demo, a_failed_request_is_not_tried_again_when_nobody_was_killed) {
  ask(fake::fail);
  run();
  EXPECT_EQ(result_.outcomes[0].state, State::failed);
  EXPECT_FALSE(result_.outcomes[0].retried);
  ASSERT_EQ(result_.notices.size(), 1U);
  EXPECT_EQ(result_.notices[0].by, "decode-0");
  EXPECT_EQ(result_.notices[0].error, "made to fail");
  EXPECT_NE(json().find(R"("ok":false)"), std::string::npos);
}

TEST_F(Demo, prefill_is_told_of_a_request_that_only_decode_has_given_up) {
  ask(fake::fail);
  limits_.orphan = milliseconds{1};
  limits_.farewell = milliseconds{60'000};
  run();
  EXPECT_EQ(result_.prefill_open, 0U);
  ASSERT_EQ(result_.notices.size(), 2U);
  EXPECT_EQ(result_.notices[1].by, "prefill-0");
  EXPECT_EQ(result_.notices[1].code, "aborted");
}

TEST_F(Demo, a_request_that_nobody_answers_is_hung) {
  ask(fake::hang);
  limits_.request = milliseconds{50};
  run();
  EXPECT_EQ(result_.outcomes[0].state, State::hung);
  EXPECT_NE(json().find(R"("hung":1)"), std::string::npos);
}

TEST_F(Demo, requests_of_a_killed_engine_are_tried_again_and_others_do_not_notice) {
  for (std::size_t i = 0; i < 20; ++i) ask(i % 5 == 1 ? fake::hang_in_first_life : 0, i % 5 == 1 ? 1 : 2);
  limits_.farewell = milliseconds{60'000};
  run(Kill{.engine = 1, .after_done = 10});
  ASSERT_TRUE(result_.killed);
  EXPECT_EQ(result_.killed->how, "was killed by SIGKILL");
  EXPECT_TRUE(result_.killed->ready_ms);
  EXPECT_GE(result_.killed->answers, 10U);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(result_.outcomes[i].state, State::done);
    EXPECT_EQ(result_.outcomes[i].retried, result_.outcomes[i].needed_killed);
    EXPECT_EQ(result_.outcomes[i].needed_killed, i % 5 == 1);
  }
  ASSERT_FALSE(result_.notices.empty());
  EXPECT_EQ(result_.notices[0].by, "load balancer");
  EXPECT_NE(json().find(R"("ok":true)"), std::string::npos) << json();
  EXPECT_NE(json().find(R"("killed_requests":4,"retried":4,"identical_elsewhere":16)"), std::string::npos) << json();
}

TEST_F(Demo, an_engine_that_ends_by_itself_fails_its_requests_and_the_demo) {
  ask(fake::end, 1);
  for (int i = 0; i < 8; ++i) ask(0, 1);
  for (int i = 0; i < 8; ++i) ask(0, 2);
  run();
  EXPECT_EQ(result_.outcomes[0].state, State::failed);
  EXPECT_NE(result_.outcomes[0].answer.error.find("decode-0 exited with 7"), std::string::npos);
  for (std::size_t i = 9; i < 17; ++i) EXPECT_EQ(result_.outcomes[i].state, State::done);
  EXPECT_FALSE(result_.losses.empty());
  EXPECT_NE(json().find(R"("ok":false)"), std::string::npos);
}

TEST(demo_prompts, the_same_plan_gives_the_same_prompts_and_every_pair_works) {
  PromptPlan plan{.requests = 24, .prefills = 2, .decodes = 3, .seed = 5, .vocab = 512, .page_tokens = 16};
  DemoPrompts prompts = make_prompts(plan);
  ASSERT_EQ(prompts.requests.size(), 24U);
  std::set<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < 24; ++i) {
    const DemoRequest& request = prompts.requests[i];
    EXPECT_EQ(request.prompt, make_prompts(plan).requests[i].prompt);
    for (std::int32_t token : request.prompt) EXPECT_TRUE(token >= 0 && token < 512);
    EXPECT_GE(request.decode, 2U);
    EXPECT_LT(request.decode, 5U);
    pairs.insert({*request.prefill, request.decode});
  }
  EXPECT_EQ(pairs.size(), 6U);
}

TEST(demo_prompts, one_prompt_is_asked_twice_of_one_decode_engine_in_whole_pages) {
  DemoPrompts prompts =
      make_prompts({.requests = 24, .prefills = 2, .decodes = 2, .seed = 5, .vocab = 512, .page_tokens = 16});
  ASSERT_TRUE(prompts.repeated);
  const DemoRequest& repeated = prompts.requests[*prompts.repeated];
  EXPECT_EQ(repeated.prompt, prompts.requests[0].prompt);
  EXPECT_EQ(repeated.decode, prompts.requests[0].decode);
  EXPECT_EQ(repeated.after, 0U);
  EXPECT_EQ(repeated.prompt.size() % 16, 0U);
}

TEST(demo_prompts, a_single_request_is_enough) {
  DemoPrompts prompts =
      make_prompts({.requests = 1, .prefills = 1, .decodes = 1, .seed = 5, .vocab = 512, .page_tokens = 16});
  EXPECT_EQ(prompts.requests.size(), 1U);
  EXPECT_FALSE(prompts.repeated);
}

TEST(engine_protocol, what_is_no_answer_is_other_and_does_no_harm) {
  for (const char* line : {"", "garbage", "[]", "{}", R"({"type":7})", R"({"type":"hello","id":"x"})"}) {
    EXPECT_EQ(parse_answer(line).kind, EngineAnswer::Kind::other) << line;
  }
  EngineAnswer odd = parse_answer(R"({"type":"done","id":-4,"tokens":["a",2],"bytes":1.5,"handoff_us":"x"})");
  EXPECT_EQ(odd.kind, EngineAnswer::Kind::done);
  EXPECT_EQ(odd.tokens, (std::vector<std::int32_t>{-1, 2}));
}

}  // namespace
