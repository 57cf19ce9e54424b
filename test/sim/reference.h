// The pool as one would keep it on a napkin: an owner for every granule, and the Regions as last
// committed. It hears of commits once they are durable, and never looks into the manager's own
// indices, so what both of them say alike is right.
//
// It holds against promises.md
//   each commit     no granule has two owners; held bytes are what the manager counts; a request_id
//                   makes one Region; quota is kept; states follow the ladder (MayFollow); an
//                   Extent that lost bytes is free, or another's, only on an operator's word
//   each call       what a record says was done for somebody was his to do: a host acts for itself
//                   and the tenants of its enrolment, on what concerns it; an etag was the Region's
//                   own; and of a dry run there is no trace
//   each answer     what is acknowledged is on the disk
//   each new life   all that was acknowledged is still there; and of a manager that it follows
//                   nothing becomes durable any more
// and says what the rack's judge asks: who is meant to be bound where.
#ifndef CXLPOOL_TEST_SIM_REFERENCE_H_
#define CXLPOOL_TEST_SIM_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "test/sim/coverage.h"

namespace cxlpool::sim {

class Reference {
 public:
  using Violation = std::function<void(const std::string& what)>;

  Reference(Coverage* coverage, Violation violation)
      : coverage_(coverage), violation_(std::move(violation)) {}

  // A manager has loaded its records, or has taken over: it knows them up to this revision.
  void Reload(const fm::PoolState& state, uint64_t epoch, uint64_t revision);
  // Became durable, in this order. `state`: the manager's, as of revision `planned`. What one hears
  // after the next has taken over, that one had to know.
  void Committed(const std::vector<fm::Change>& changes, const fm::PoolState& state,
                 uint64_t planned, uint64_t epoch);
  // A client asks, by a request_id: on condition of that etag, or (`dry`) for nothing to be done.
  void Asked(const fm::RequestId& request, const std::string& etag, bool dry);
  // Answered to a client: `region` may be null. `disk`: the revision that is on the disk.
  void Acknowledged(const fm::RegionPtr& region, uint64_t revision, uint64_t disk);

  // For the rack's judge.
  bool Intends(const fm::LdKey& key, const fm::Slice& slice, const std::string& host, uint32_t slot,
               uint64_t serial) const;
  bool Leaving(const fm::Slice& slice) const;
  // The Attachment that is ONLINE, is to stay, was never lost, and has this serial; null: none.
  const fm::Attachment* ThatStays(const std::string& host, uint64_t serial) const;

  // Whether the records say that the LD has lost bytes, or do not name it on that host.
  bool IsMarked(const std::string& host, uint64_t serial) const;

  const std::map<fm::Key, fm::RegionPtr>& regions() const { return regions_; }
  bool DeviceFailed(const std::string& id) const;

 private:
  struct DeviceBytes {
    std::vector<fm::Key> owner;  // Of each granule; 0: nobody.
    fm::DeviceService service = fm::DeviceService::kInService;
    std::vector<bool> bad = {};  // Granules that lost bytes; empty: none.
    uint64_t taken = 0;          // Granules that somebody owns.
  };

  void Put(const fm::RegionPtr& region);
  void Remove(fm::Key key);
  void Take(const fm::Region& region);
  void Give(const fm::Region& region);
  // What the Region's record says of lost bytes, beyond what is known.
  void Mark(const fm::Region& region);
  // An operator says that they can be used again.
  void Unmark(const fm::Region& region);
  // Each of them is with a Region that says so.
  void CheckMarks();
  void CountEdges(const fm::Region& before, const fm::Region& after);
  // The call that made `after` of `before` (null: there was none), if one did.
  void CheckCall(const fm::Region* before, const fm::Region& after);
  void CheckDryRuns(const fm::Region& region);
  // Of a manager that another has followed.
  void HeardLate(const std::vector<fm::Change>& changes);
  void CheckHostsCall(const fm::RequestId& call, const fm::Region* before, const fm::Region& after);
  void CheckQuota(const fm::Region* before, const fm::Region& after);
  const fm::RegionPtr* FindByTag(const std::string& tag) const;
  void Fail(const std::string& what) { violation_(what); }

  Coverage* const coverage_;
  const Violation violation_;
  std::map<std::string, DeviceBytes, std::less<>> devices_;
  std::map<std::string, fm::Tenant, std::less<>> tenants_;
  absl::flat_hash_map<std::string, fm::Host> hosts_;  // By identity.
  std::map<fm::Key, fm::RegionPtr> regions_;
  absl::flat_hash_map<Uuid, fm::Key> by_tag_;
  absl::flat_hash_map<uint64_t, fm::Key> by_serial_;     // May name one that has moved on.
  absl::flat_hash_map<fm::RequestId, fm::Key> made_by_;  // Of AllocateRegion.
  struct Condition {
    std::string etag;
    bool dry = false;
  };
  absl::flat_hash_map<fm::RequestId, Condition> asked_;  // Calls that came with one.
  absl::flat_hash_map<fm::Key, size_t>
      leaving_from_;                             // Extents from there on are on their way out.
  absl::flat_hash_map<fm::Key, uint64_t> gone_;  // Tombstones: the last revision.
  absl::flat_hash_map<fm::Key, uint64_t> acknowledged_;  // The newest revision that was answered.
  absl::flat_hash_set<uint64_t> repaired_;  // Generations of Attachments that were lost once.
  uint64_t groups_ = 0;
  uint64_t epoch_ = 0;           // Of the manager that it hears of,
  uint64_t taken_revision_ = 0;  // and what that one had when it began.
  bool any_bad_ = false;         // Some granule was, since this life began.
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_REFERENCE_H_
