// Every order of events of small stories, with at most so many troubles in them.
#include <gtest/gtest.h>

#include <cstdio>

#include "choices.h"
#include "small_world.h"

namespace {

using kvferry::core::DataPath;
using kvferry::sim::Choices;
using kvferry::sim::SmallWorld;
using kvferry::sim::Story;
using kvferry::sim::Trouble;

void explore(const char* name, const Story& story) {
  Choices choices;
  std::uint64_t schedules = 0;
  while (choices.next_run()) {
    SmallWorld world(story);
    std::string path;
    while (const std::size_t count = world.enabled()) {
      const std::size_t choice = choices.pick(count);
      path += std::to_string(choice) + " ";
      world.happen(choice);
      ASSERT_EQ(world.wrong(), "") << "after the choices " << path;
    }
    ASSERT_EQ(world.finish(), "") << "at the end of the choices " << path;
    ++schedules;
  }
  std::printf("%s: %llu schedules\n", name, static_cast<unsigned long long>(schedules));
}

TEST(explore, a_pushed_room_succeeds_in_every_order) { explore("push", {}); }

TEST(explore, a_pulled_room_succeeds_in_every_order) { explore("pull", {.path = DataPath::pull}); }

TEST(explore, two_chunks_arrive_in_every_order) { explore("two chunks", {.path = DataPath::pull, .chunks = {1, 1}}); }

TEST(explore, a_room_without_pages_ends) { explore("empty", {.chunks = {0}}); }

TEST(explore, an_abort_on_either_side_at_any_moment) {
  for (const DataPath path : {DataPath::push, DataPath::pull}) {
    explore("abort", {.path = path,
                      .linked = true,
                      .troubles = {Trouble::sender_aborts, Trouble::receiver_aborts},
                      .troubles_max = 1});
  }
}

TEST(explore, a_lost_link_at_any_moment_and_back) {
  for (const DataPath path : {DataPath::push, DataPath::pull}) {
    explore("link lost", {.path = path, .linked = true, .troubles = {Trouble::link_lost}, .troubles_max = 1});
  }
}

TEST(explore, the_number_is_used_again) { explore("two uses", {.path = DataPath::pull, .uses = 2, .linked = true}); }

}  // namespace
