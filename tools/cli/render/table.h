// Rows and columns of text, aligned. Nothing is ever cut or wrapped.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_TABLE_H_
#define CXLPOOL_TOOLS_CLI_RENDER_TABLE_H_

#include <string>
#include <vector>

namespace cxlpool::cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string header;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column. An empty cell shows as "-"; cells are made Printable.
  void AddRow(std::vector<std::string> cells);

  // Header row first, columns two spaces apart, no spaces at the end of a line, each line after
  // `indent` spaces. Without rows: only the header.
  std::string ToString(int indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "Name:   value" lines, values aligned; an empty value is left out.
class Sheet {
 public:
  void Add(std::string key, std::string value);
  std::string ToString() const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_TABLE_H_
