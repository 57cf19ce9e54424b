#include "tools/cli/slurm/directive.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/byte_size.h"
#include "proto/support/refusal.h"
#include "tools/cli/fields.h"
#include "tools/cli/nearest.h"
#include "tools/cli/render/printable.h"

namespace cxlpool::cli {
namespace {

constexpr absl::string_view kDirective = "#CXLPOOL";
constexpr char kExample[] = "write it as #CXLPOOL pool=cxl capacity=64GiB";

absl::Status BadDirective(absl::string_view what, std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_DIRECTIVE",
                absl::StrCat("#CXLPOOL: ", Printable(what)), std::move(remedy));
}

// Digits and a unit that means the same to Slurm.
absl::StatusOr<uint64_t> ReadCapacity(absl::string_view text) {
  const size_t digits =
      std::min(text.size(), text.find_first_not_of("0123456789"));  // npos is the largest.
  const std::string unit = absl::AsciiStrToLower(text.substr(digits));
  const bool plain = unit.empty() || (unit.size() == 1 && absl::StrContains("kmgtp", unit)) ||
                     (unit.size() == 3 && absl::StrContains("kmgtp", unit.substr(0, 1)) &&
                      absl::EndsWith(unit, "ib"));
  const auto bytes = ParseByteSize(text);
  if (digits == 0 || !plain || !bytes.ok() || *bytes == 0) {
    return BadDirective(absl::StrCat("capacity=", text.substr(0, 80), " is no size"),
                        "give a whole number of MiB, GiB or TiB, as capacity=64GiB");
  }
  return *bytes;
}

// One KEY=VALUE into the request. What follows the key is the CLI's own words, so that a directive
// and `region allocate` take the same.
absl::Status ReadWord(absl::string_view key, absl::string_view value, MemoryRequest& request) {
  Fields fields;
  if (key == "pool") {
    request.pool = std::string(value);
  } else if (key == "capacity") {
    const auto bytes = ReadCapacity(value);
    if (!bytes.ok()) return bytes.status();
    request.capacity_bytes = *bytes;
  } else if (key == "per") {
    if (value != "job" && value != "node") {
      return BadDirective(absl::StrCat("per=", value, " is none"), "give per=job or per=node");
    }
    request.per_node = value == "node";
  } else if (key == "sharing") {
    fields.Sharing(std::string(value), [&](v1::Sharing sharing) { request.sharing = sharing; });
    if (!fields.status().ok()) {
      return BadDirective(absl::StrCat("sharing=", value, " is none"),
                          "give exclusive, single-writer or multi-writer");
    }
  } else if (key == "mode") {
    fields.Mode(std::string(value), [&](v1::AttachmentMode mode) { request.mode = mode; });
    if (!fields.status().ok()) {
      return BadDirective(absl::StrCat("mode=", value, " is none"), "give devdax or system-ram");
    }
  } else {
    return BadDirective(
        absl::StrCat("unknown key \"", key, "\"",
                     DidYouMean(Nearest(key, {"pool", "capacity", "per", "sharing", "mode"}))),
        "use pool, capacity, per, sharing and mode, as KEY=VALUE with blanks between");
  }
  return absl::OkStatus();
}

// All of a line. A key that comes twice is an error: which of the two counts is not for us to
// guess, and Slurm may take the other.
absl::StatusOr<MemoryRequest> ReadWords(absl::string_view line) {
  MemoryRequest request;
  std::set<absl::string_view> seen;
  for (const absl::string_view word :
       absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (!absl::StrContains(word, '=') || parts.second.empty()) {
      return BadDirective(absl::StrCat("\"", word.substr(0, 80), "\" is no KEY=VALUE"), kExample);
    }
    if (!seen.insert(parts.first).second) {
      return BadDirective(absl::StrCat(parts.first, " is given twice"), "give each key once");
    }
    if (absl::Status status = ReadWord(parts.first, parts.second, request); !status.ok()) {
      return status;
    }
  }
  for (const absl::string_view key : {"pool", "capacity"}) {
    if (!seen.contains(key)) return BadDirective(absl::StrCat(key, "= is missing"), kExample);
  }
  return request;
}

// What stands behind the directive, for each line that has one, as Slurm looks for them: up to the
// first line that is no comment. One that ends in a backslash goes on in the next that has the
// directive.
std::vector<std::string> DirectiveLines(absl::string_view script) {
  std::vector<std::string> lines;
  bool goes_on = false;
  for (absl::string_view line : absl::StrSplit(script, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, "#")) break;
    if (!absl::ConsumePrefix(&line, kDirective)) {
      goes_on = false;
      continue;
    }
    if (!goes_on) lines.emplace_back();
    goes_on = absl::ConsumeSuffix(&line, "\\");
    absl::StrAppend(&lines.back(), line, goes_on ? " " : "");
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::optional<MemoryRequest>> ReadDirective(absl::string_view script) {
  const std::vector<std::string> lines = DirectiveLines(script);
  if (lines.empty()) return std::nullopt;
  // Slurm would add their capacities up, and the job has one set of Regions.
  if (lines.size() > 1) {
    return BadDirective("is there more than once", "ask for all memory in one line");
  }
  if (!lines.front().empty() && !absl::ascii_isspace(lines.front().front())) {
    return BadDirective("a blank is missing behind it", kExample);
  }
  absl::StatusOr<MemoryRequest> request = ReadWords(lines.front());
  if (!request.ok()) return request.status();
  return *std::move(request);
}

}  // namespace cxlpool::cli
