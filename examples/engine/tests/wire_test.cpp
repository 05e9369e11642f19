// Orders from outside never end the engine.
#include <gtest/gtest.h>

#include "engine/wire.h"

namespace kvferry::engine {
namespace {

TEST(Wire, a_request_is_read_whole) {
  const auto order =
      parse_order(R"({"type":"request","id":7,"room":9,"bootstrap":"h:1","prompt":[1,2],"max_tokens":3})");
  ASSERT_TRUE(order);
  const auto& request = std::get<Request>(*order);
  EXPECT_EQ(request.id, 7U);
  EXPECT_EQ(request.room, 9U);
  EXPECT_EQ(request.bootstrap, "h:1");
  EXPECT_EQ(request.prompt, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(request.max_tokens, 3U);
}

TEST(Wire, orders_that_cannot_be_are_refused_in_words) {
  for (const char* line : {"", "nonsense", "[]", "{}", R"({"type":"dance"})", R"({"type":"abort"})",
                           R"({"type":"request","id":1})", R"({"type":"request","id":-1,"room":2,"max_tokens":1})",
                           R"({"type":"request","id":1,"room":2,"max_tokens":0,"prompt":[1]})",
                           R"({"type":"request","id":1,"room":2,"max_tokens":1,"prompt":["x"]})",
                           R"({"type":"request","id":1,"room":2,"max_tokens":1,"prompt":[-1]})"}) {
    const auto order = parse_order(line);
    ASSERT_FALSE(order) << line;
    EXPECT_EQ(order.error().code, Code::invalid_argument);
  }
}

}  // namespace
}  // namespace kvferry::engine
