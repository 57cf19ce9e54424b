// All Regions in order of id, as an immutable value: readers keep one while the writer makes the
// next, and the two share all but what changed.
//
// A B+ tree of which nodes are copied when they are first touched by an edit, and edited in place
// by the rest of it: a successor costs a short path for each Region that changed. Reads from any
// thread.
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

  // The table after `edits`, in their order.
  RegionTable With(const std::vector<Edit>& edits) const;

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

  static Node& Own(NodePtr& node, uint64_t edition);
  static bool Put(NodePtr& node, const RegionPtr& region, uint64_t edition, Split& split);
  static void Take(NodePtr& node, absl::string_view id, uint64_t edition);
  static bool Walk(const Node& node, absl::FunctionRef<bool(const Region&)> look);
  static void List(const Node& node, absl::string_view after, size_t limit,
                   std::vector<RegionPtr>& out);

  NodePtr root_;  // Null: empty. Never changed once this table is out of With.
  size_t size_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_
