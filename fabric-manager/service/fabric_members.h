// The devices and hosts of the pool as the fabric shows them, held against what the records know by
// these names. What differs is another device or another life of the host, and nothing is done with
// it; what is new becomes a record.
//
// A host's life is the incarnation of its side of the fabric. A driver shows a host in another life
// only once everything that was bound in the former one is gone. Nothing is bound in a life that
// the records do not have durably: after a restart nobody could tell it from another.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_MEMBERS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_MEMBERS_H_

#include <map>
#include <set>
#include <string>

#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/service/active_regions.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

class FabricMembers {
 public:
  FabricMembers(Writer* writer, ActiveRegions* active) : writer_(writer), active_(active) {}

  // What a look at everything shows of the devices. Whether they can be used is said to readers,
  // and Regions on those of which that is news are touched.
  void TakeDevices(const FabricView& view);

  // What a look shows of the hosts themselves; a host that it lacks cannot be asked. `only`: the
  // one host that was looked at; empty: all.
  void TakeHosts(const std::string& only, const FabricView& view);

  // Makes the life durable in which the fabric last showed the host, where the records have
  // another.
  void RecordLife(const std::string& host);
  // The life in which something may be bound on the host now; empty: none is seen, or the records
  // do not have it (RecordLife).
  std::string LifeOf(const std::string& host) const;

  // The fabric has proof that this life of the host has ended.
  void LifeEnded(const std::string& host, const std::string& incarnation) {
    ended_[host] = incarnation;
  }
  // Whether it has that proof.
  bool HasEnded(const std::string& host, const std::string& life) const {
    const auto ended = ended_.find(host);
    return ended != ended_.end() && ended->second == life;
  }
  // Whether all that was bound in the life that the records have of the host is proven to be gone.
  bool IsGone(const std::string& host) const;

 private:
  bool HasGrown(const Device& known, const FabricDevice& seen) const;
  std::string WhyNot(const Device& known, const FabricDevice& seen);
  void AddDevice(const FabricDevice& seen);
  void RecordIdentity(const FabricDevice& seen);

  Writer* const writer_;
  ActiveRegions* const active_;
  std::set<std::string> renamed_;  // Devices that the log says are known under another name.
  std::map<std::string, std::string> lives_;  // Host to the life that it was last seen in.
  std::map<std::string, std::string> ended_;  // Host to the life that the fabric said has ended.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_FABRIC_MEMBERS_H_
