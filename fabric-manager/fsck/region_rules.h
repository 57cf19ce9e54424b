// What a Region's record must be like by itself, and what of it nobody else may have.
//
// Pure functions on the record as it is stored.
#ifndef CXLPOOL_FABRIC_MANAGER_FSCK_REGION_RULES_H_
#define CXLPOOL_FABRIC_MANAGER_FSCK_REGION_RULES_H_

#include <string>
#include <vector>

#include "cxlpool/store/v1/record.pb.h"

namespace cxlpool::fm {

// A name, tag, generation, serial or request, as text: unique in the pool.
struct Claim {
  enum class Kind { kName, kTag, kGeneration, kSerial, kRequest, kSlot };
  Kind kind;
  std::string text;  // For people, and different for different claims.
};
std::vector<Claim> ClaimsOf(const store::v1::RegionRecord& region);
Claim RequestClaim(const store::v1::RequestRecord& request);

// What promises about sharing and states the Region breaks; a sentence each. All of it can be
// loaded, and none of it may be.
std::vector<std::string> BrokenRules(const store::v1::RegionRecord& region);

// The greatest number of the pool's counter that the record uses.
uint64_t GreatestIdOf(const store::v1::RegionRecord& region);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_FSCK_REGION_RULES_H_
