// Which Regions a list is to have: AIP-160 in part, as ListRegionsRequest.filter says.
//
//   filter     = comparison { "AND" comparison }        empty: all
//   comparison = field operator value
//   field      = name | tenant | host | device | state | sharing | size_bytes | owner_uid
//              | revision
//   operator   = "=" | "!=" | ":" | "<" | "<=" | ">" | ">="
//   value      = a word without spaces and operators | "text in quotes, with \" and \\ inside"
//
// `name : kv` holds where the name contains kv. A Region has several hosts and devices: `=` holds
// where one of them is it, `!=` where none is. A Region without owner is nobody's: of owner_uid
// only `!=` holds. Names may be short or whole (`ml`, `tenants/ml`), sizes with a unit (`1GiB`),
// states and sharings in any case and with "-" for "_" (`single-writer`). Pure; a parsed filter may
// be used by any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_REGION_FILTER_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_REGION_FILTER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

class RegionFilter {
 public:
  static constexpr size_t kMaxCharacters = 1024;

  RegionFilter() = default;  // All.

  // INVALID_ARGUMENT/BAD_FILTER says at which character, what was found and what may stand there.
  static absl::StatusOr<RegionFilter> Parse(absl::string_view text);

  bool Matches(const Region& region) const;

  enum class Field : uint8_t {
    kName,
    kTenant,
    kHost,
    kDevice,
    kState,
    kSharing,
    kSizeBytes,
    kOwnerUid,
    kRevision,
  };
  // The hosts, devices and tenants that it names, without their collection.
  std::vector<std::pair<Field, std::string>> Names() const;
  bool NamesDevice() const;

 private:
  friend class RegionFilterParser;

  enum class Operator : uint8_t {
    kEqual,
    kNotEqual,
    kContains,
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
  };
  struct Comparison {
    Field field = Field::kName;
    Operator op = Operator::kEqual;
    std::string text;     // Of a name: without its collection.
    uint64_t number = 0;  // Of a number, a state or a sharing.
  };
  static bool Holds(const Comparison& comparison, const Region& region);

  std::vector<Comparison> all_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_REGION_FILTER_H_
