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
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

class RegionTable {
 public:
  RegionTable() = default;

  // One edit: `region` replaces what has its id, or what has it is taken away.
  struct Edit {
    RegionPtr region;  // Never null.
    bool taken_away = false;
    const std::string& id() const { return region->id; }
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
  static bool Put(NodePtr& node, const RegionPtr& region, Split& split);
  static void Take(NodePtr& node, absl::string_view id);
  static bool Walk(const Node& node, absl::FunctionRef<bool(const Region&)> look);
  static void List(const Node& node, absl::string_view after, size_t limit,
                   std::vector<RegionPtr>& out);

  NodePtr root_;  // Null: empty.
  size_t size_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_
