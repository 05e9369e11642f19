// The schema is the reference of what is on the wire, and wire.md its introduction: neither may fall behind the code.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "protocol/codec.h"
#include "protocol/data_frame.h"

namespace kvferry::protocol {
namespace {

std::string text_of(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << ": run from the repository's root";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

template <std::size_t... kinds>
std::vector<std::string> names(std::index_sequence<kinds...>) {
  return {message_name(Message(std::in_place_index<kinds>))...};
}

TEST(schema, every_message_stands_in_it_and_in_the_reference_page) {
  const std::string schema = text_of("src/protocol/wire.proto");
  const std::string page = text_of("docs/reference/wire.md");
  for (const std::string& name : names(std::make_index_sequence<std::variant_size_v<Message>>())) {
    EXPECT_NE(schema.find("message " + name + " {"), std::string::npos) << name;
    EXPECT_NE(page.find('`' + name + '`'), std::string::npos) << name;
  }
}

TEST(schema, the_reference_page_has_the_numbers_of_the_code) {
  const std::string page = text_of("docs/reference/wire.md");
  for (const std::uint64_t number :
       {std::uint64_t{body_bytes_max}, std::uint64_t{handshake_body_bytes_max}, std::uint64_t{payload_bytes_max},
        std::uint64_t{text_bytes_max}, std::uint64_t{offer_items_max}, std::uint64_t{state_lists_max},
        data_payload_bytes_max}) {
    EXPECT_NE(page.find(std::to_string(number)), std::string::npos) << number;
  }
}

}  // namespace
}  // namespace kvferry::protocol
