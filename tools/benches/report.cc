#include "tools/benches/report.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cxlpool::bench {
namespace {

std::string Pair(const Interval& interval) {
  return absl::StrFormat("[%.4f,%.4f]", interval.low, interval.high);
}

}  // namespace

std::string ToJson(const std::vector<Row>& rows) {
  return absl::StrCat(
      "{\"rows\":[",
      absl::StrJoin(rows, ",",
                    [](std::string* out, const Row& row) {
                      const Summary& s = row.summary;
                      absl::StrAppendFormat(
                          out,
                          "{\"row\":%d,\"name\":\"%s\",\"unit\":\"%s\",\"ours\":%.1f,"
                          "\"peer\":%.1f,\"ratio\":%.4f,\"ci\":%s,\"aa\":%s,\"target\":%g,"
                          "\"met\":%s,\"verdict\":\"%s\"}",
                          row.number, row.name, row.unit, s.ours, s.peer, s.ratio, Pair(s.ratio_95),
                          Pair(s.control_95), row.target,
                          s.verdict == Verdict::kMet ? "true" : "false", ToString(s.verdict));
                    }),
      "]}\n");
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
