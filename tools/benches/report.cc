#include "tools/benches/report.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cxlpool::bench {
namespace {

std::string Pair(const Interval& interval) {
  return absl::StrFormat("[%.4f,%.4f]", interval.low, interval.high);
}

}  // namespace

Row MakeRow(int number, std::string name, std::string unit, double target, Aim aim,
            const std::vector<Round>& rounds) {
  return {.number = number,
          .name = std::move(name),
          .unit = std::move(unit),
          .target = target,
          .aim = aim,
          .summary = Summarise(rounds, target, static_cast<uint64_t>(number), aim)};
}

Row MakeRowBefore(int number, const std::string& what, std::string unit, Aim aim,
                  const std::vector<Round>& rounds) {
  constexpr double kKept = 0.97;
  return MakeRow(number, absl::StrCat(what, " by the manager before"), std::move(unit),
                 aim == Aim::kAtLeast ? kKept : 1 / kKept, aim, rounds);
}

std::string ToJson(const std::vector<Row>& rows) {
  return absl::StrCat(
      "{\"rows\":[",
      absl::StrJoin(rows, ",",
                    [](std::string* out, const Row& row) {
                      const Summary& s = row.summary;
                      absl::StrAppendFormat(
                          out,
                          "{\"row\":%d,\"name\":\"%s\",\"unit\":\"%s\",\"ours\":%.6g,"
                          "\"peer\":%.6g,\"ratio\":%.4f,\"ci\":%s,\"aa\":%s,\"target\":%g,"
                          "\"aim\":\"%s\",\"met\":%s,\"verdict\":\"%s\"}",
                          row.number, row.name, row.unit, s.ours, s.peer, s.ratio, Pair(s.ratio_95),
                          Pair(s.control_95), row.target,
                          row.aim == Aim::kAtMost ? "at most" : "at least",
                          s.verdict == Verdict::kMet ? "true" : "false", ToString(s.verdict));
                    }),
      "]}\n");
}

std::string ToText(const Row& row) {
  const Summary& s = row.summary;
  return absl::StrFormat(
      "row %d, %s: ours %.4g, peer %.4g %s: ratio %.3f, 95 %% [%.3f, %.3f], N = %d rounds\n"
      "  control (ours by ours) 95 %% [%.3f, %.3f]; target %s %g: %s\n",
      row.number, row.name, s.ours, s.peer, row.unit, s.ratio, s.ratio_95.low, s.ratio_95.high,
      s.rounds, s.control_95.low, s.control_95.high,
      row.aim == Aim::kAtMost ? "<=" : ">=", row.target, ToString(s.verdict));
}

absl::Status WriteFile(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::trunc | std::ios::binary);
  out << text;
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno),
                                             "; see that its directory exists and has space"));
}

}  // namespace cxlpool::bench
