#include "tools/chaos_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/html_page.h"

namespace kvferry::tools {

namespace {

constexpr double width = 1200;
constexpr double left = 80;  // for the names of the lanes
constexpr double lane_height = 26;
constexpr double curve_height = 150;
constexpr double gap = 24;

const char* colour(FaultKind kind) {
  switch (kind) {
    case FaultKind::kill:
      return "#c0392b";
    case FaultKind::stop:
      return "#d68910";
    case FaultKind::pause:
      return "#f4d03f";
    case FaultKind::cut:
      return "#8e44ad";
    case FaultKind::delay:
      return "#bb8fce";
    case FaultKind::bootstrap:
      return "#2e86c1";
  }
  return "#888";
}

std::string milliseconds(std::optional<double> at_s, double from_s) {
  return at_s ? fmt::format("{:.0f}", (*at_s - from_s) * 1e3) : "";
}

class Picture {
 public:
  explicit Picture(const ChaosResult& result)
      : result_(result), seconds_(std::max(result.seconds, 1.0)), lanes_(result.workers.size()) {}

  std::string draw() {
    const double height = lanes_bottom() + gap + curve_height + gap;
    fmt::format_to(out(), "<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", width, height);
    for (std::size_t lane = 0; lane < lanes_; ++lane) draw_lane(lane);
    for (const FaultRecord& record : result_.faults) draw_fault(record);
    draw_curve();
    draw_axis(height);
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(svg_); }
  double x(double at_s) const { return left + at_s / seconds_ * (width - left - 10); }
  double y(std::size_t lane) const { return 4 + static_cast<double>(lane) * lane_height; }
  double lanes_bottom() const { return y(lanes_); }

  void draw_lane(std::size_t lane) {
    fmt::format_to(out(), "<text x=\"0\" y=\"{:.1f}\">{}</text><rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" ",
                   y(lane) + 15, html_escaped(result_.workers[lane]), left, y(lane), width - left - 10,
                   lane_height - 6);
    svg_ += "fill=\"#27ae60\" fill-opacity=\"0.18\"/>\n";
  }

  void draw_fault(const FaultRecord& record) {
    const double end_s = record.ended_s.value_or(seconds_);
    const double top = y(record.fault.worker);
    fmt::format_to(out(),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{} of {} at "
                   "{:.2f} s for {:.2f} s; {} rooms with it, {} failed</title></rect>\n",
                   x(record.began_s), top, std::max(1.5, x(end_s) - x(record.began_s)), lane_height - 6,
                   colour(record.fault.kind), fault_name(record.fault.kind),
                   html_escaped(result_.workers[record.fault.worker]), record.began_s, end_s - record.began_s,
                   record.rooms_with_it, record.rooms_failed);
    mark(record.noticed_s, top, "#000", "its peers noticed");
    mark(record.recovered_s, top, "#1e8449", "the first room succeeded with it again");
  }

  void mark(std::optional<double> at_s, double top, const char* stroke, const char* what) {
    if (!at_s) return;
    fmt::format_to(out(),
                   "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
                   "stroke-width=\"2\"><title>{4} at {5:.3f} s</title></line>\n",
                   x(*at_s), top, top + lane_height - 6, stroke, what, *at_s);
  }

  void draw_curve() {
    const auto& bytes = result_.bytes_by_bucket;
    if (bytes.empty()) return;
    const double top = lanes_bottom() + gap;
    const double most = static_cast<double>(std::max<std::uint64_t>(1, *std::ranges::max_element(bytes)));
    fmt::format_to(out(), "<polyline fill=\"#2e86c1\" fill-opacity=\"0.2\" stroke=\"#2e86c1\" points=\"{:.1f},{:.1f} ",
                   x(0), top + curve_height);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const double at_s = std::min(seconds_, (static_cast<double>(i) + 0.5) * result_.bucket_s);
      fmt::format_to(out(), "{:.1f},{:.1f} ", x(at_s), top + curve_height * (1 - static_cast<double>(bytes[i]) / most));
    }
    fmt::format_to(out(), "{:.1f},{:.1f}\"/>\n", x(seconds_), top + curve_height);
    fmt::format_to(out(), "<text x=\"0\" y=\"{:.1f}\">{:.2f} GB/s</text><text x=\"0\" y=\"{:.1f}\">0</text>\n",
                   top + 10, most / result_.bucket_s / 1e9, top + curve_height);
  }

  void draw_axis(double height) {
    const double step = std::max(1.0, std::pow(10, std::floor(std::log10(seconds_))) / (seconds_ > 30 ? 2 : 5));
    for (double at = 0; at <= seconds_; at += step) {
      fmt::format_to(out(), "<text x=\"{:.1f}\" y=\"{:.1f}\">{:.0f} s</text>\n", x(at), height - 6, at);
    }
  }

  const ChaosResult& result_;
  double seconds_;
  std::size_t lanes_;
  std::string svg_;
};

std::string legend() {
  std::string out = "<p>";
  for (const FaultKind kind :
       {FaultKind::kill, FaultKind::stop, FaultKind::pause, FaultKind::cut, FaultKind::delay, FaultKind::bootstrap}) {
    out += fmt::format("<span style=\"color:{}\">&#9632;</span> {} &nbsp; ", colour(kind), fault_name(kind));
  }
  return out +
         "<span class=\"soft\">black line: noticed; green line: the first success after it; below: what got "
         "through</span></p>\n";
}

std::string fault_table(const ChaosResult& result) {
  std::string out =
      "<h2>What happened</h2>\n<table><tr><th>at, s</th><th class=\"word\">fault</th><th class=\"word\">worker</th>"
      "<th>lasted, s</th><th>rooms with it</th><th>failed</th><th>noticed, ms</th><th>all failed, ms</th>"
      "<th>back, ms after its end</th></tr>\n";
  for (const FaultRecord& one : result.faults) {
    out += fmt::format(
        "<tr><td>{:.2f}</td><td class=\"word\">{}</td><td class=\"word\">{}</td><td>{:.2f}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
        one.began_s, fault_name(one.fault.kind), html_escaped(result.workers[one.fault.worker]),
        one.ended_s.value_or(result.seconds) - one.began_s, one.rooms_with_it, one.rooms_failed,
        milliseconds(one.noticed_s, one.began_s), milliseconds(one.all_failed_s, one.began_s),
        one.ended_s ? milliseconds(one.recovered_s, *one.ended_s) : "");
  }
  return out + "</table>\n";
}

}  // namespace

std::string chaos_page(const ChaosPlan& plan, const ChaosResult& result) {
  const ChaosTotals& totals = result.totals;
  const bool good = totals.wrong == 0 && totals.hung == 0 && totals.healthy_failures == 0;
  std::string body =
      fmt::format("<p class=\"soft\">{}; seed {}, {} prefill and {} decode processes</p>\n",
                  html_escaped(machine_line()), plan.faults.seed, plan.cluster.prefill, plan.cluster.decode);
  body += fmt::format(
      "<p><span class=\"{}\">{} wrong, {} without an end, {} failed though nobody in trouble had a part in "
      "them.</span> "
      "{} rooms: {} succeeded, {} failed with a worker that was in trouble; {:.2f} GB moved.</p>\n",
      good ? "good" : "bad", totals.wrong, totals.hung, totals.healthy_failures, totals.rooms, totals.succeeded,
      totals.failed, static_cast<double>(totals.bytes) / 1e9);
  body += legend() + Picture(result).draw() + fault_table(result);
  for (const std::string& complaint : result.complaints) {
    body += fmt::format("<p class=\"bad\">{}</p>\n", html_escaped(complaint));
  }
  return html_page("kvferry chaos", body);
}

}  // namespace kvferry::tools
