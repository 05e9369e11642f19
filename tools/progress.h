// How far a command is, on stderr: a bar on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kvferry::tools {

// One thread. The bar is taken away again when the object goes, so that what follows starts on a clean line.
class Progress {
 public:
  Progress(std::string label, std::uint64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Cheap enough to be called for every item: it draws at most ten times a second.
  void set(std::uint64_t done, const std::string& extra = {});
  // A line beside the bar, for something worth telling at once.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& extra);
  void wipe();

  std::string label_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point next_draw_;
  std::uint64_t next_quarter_ = 1;  // plain lines come at each quarter of the way, and every ten seconds
};

}  // namespace kvferry::tools
