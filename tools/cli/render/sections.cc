#include "tools/cli/render/sections.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/support/byte_size.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/printable.h"

namespace cxlpool::cli {
namespace {

constexpr int kLongestBar = 40;
constexpr int kShortestBar = 8;

size_t Shown(const Section& section, size_t most) {
  return most == 0 ? section.rows.size() : std::min(most, section.rows.size());
}

// The section's rows without bars, a line each; the header comes first.
std::vector<std::string> TableLines(const Section& section, size_t most) {
  std::vector<Column> headers;
  for (const Section::Field& field : section.fields) headers.push_back({field.header, field.align});
  Table table(headers);
  for (size_t i = 0; i < Shown(section, most); ++i) {
    std::vector<std::string> cells;
    for (const Cell& cell : section.rows[i].cells) cells.push_back(cell.text);
    table.AddRow(std::move(cells));
  }
  return absl::StrSplit(table.ToString(), '\n', absl::SkipEmpty());
}

bool HasBars(const Section& section) {
  return std::any_of(section.rows.begin(), section.rows.end(),
                     [](const Section::Row& row) { return row.share >= 0; });
}

// Where bars begin, and how long they are; 0: they have no room. The same in all sections.
struct Bars {
  size_t begin = 0;
  int length = 0;
};
Bars PlaceBars(const std::vector<Section>& sections, size_t most, int columns) {
  Bars bars;
  for (const Section& section : sections) {
    if (!HasBars(section)) continue;
    for (const std::string& line : TableLines(section, most)) {
      bars.begin = std::max(bars.begin, Width(line) + 2);
    }
  }
  const int room = columns - static_cast<int>(bars.begin) - 2;
  if (room >= kShortestBar) bars.length = std::min(kLongestBar, room);
  return bars;
}

// A bar is as long as the row's share, full at 1. A section without rows says so, and what is left
// out of a long one is counted.
std::string SectionText(const Section& section, size_t most, const Bars& bars) {
  std::string out = section.title.empty() ? "" : absl::StrCat(section.title, "\n");
  if (section.rows.empty()) return absl::StrCat(out, section.nobody, "\n");
  const std::vector<std::string> lines = TableLines(section, most);
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&out, lines[i]);
    if (i > 0 && bars.length > 0 && section.rows[i - 1].share >= 0) {
      const double share = std::min(section.rows[i - 1].share, 1.0);
      const int full = static_cast<int>(std::lround(share * bars.length));
      absl::StrAppend(&out, std::string(bars.begin - Width(lines[i]), ' '), "[",
                      std::string(full, '#'), std::string(bars.length - full, '.'), "]");
    }
    out += "\n";
  }
  const size_t more = section.rows.size() - Shown(section, most);
  if (more > 0) absl::StrAppend(&out, "and ", more, " more\n");
  return out;
}

}  // namespace

Cell BytesCell(uint64_t bytes) { return {FormatByteSize(bytes), Quoted(absl::StrCat(bytes))}; }
Cell CountCell(uint64_t count) { return {absl::StrCat(count), Quoted(absl::StrCat(count))}; }
Cell NumberCell(std::optional<uint64_t> number) {
  return number.has_value() ? CountCell(*number) : Cell{"", "null"};
}
Cell TextCell(const std::string& text) { return {text, Quoted(text)}; }
Cell ShareCell(uint64_t part, uint64_t whole) {
  if (whole == 0) return {"", "null"};
  const double share = static_cast<double>(part) / static_cast<double>(whole);
  return {absl::StrFormat("%.0f%%", share * 100), absl::StrFormat("%.4f", share)};
}

// For people: at most `most` rows of each, with an empty line between two sections. One that has
// neither rows nor a text for none is left out.
std::string SectionsText(const std::vector<Section>& sections, size_t most, int columns) {
  const Bars bars = PlaceBars(sections, most, columns);
  std::string out;
  for (const Section& section : sections) {
    if (section.rows.empty() && section.nobody.empty()) continue;
    absl::StrAppend(&out, out.empty() ? "" : "\n", SectionText(section, most, bars));
  }
  return out;
}

// For programs: all sections and all rows, whatever fits on a terminal.
std::string SectionsJson(const std::vector<Section>& sections) {
  std::string out = "{";
  for (const Section& section : sections) {
    absl::StrAppend(&out, out.size() > 1 ? ", " : "", Quoted(section.key), ": [");
    for (size_t row = 0; row < section.rows.size(); ++row) {
      absl::StrAppend(&out, row == 0 ? "{" : ", {");
      for (size_t i = 0; i < section.fields.size(); ++i) {
        absl::StrAppend(&out, i == 0 ? "" : ", ", Quoted(section.fields[i].key), ": ",
                        section.rows[row].cells[i].json);
      }
      out += "}";
    }
    out += "]";
  }
  return out + "}\n";
}

}  // namespace cxlpool::cli
