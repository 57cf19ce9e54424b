// Rows of a database, found page by page, for when the way to them is damaged: the schema in page
// 1, or a page of the tree that leads to others.
//
// Every page that is a leaf of a table is read by itself, with the overflow pages that its cells
// name. Pages on the list of free ones are left out; what else is no longer in use is found as
// well. So a row that was found is one that was written at some time, and whether it still counts
// is for the caller to find out. https://www.sqlite.org/fileformat2.html#b_tree_pages
//
// Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_PAGE_SCAN_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_PAGE_SCAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cxlpool::fm {

// A value of a row: NULL, an integer, or bytes (a blob or a text).
struct ScannedValue {
  enum class Kind { kNull, kInteger, kBytes, kOther } kind = Kind::kOther;
  int64_t integer = 0;
  absl::string_view bytes;  // Lives as long as the call that brought it.
};

struct ScannedRow {
  uint64_t id = 0;
  std::vector<ScannedValue> values;  // A column that is the row's id is NULL here.
};

void ScanPages(absl::string_view image, const std::function<void(const ScannedRow&)>& each);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_PAGE_SCAN_H_
