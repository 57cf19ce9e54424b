// All Regions in order of id, as a value: a reader keeps one while the writer changes its own, and
// the two share all but what changed.
//
// A B+ tree. An edit copies the nodes that another table has, too, on the short path to its Region,
// and changes the others in place: where no reader keeps an older table nothing is copied. One
// thread changes a table; any may read another one that shares nodes with it.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

// A Region under its id. Most ids differ in their first bytes, which are at hand here: to find the
// place of one among Regions that have left the processor's caches, hardly one of them is touched.
struct RegionEntry {
  RegionEntry(RegionPtr of)  // NOLINT(google-explicit-constructor)
      : region(std::move(of)), first_bytes(FirstBytesOf(region->id)) {}

  static uint64_t FirstBytesOf(absl::string_view id);  // As a number, in the order of ids.
  bool ComesBefore(const RegionEntry& other) const {
    if (first_bytes != other.first_bytes) return first_bytes < other.first_bytes;
    return region->id < other.region->id;
  }
  bool HasIdOf(const RegionEntry& other) const {
    return first_bytes == other.first_bytes && region->id == other.region->id;
  }

  RegionPtr region;  // Never null.
  uint64_t first_bytes;
};

class RegionTable {
 public:
  RegionTable() = default;

  // One edit: the Region replaces what has its id, or what has it is taken away.
  struct Edit : RegionEntry {
    Edit(RegionPtr of, bool is_taken_away = false)  // NOLINT(google-explicit-constructor)
        : RegionEntry(std::move(of)), taken_away(is_taken_away) {}
    bool taken_away;
  };

  // A table of Regions given in order of id, each id once.
  static RegionTable Of(std::vector<RegionPtr> regions);

  // Makes `edits`, in their order; of several in a row for one id only the last has to be made.
  // Copies of this table stay as they are.
  void Change(const std::vector<Edit>& edits);

  // Null if there is none.
  RegionPtr Find(absl::string_view id) const;

  // At most `limit` Regions whose id is greater than `after`, in order.
  std::vector<RegionPtr> List(absl::string_view after, size_t limit) const;

  // Looks at the Regions in order of id, until `look` returns false.
  void ForEach(absl::FunctionRef<bool(const Region&)> look) const;

  size_t size() const { return size_; }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  struct Split;

  static Node& Own(NodePtr& node);
  static bool Put(NodePtr& node, const RegionEntry& entry, Split& split);
  static void Take(NodePtr& node, const RegionEntry& entry);
  static bool Walk(const Node& node, absl::FunctionRef<bool(const Region&)> look);
  static void List(const Node& node, absl::string_view after, size_t limit,
                   std::vector<RegionPtr>& out);

  NodePtr root_;  // Null: empty.
  size_t size_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_
