// Several tables with titles, such as a report is made of: for people, and for programs. Pure.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_SECTIONS_H_
#define CXLPOOL_TOOLS_CLI_RENDER_SECTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/render/table.h"

namespace cxlpool::cli {

// One value as people and as programs read it.
struct Cell {
  std::string text;
  std::string json;
};
Cell BytesCell(uint64_t bytes);
Cell CountCell(uint64_t count);                   // A text in JSON, as all 64-bit numbers are.
Cell NumberCell(std::optional<uint64_t> number);  // "-" and null of none.
Cell TextCell(const std::string& text);
// "37%" of a whole, and in JSON 0.37; "-" and null of nothing.
Cell ShareCell(uint64_t part, uint64_t whole);

struct Section {
  struct Field {
    const char* key;  // In JSON.
    const char* header;
    Align align = Align::kLeft;
  };
  struct Row {
    std::vector<Cell> cells;  // One a field.
    double share = -1;        // Of a bar, 0 to 1; less: the row has none.
  };
  const char* key;     // In JSON.
  std::string title;   // Empty: none.
  std::string nobody;  // What is said where there are no rows; empty: the section is left out.
  std::vector<Field> fields;
  std::vector<Row> rows = {};
};

// An empty line between two. `most`: rows of one section, and how many more there are; 0: all.
// `columns` of the terminal, for bars that fit on it; 0: none are drawn.
std::string SectionsText(const std::vector<Section>& sections, size_t most, int columns);

// {"devices": [{"name": "cmm-0", "held_bytes": "1024"}], ...}, on one line; all rows.
std::string SectionsJson(const std::vector<Section>& sections);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_SECTIONS_H_
