// All Regions in order of id, as an immutable value: readers keep one while the writer makes the
// next, and the two share all but the leaves that changed.
//
// Two levels: a spine of leaves of at most kLeaf entries. Making a successor copies the spine and
// the touched leaves. Reads from any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "fabric-manager/model/region.h"

namespace cxlpool::fm {

class RegionTable {
 public:
  RegionTable() = default;

  // One edit: `region` replaces what has its id; null takes `id` away.
  struct Edit {
    std::string id;
    RegionPtr region;
  };

  // The table after `edits`, in their order.
  RegionTable With(const std::vector<Edit>& edits) const;

  // Null if there is none.
  RegionPtr Find(absl::string_view id) const;

  // At most `limit` Regions whose id is greater than `after`, in order.
  std::vector<RegionPtr> List(absl::string_view after, size_t limit) const;

  size_t size() const { return size_; }

 private:
  static constexpr size_t kLeaf = 256;
  using Leaf = std::vector<RegionPtr>;  // In order of id; never empty in the spine.

  size_t LeafOf(absl::string_view id) const;

  std::vector<std::shared_ptr<const Leaf>> spine_;
  size_t size_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_TABLE_H_
