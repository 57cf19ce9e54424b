// From a request to a Change, or a refusal: every rule of the lifecycle that a caller can meet.
//
// Pure: the caller supplies ids and time (PlanContext). A plan is valid only against the state it
// was made on; the one writer applies it before it makes the next.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLANNER_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLANNER_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric-manager/model/placement/placement.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/model/pool/pool_state.h"

namespace cxlpool::fm {

// What a plan cannot make by itself.
struct PlanContext {
  std::function<uint64_t()> next_id;  // Keys, generations and serials: never the same twice.
  std::function<Uuid()> make_tag;     // Random.
  absl::Time now;
  uint64_t revision = 0;            // Of the change.
  bool shares_slices = false;       // The fabric can show bytes to several hosts at a time.
  bool isolates = false;            // The fabric keeps a host from bytes that are not its own,
  bool enforces_read_only = false;  // and from writing where it may only read.
  FabricRules fabric = {};          // What the fabric's driver wants of devices and hosts.
  Policy default_policy = Policy::kPack;  // The pool's.
  // What the store takes in one commit, whatever else is in it: a plan of more records than this is
  // made in several changes, or refused.
  size_t max_items = SIZE_MAX;
  std::string hold_reason = {};  // Not empty: records were lost; devices that come in are held.
};

// Each says who asks: a spec whose caller nobody set is refused.
struct AllocateSpec {
  Request request;
  Caller caller = {};
  std::string region_id;  // Empty: "r-" and the first 12 hex digits of the tag.
  std::string tenant = kDefaultTenant;
  uint64_t size_bytes = 0;
  Sharing sharing = Sharing::kExclusive;
  std::string host;  // Empty: no Attachment.
  Mode mode = Mode::kDevdax;
  Zone zone = Zone::kMovable;
  Access access = Access::kReadWrite;
  uint32_t max_extents = 1;
  std::string device;
  std::optional<Policy> policy;  // Nothing: the pool's default.
  uint32_t interleave_ways = 0;
  uint32_t interleave_granularity_bytes = 0;
  std::vector<std::string> isolate_from;  // Region ids.
  absl::Duration expected_lifetime = absl::InfiniteDuration();
  absl::Duration ttl = absl::InfiniteDuration();  // Infinite: no lease.
  std::optional<Owner> owner;                     // Nothing: it is persistent.
  std::optional<uint32_t> maker_uid;              // Of `host`. Nothing: an operator makes it.
  OpenTo open_to;
  bool fabric_isolation = false;  // Refused where the fabric does not enforce its Attachments.
};
inline constexpr size_t kMaxIsolateFrom = 64;
inline constexpr absl::Duration kMinTtl = absl::Seconds(10);
inline constexpr absl::Duration kMaxTtl = absl::Hours(24 * 3652);

struct AttachSpec {
  Request request;
  Caller caller = {};
  std::string region_id;
  std::string host;
  Mode mode = Mode::kDevdax;
  Access access = Access::kReadWrite;
  std::string etag = {};
  Zone zone = Zone::kMovable;
};

struct DetachSpec {
  Request request;
  Caller caller = {};
  std::string region_id;
  std::string host;
  std::string etag = {};
};

struct ReleaseSpec {
  Request request;
  Caller caller = {};  // A host: Attachments to other hosts are refused.
  std::string region_id;
  bool detach_all = false;
  std::string etag = {};
  bool force = false;  // On the operator's word; `reason` is then required.
  std::string reason = {};
  // With force: FENCE_REQUIRED names every host that may still have it, silent ones too, for the
  // caller to fence; then plan again. Without: only those that are alive or can be reached.
  bool fence = false;
  bool validate_only = false;
  // What the Region must be, as an agent found for a local user. Empty, nothing: not asked.
  std::string tenant = {};
  std::optional<uint32_t> maker_uid = {};
};

struct ResizeSpec {
  Request request;
  Caller caller = {};
  std::string region_id;
  uint64_t size_bytes = 0;
  uint32_t max_extents = 1;
  std::string etag = {};
};

struct RenameSpec {
  Request request;
  Caller caller = {};
  std::string region_id;
  std::string new_region_id;
  std::string etag = {};
};

struct RenewSpec {
  Request request;
  Caller caller = {};  // An operator may renew what another allocated.
  std::string region_id;
  std::optional<absl::Duration> ttl;  // Nothing: the term it has.
  std::string etag = {};
};

struct EnrolSpec {
  std::string host;
  std::string identity = {};  // Empty: cxlpool://host/HOST.
  // For whom it may allocate. Empty: as it was; of a host that is new or retired, kDefaultTenant.
  std::vector<std::string> tenants = {};
};
inline constexpr size_t kMaxTenantsOfHost = 256;

// A plan's outcome: the Region as it will be, and the change that makes it so (empty if it is so
// already, or if the request is a retry).
struct Plan {
  RegionPtr region;
  Change change;
  std::vector<HostPlacement::OnBridge> bridges = {};  // Where a new Attachment enters its host.
};

// Each first judges its caller, as by CheckCaller, then looks for the request_id: same payload
// gives the earlier Region, another payload ALREADY_EXISTS/REQUEST_ID_REUSED. A Region that does
// not concern the host is UNKNOWN_REGION to it, as one that is not there. Errors as in
// pool_service.proto. `region_id` may be a UUID.
absl::StatusOr<Plan> PlanAllocate(const PoolState& state, const AllocateSpec& spec,
                                  PlanContext& context);
absl::StatusOr<Plan> PlanAttach(const PoolState& state, const AttachSpec& spec,
                                PlanContext& context);
absl::StatusOr<Plan> PlanDetach(const PoolState& state, const DetachSpec& spec,
                                PlanContext& context);
absl::StatusOr<Plan> PlanRelease(const PoolState& state, const ReleaseSpec& spec,
                                 PlanContext& context);
// `in_use`: hosts where an application has a segment open that would leave, as the agents last said
// (given the Region and the number of settled extents that would stay).
using InUseFn = std::function<std::vector<std::string>(const Region&, size_t keep_extents)>;
absl::StatusOr<Plan> PlanResize(const PoolState& state, const ResizeSpec& spec,
                                const InUseFn& in_use, PlanContext& context);
absl::StatusOr<Plan> PlanRename(const PoolState& state, const RenameSpec& spec,
                                PlanContext& context);
absl::StatusOr<Plan> PlanRenew(const PoolState& state, const RenewSpec& spec, PlanContext& context);
// What the manager does by itself when the lease that ended at `expire_time` ran out: release,
// detaching all. Empty: it was renewed, or goes down already.
Change PlanExpiry(const PoolState& state, Key region, absl::Time expire_time, PlanContext& context);

// What the pool itself consists of: hosts, devices, topology, tenants, revocations. A plan that
// takes a Caller judges it first, as by CheckCaller with Right::kRunPool, or with
// Right::kAdminister where rule.proto wants an ADMIN. Errors as in
// inventory_service.proto. The Change is empty if nothing differs.

// Enrols, replaces or brings back a host.
absl::StatusOr<Change> PlanEnrol(const PoolState& state, const Caller& caller,
                                 const EnrolSpec& spec, PlanContext& context);
// Forgets the enrolment, the host's entry in the topology, and the links to it.
absl::StatusOr<Change> PlanRemoveHost(const PoolState& state, const Caller& caller,
                                      const std::string& host, PlanContext& context);
absl::StatusOr<Change> PlanRetire(const PoolState& state, const Caller& caller,
                                  const std::string& host, PlanContext& context);

// What the fabric shows and no record knows comes in free. Where records were lost, or `has_bytes`
// says that the device is not empty, a QUARANTINED Region holds it whole (`fsck-hold-N`, or
// `found-DEVICE-N`). `seen.key` is ignored. The Change is empty if the device is known.
Change PlanSeenDevice(const PoolState& state, Device seen, bool has_bytes, PlanContext& context);
absl::StatusOr<Change> PlanAddDevice(const PoolState& state, const Caller& caller,
                                     const std::string& device, PlanContext& context);
absl::StatusOr<Change> PlanDrainDevice(const PoolState& state, const Caller& caller,
                                       const std::string& device, PlanContext& context);
absl::StatusOr<Change> PlanRemoveDevice(const PoolState& state, const Caller& caller,
                                        const std::string& device, PlanContext& context);
// A step of what the reconciler goes on with by itself, after a restart too: PoolService judges the
// caller who begins it.
// At most kFailedRegionsAChange Regions are QUARANTINED at a time, and fewer where the store takes
// less (PlanContext::max_items): call it again until the Change is empty. A device can be full of
// Regions, and one change of them all would be more than a store takes.
inline constexpr size_t kFailedRegionsAChange = 1024;
absl::StatusOr<Change> PlanFailDevice(const PoolState& state, const std::string& device,
                                      const std::string& reason, PlanContext& context);

// LDs of one Attachment (tag, generation, host) that the fabric shows and no record intends, after
// a store was put back, for example. Whatever of their bytes looks free is held for an operator's
// decision, in a QUARANTINED Region: with its Attachment, which stays as it is until it is detached
// or the host is fenced; or, where the tag belongs to another Region or some bytes do, or the host
// is not enrolled or retired, without one, to be released with force once the host is fenced.
// Empty: there is nothing to take.
struct StrayLd {
  std::string host;
  Uuid tag;                 // Of no meaning where the generation is 0.
  uint64_t generation = 0;  // 0: the fabric keeps no names, and it gets new ones.
  uint32_t ld_index = 0;
  uint32_t slot = 0;
  uint64_t serial = 0;
  Extent extent;
};
// What becomes of the bytes of a Region that is about to be gone, for people: "512 MiB scrubbed and
// free; 256 MiB stay on failed device cmm-3, NOT scrubbed". Says of no byte that it was scrubbed
// that was not.
std::string EndOfBytes(const PoolState& state, const Region& region);

Change PlanStray(const PoolState& state, const std::vector<StrayLd>& lds, PlanContext& context);

// What the pool is made of. One step of a plan, for people: "add device cmm-9".
struct TopologyStep {
  enum class Verb { kAdd, kChange, kRemove };
  Verb verb = Verb::kAdd;
  std::string name;  // NameOf(entry).
  friend bool operator==(const TopologyStep&, const TopologyStep&) = default;
};
struct TopologyPlan {
  Change change;  // Empty: it is so already.
  std::vector<TopologyStep> steps;
};
// Makes the pool's topology what `wanted` says. What is not wanted any more goes as by
// PlanRemoveDevice; of a host only the way to it goes, and its enrolment stays.
// INVALID_ARGUMENT/BAD_TOPOLOGY; FAILED_PRECONDITION: DEVICE_NOT_EMPTY, HOST_HAS_ATTACHMENTS
// (metadata regions), DEVICE_DIFFERS (the pool knows the device by another serial number or
// granule, or as larger), DEVICE_REPLACED, DEVICE_FAILED. RESOURCE_EXHAUSTED/CHANGE_TOO_LARGE: it
// is made as a whole or not at all, and the store does not take that much at once.
absl::StatusOr<TopologyPlan> PlanTopology(const PoolState& state, const Caller& caller,
                                          const TopologyTables& wanted, PlanContext& context);
// One entry of it, beside the others or in place of the one of its id. A device that is DRAINING or
// REMOVED is in service again.
absl::StatusOr<Change> PlanPutDevice(const PoolState& state, const Caller& caller,
                                     const DeviceEntry& device, PlanContext& context);
absl::StatusOr<Change> PlanPutHost(const PoolState& state, const Caller& caller,
                                   const HostEntry& host, PlanContext& context);
// Takes in the configuration's tables, at most PlanContext::max_items records of them at a time;
// the last change says that it was done. Empty: it is done already, and the records are what
// counts. What is on record already stays as it is.
Change PlanImport(const PoolState& state, const TopologyTables& tables, const std::string& source,
                  PlanContext& context);
bool IsImported(const PoolState& state);
// How the tables of a file differ from those of the pool.
std::vector<TopologyStep> CompareTables(const TopologyTables& now, const TopologyTables& wanted);

// `tenant.key` is ignored.
absl::StatusOr<Change> PlanSetTenant(const PoolState& state, const Caller& caller,
                                     const Tenant& tenant, PlanContext& context);
absl::StatusOr<Change> PlanRemoveTenant(const PoolState& state, const Caller& caller,
                                        const std::string& tenant, PlanContext& context);

// Certificates and identities that are not to be believed any more. `revocation.key` and `time` are
// ignored. What is revoked already stays as it is. RESOURCE_EXHAUSTED/TOO_MANY_REVOCATIONS.
// Gives an identity a role, or another one. FAILED_PRECONDITION/LAST_ADMIN: nobody would be left
// who is an admin for good. `binding.key` and `time` are ignored.
absl::StatusOr<Change> PlanBindRole(const PoolState& state, const Caller& caller,
                                    const RoleBinding& binding, PlanContext& context);
// Takes it away. NOT_FOUND/NOT_BOUND.
absl::StatusOr<Change> PlanUnbindRole(const PoolState& state, const Caller& caller,
                                      const std::string& identity, PlanContext& context);
absl::StatusOr<Change> PlanRevoke(const PoolState& state, const Caller& caller,
                                  const Revocation& revocation, PlanContext& context);
// Takes it back. NOT_FOUND/NOT_REVOKED.
absl::StatusOr<Change> PlanRestore(const PoolState& state, const Caller& caller,
                                   const std::string& subject, PlanContext& context);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLANNER_H_
