#include "tools/cli/render/findings.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/cli/render/printable.h"

namespace cxlpool::cli {
namespace {

constexpr absl::string_view kIndent = "       ";

absl::string_view UrgencyWord(v1::Finding::Urgency urgency) {
  switch (urgency) {
    case v1::Finding::WRONG:
      return "WRONG  ";
    case v1::Finding::WAITS:
      return "WAITS  ";
    case v1::Finding::NOTE:
      return "NOTE   ";
    default:
      return kIndent;
  }
}

// " for 3m12s"; nothing where it is not known, is less than a second, or where the clocks of the
// two machines disagree.
std::string For(const v1::Finding& finding, absl::Time now) {
  if (!finding.has_since()) return "";
  const absl::Duration period = now - absl::FromUnixSeconds(finding.since().seconds());
  if (period < absl::Seconds(1)) return "";
  return absl::StrCat(" for ", absl::FormatDuration(absl::Trunc(period, absl::Seconds(1))));
}

std::string FindingText(const v1::Finding& finding, absl::Time now) {
  const std::string subject = finding.subject().empty() ? "the pool" : finding.subject();
  std::string out = absl::StrCat(UrgencyWord(finding.urgency()), Printable(subject), " ",
                                 Printable(finding.problem()), For(finding, now), "\n", kIndent,
                                 Printable(finding.text()), "\n");
  if (!finding.waits_for().empty()) {
    absl::StrAppend(&out, kIndent, "waits for ",
                    Printable(absl::StrJoin(finding.waits_for(), ", ")), "\n");
  }
  absl::string_view before = "run: ";
  for (const std::string& command : finding.commands()) {
    absl::StrAppend(&out, kIndent, before, Printable(command), "\n");
    before = "     ";
  }
  return out;
}

}  // namespace

std::string FindingsText(const v1::ExplainResponse& explained, absl::Time now) {
  if (explained.findings().empty()) return "nothing is wrong, and nothing waits\n";
  std::string out;
  for (const v1::Finding& finding : explained.findings()) {
    absl::StrAppend(&out, out.empty() ? "" : "\n", FindingText(finding, now));
  }
  if (explained.left_out() > 0) {
    absl::StrAppend(&out, "\n", explained.left_out(), " more are left out\n");
  }
  return out;
}

}  // namespace cxlpool::cli
