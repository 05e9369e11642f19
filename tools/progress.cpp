#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "tools/report.h"

namespace kvferry::tools {
namespace {
constexpr std::size_t bar_width = 30;
constexpr std::chrono::milliseconds redraw_interval{100};
constexpr std::chrono::seconds line_interval{10};
}  // namespace

Progress::Progress(std::string label, std::uint64_t total)
    : label_(std::move(label)), total_(std::max<std::uint64_t>(total, 1)), terminal_(is_terminal(STDERR_FILENO)) {
  next_draw_ = terminal_ ? Clock::now() : Clock::now() + line_interval;
}

Progress::~Progress() { wipe(); }

void Progress::set(std::uint64_t done, const std::string& extra) {
  done_ = std::min(done, total_);
  bool quarter = !terminal_ && done_ * 4 >= next_quarter_ * total_;
  Clock::time_point now = Clock::now();
  if (now < next_draw_ && !quarter) return;
  next_draw_ = now + (terminal_ ? Clock::duration(redraw_interval) : Clock::duration(line_interval));
  next_quarter_ = done_ * 4 / total_ + 1;
  draw(extra);
}

void Progress::say(const std::string& line) {
  wipe();
  std::cerr << line << std::endl;
}

void Progress::draw(const std::string& extra) {
  std::string tail = fmt::format("{}/{}{}{}", done_, total_, extra.empty() ? "" : "  ", extra);
  if (!terminal_) {
    std::cerr << fmt::format("{}: {}\n", label_, tail) << std::flush;
    return;
  }
  std::size_t filled = bar_width * done_ / total_;
  std::string bar = std::string(filled, '#') + std::string(bar_width - filled, '.');
  std::cerr << fmt::format("\r\033[K{} [{}] {}", label_, bar, tail) << std::flush;
  drawn_ = true;
}

void Progress::wipe() {
  if (drawn_) std::cerr << "\r\033[K" << std::flush;
  drawn_ = false;
}

}  // namespace kvferry::tools
