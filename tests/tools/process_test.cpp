#include "tools/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

namespace {

using kvferry::Code;
using kvferry::tools::Child;
using kvferry::tools::LineReader;
using std::chrono::milliseconds;

constexpr milliseconds limit{20'000};

Child start(const std::string& script) {
  auto child = Child::start({.arguments = {"-c", script}, .program = "/bin/sh"});
  EXPECT_TRUE(child) << child.error().message();
  return std::move(child).value();
}

TEST(process, lines_go_both_ways) {
  Child child = start("while read line; do echo \"got $line\"; done");
  ASSERT_TRUE(child.write_line("one"));
  ASSERT_TRUE(child.write_line("two"));
  EXPECT_EQ(child.read_line(limit).value(), "got one");
  EXPECT_EQ(child.read_line(limit).value(), "got two");
  child.close_stdin();
  ASSERT_TRUE(child.wait(limit));
  EXPECT_EQ(kvferry::tools::describe_status(*child.status()), "exited with 0");
}

TEST(process, its_stdout_can_be_polled) {
  Child child = start("read line; echo $line");
  pollfd readable{.fd = child.stdout_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  ASSERT_TRUE(child.write_line("x"));
  ASSERT_EQ(::poll(&readable, 1, static_cast<int>(limit.count())), 1);
}

TEST(process, a_killed_child_is_told_from_one_that_ended) {
  Child child = start("echo up; read forever");
  ASSERT_EQ(child.read_line(limit).value(), "up");
  EXPECT_FALSE(child.wait(milliseconds{0}));
  child.kill(SIGKILL);
  ASSERT_TRUE(child.wait(limit));
  EXPECT_EQ(kvferry::tools::describe_status(*child.status()), "was killed by SIGKILL");
  child.kill(SIGKILL);  // nothing: the number is no longer ours
}

TEST(process, reading_from_a_child_that_ended_says_how_it_ended) {
  Child child = start("printf 'no end'; exit 3");
  auto line = child.read_line(limit);
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().code, Code::peer_lost);
  EXPECT_NE(line.error().text.find("exited with 3"), std::string::npos) << line.error().text;
}

TEST(process, a_silent_child_is_a_timeout) {
  Child child = start("read forever");
  EXPECT_EQ(child.read_line(milliseconds{1}).error().code, Code::timeout);
}

TEST(process, writing_to_a_child_that_ended_is_an_error_and_not_a_signal) {
  ::signal(SIGPIPE, SIG_IGN);
  Child child = start("exit 0");
  ASSERT_TRUE(child.wait(limit));
  EXPECT_EQ(child.write_line("x").error().code, Code::peer_lost);
}

TEST(process, a_child_that_does_not_read_is_a_timeout) {
  Child child = start("exec sleep 60");
  EXPECT_EQ(child.write_line(std::string(1 << 20, 'x'), milliseconds{10}).error().code, Code::timeout);
}

TEST(process, a_program_that_is_not_there_is_an_error_in_words) {
  auto child = Child::start({.arguments = {}, .program = "/no/such/program"});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().text.find("/no/such/program: No such file"), std::string::npos) << child.error().text;
}

TEST(process, no_child_is_left_when_the_object_goes) {
  pid_t pid = 0;
  {
    Child child = start("read forever");
    pid = child.pid();
    Child moved = std::move(child);
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(process, a_child_does_not_outlive_the_process_that_started_it) {
  // The grandchild holds the pipe's only write end, so its end is the pipe's.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  pid_t middle = ::fork();
  if (middle == 0) {
    ::close(ends[0]);
    auto child = Child::start({.arguments = {"-c", "echo up; exec sleep 600"}, .program = "/bin/sh"});
    if (child && child->read_line(limit)) ::raise(SIGKILL);
    ::_exit(1);
  }
  ::close(ends[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(middle, &status, 0), middle);
  ASSERT_TRUE(WIFSIGNALED(status));
  pollfd closed{.fd = ends[0], .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&closed, 1, static_cast<int>(limit.count())), 1);
  EXPECT_TRUE(closed.revents & POLLHUP);
  ::close(ends[0]);
}

TEST(process, environment_and_stderr_file_reach_the_child) {
  std::string path = ::testing::TempDir() + "kvferry-process-test-" + std::to_string(::getpid());
  auto child = Child::start({.arguments = {"-c", "echo $KVFERRY_TEST_WORD; echo oops >&2"},
                             .program = "/bin/sh",
                             .environment = {{"KVFERRY_TEST_WORD", "ferry"}},
                             .stderr_path = path});
  ASSERT_TRUE(child);
  EXPECT_EQ(child->read_line(limit).value(), "ferry");
  ASSERT_TRUE(child->wait(limit));
  std::FILE* file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  char words[16] = {};
  EXPECT_NE(std::fgets(words, sizeof words, file), nullptr);
  EXPECT_STREQ(words, "oops\n");
  std::fclose(file);
  ::unlink(path.c_str());
}

TEST(process, lines_come_whole_however_they_are_cut) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  LineReader reader;
  auto write = [&](std::string_view text) { ASSERT_EQ(::write(ends[1], text.data(), text.size()), std::ssize(text)); };
  write("he");
  EXPECT_TRUE(reader.fill(ends[0]));
  EXPECT_FALSE(reader.next());
  write("llo\n\nrest");
  EXPECT_TRUE(reader.fill(ends[0]));
  EXPECT_EQ(reader.next(), "hello");
  EXPECT_EQ(reader.next(), "");
  EXPECT_FALSE(reader.next());
  write("!\nlast\n");
  ::close(ends[1]);
  EXPECT_FALSE(reader.fill(ends[0]));
  EXPECT_EQ(reader.next(), "rest!");
  EXPECT_EQ(reader.next(), "last");
  EXPECT_FALSE(reader.next());
  ::close(ends[0]);
}

}  // namespace
