// Whose each LD is that the fabric shows as bound: which record has it, and what becomes of those
// that no record has.
//
// A stray is an LD that no record intends. Its bytes may be somebody's: they become a Region of its
// own that is held for an operator's decision (PlanStray), and until every LD is accounted for
// nothing is cleared under one.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_LD_OWNERS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_LD_OWNERS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric-manager/service/fabric_calls.h"
#include "fabric-manager/service/track_table.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

class LdOwners {
 public:
  LdOwners(Writer* writer, const TrackTable* tracks, const FabricCalls* calls,
           const FabricCapabilities& capabilities)
      : writer_(writer),
        tracks_(tracks),
        calls_(calls),
        chooses_serial_(capabilities.chooses_serial),
        keeps_keys_(capabilities.keeps_keys) {}

  // Gives the bindings keys that the driver has none for: what the records have in that slot of
  // that host, with those bytes. The rest stays without a key.
  void NameByPlace(std::vector<BoundLd>& bound) const;

  using HasEnded = std::function<bool(const std::string& host, const std::string& life)>;
  // Takes from a look which LDs no record has, and has strays held. `only`: the one host that was
  // looked at; empty: all. `epoch`: in which the look began. `has_ended`: whether the fabric has
  // proof that this life of the host has ended. What a host had that cannot be asked now counts as
  // bound there until it can, until that proof, or until the operator gives the host up. Answers
  // the hosts that are to be looked at again, because the record of an LD may have gone since the
  // look began, and the LD with it.
  std::set<std::string> TakeView(const std::string& only, const FabricView& view, uint64_t epoch,
                                 const HasEnded& has_ended);

  // The host was cut off from all that it had.
  void HostFenced(const std::string& host) {
    std::erase_if(unrecorded_, [&](const Unrecorded& each) { return each.ld.host == host; });
  }

  // An LD that reaches bytes of the slice and that no record has, as it was last seen; nullptr:
  // there is none, and the bytes may be cleared. Valid until the next TakeView.
  const BoundLd* UnrecordedOn(const Slice& slice) const;

 private:
  using StrayOf = std::tuple<uint64_t, std::string, std::string>;  // Generation, host, tag.
  struct Unrecorded {
    BoundLd ld;
    std::string life;      // Of its host, when that showed it.
    bool shown = true;     // By the look that is being taken. Otherwise its host cannot be asked.
    bool doubted = false;  // Its record may have gone during the look, and the LD with it.
  };

  static StrayOf StrayOfLd(const BoundLd& ld);
  static uint32_t IndexOf(const BoundLd& ld);
  bool IsNamed(const BoundLd& ld) const;
  bool IsGivenUp(const std::string& host) const;
  // What the look shows, and in front of it what it leaves as it was. That comes out of
  // unrecorded_, with all else that the look is about.
  std::vector<Unrecorded> TakeLds(const std::string& only, const FabricView& view,
                                  const HasEnded& has_ended);
  bool LooksFree(const BoundLd& ld, const FabricView& view) const;
  void Adopt(std::vector<BoundLd> lds);

  Writer* const writer_;
  const TrackTable* const tracks_;
  const FabricCalls* const calls_;
  const bool chooses_serial_;  // As the driver says of itself.
  const bool keeps_keys_;
  // LDs of no record that were told of, and are seen still: whose they say that they are, and their
  // number.
  std::set<std::pair<StrayOf, uint32_t>> strays_;
  std::vector<Unrecorded> unrecorded_;  // Of the last look that could ask each host.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_LD_OWNERS_H_
