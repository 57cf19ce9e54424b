#include "tools/cli/render/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/cli/render/printable.h"

namespace cxlpool::cli {
namespace {

void AppendLine(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  absl::StrAppend(&out, line, "\n");
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(int indent) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines[0].push_back(column.header);
  lines.insert(lines.end(), rows_.begin(), rows_.end());

  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], Width(line[i]));
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - Width(line[i]), ' ');
      const bool right = columns_[i].align == Align::kRight;
      absl::StrAppend(&text, i == 0 ? "" : "  ", right ? pad : "", line[i], right ? "" : pad);
    }
    AppendLine(out, std::move(text));
  }
  return out;
}

void Sheet::Add(std::string key, std::string value) {
  if (!value.empty()) lines_.emplace_back(std::move(key), Printable(value));
}

std::string Sheet::ToString() const {
  size_t width = 0;
  for (const auto& [key, value] : lines_) width = std::max(width, Width(key));
  std::string out;
  for (const auto& [key, value] : lines_) {
    const std::string pad(width - Width(key), ' ');
    AppendLine(out, absl::StrCat(key, ":", pad, "  ", value));
  }
  return out;
}

}  // namespace cxlpool::cli
