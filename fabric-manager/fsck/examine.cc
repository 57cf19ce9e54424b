#include "fabric-manager/fsck/examine.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cxlpool/store/v1/record.pb.h"
#include "fabric-manager/fsck/held_bytes.h"
#include "fabric-manager/fsck/region_rules.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

namespace pb = store::v1;

constexpr uint64_t kIdMargin = 4096;           // As the manager reserves them.
constexpr uint64_t kLostIdMargin = 1'000'000;  // Lost records may have had greater ones.
constexpr uint64_t kUnknownGranule = 256 << 20;
constexpr uint64_t kLeastGranule = 1 << 20;  // Of which the largest device has fewer than 2^32.
constexpr uint64_t kLargestDevice = uint64_t{1} << 50;
constexpr char kQuarantine[] = "it becomes QUARANTINED";

ByteRange RangeOf(const pb::ExtentRecord& extent) {
  const uint64_t end = extent.dpa_bytes() + extent.length_bytes();
  return {extent.device(), extent.dpa_bytes(), end < extent.dpa_bytes() ? UINT64_MAX : end};
}

std::string Text(const ByteRange& range) {
  return absl::StrCat("bytes ", range.begin, " to ", range.end, " of ", range.device);
}

class Examiner {
 public:
  explicit Examiner(const ExamineOptions& options)
      : options_(options),
        unknown_bytes_(options.records_lost),
        binding_lost_(options.records_lost) {}

  // In steps that rest on those before: what decodes; which devices there are; what each Region
  // claims; what becomes of those that disagree; whether the manager loads the rest; last, holds
  // for every byte that nobody can vouch for. Bytes are only ever taken from the free ones.
  Examination Run(const std::vector<Row>& rows) {
    for (const Row& row : rows) Decode(row);
    greatest_found_ = greatest_id_;
    // What is made here gets ids that nothing has had, not even what was lost.
    greatest_id_ = std::max(greatest_id_, next_id_.value_or(0));
    if (options_.records_lost || !next_id_.has_value()) greatest_id_ += kLostIdMargin;
    unused_id_ = greatest_id_;
    PoolState loaded;
    for (const auto& [key, record] : records_) AddDevice(key, record, loaded);
    InferDevices();
    for (auto& [key, record] : records_) {
      if (record.has_region()) CheckRegion(key, *record.mutable_region());
    }
    if (options_.maybe_stale && !CXLPOOL_MUTANT("fsck-trusts-old-records")) DistrustAll();
    for (const auto& [key, reasons] : disputed_) Quarantine(key, reasons);
    for (const auto& [key, reasons] : outvoted_) Shrink(key, reasons);
    CheckThatItLoads();
    for (const pb::RegionRecord& region : orphans_) HoldBytesOf(region);
    if (unknown_bytes_) HoldEverythingFree();
    if (binding_lost_ && !CXLPOOL_MUTANT("fsck-unbinds")) KeepBound();
    CheckAudit();
    CheckPool();
    NoteRepair();
    return Result();
  }

 private:
  void Find(uint64_t key, std::string what, std::string repair) {
    out_.findings.push_back({key, std::move(what), std::move(repair)});
  }

  // Whose bytes nobody knows any more.
  void Remove(uint64_t key, const std::string& reason) {
    out_.removed.push_back({key, originals_[key], reason});
    records_.erase(key);
  }

  uint64_t NewId() { return ++greatest_id_; }

  // A row that does not decode is set aside. What it says of bytes is believed as far as it can be
  // read: known bytes are held, and where nothing can be read, all that are free.
  void Decode(const Row& row) {
    originals_[row.key] = row.value;
    greatest_id_ = std::max(greatest_id_, row.key);
    pb::Record record;
    const bool parsed = record.ParseFromString(row.value);
    const auto decoded = DecodeRecord(row.key, row.value);
    const absl::Status& status = decoded.status();
    const pb::RegionRecord* region = record.has_region()      ? &record.region()
                                     : record.has_tombstone() ? &record.tombstone().region()
                                                              : nullptr;
    if (region != nullptr) {
      greatest_id_ = std::max(greatest_id_, GreatestIdOf(*region));
      out_.greatest_revision = std::max(out_.greatest_revision, region->revision());
    }
    for (const pb::ExtentRecord& extent : record.region().extents()) {
      if (!extent.bad_reason().empty()) bad_.emplace_back(RangeOf(extent), extent.bad_reason());
    }
    if (parsed && record.has_pool() && status.ok()) {
      pool_ = std::get<PoolMeta>(*decoded);
      next_id_ = pool_.next_id;
      return;
    }
    if (status.ok()) {
      if (record.has_audit_row()) {
        audit_rows_.push_back(std::get<AuditRowPtr>(std::get<Item>(*decoded)));
      }
      records_.emplace(row.key, std::move(record));
      return;
    }
    const bool holds_known_bytes =
        parsed && record.has_region() && record.region().extents_size() > 0;
    const bool of_rights = parsed && (record.has_revocation() || record.has_role_binding());
    // One that says nothing which is understood may have been a binding.
    if (!parsed || record.has_role_binding() || record.body_case() == pb::Record::BODY_NOT_SET) {
      binding_lost_ = true;
    }
    const bool holds_none =
        parsed &&
        (record.has_host() || record.has_tombstone() || record.has_pool() || record.has_tenant() ||
         record.has_audit_row() ||
         ((of_rights || record.has_topology_entry()) && !CXLPOOL_MUTANT("fsck-holds-for-rights")));
    if (holds_known_bytes) orphans_.push_back(record.region());
    if (!holds_known_bytes && !holds_none) unknown_bytes_ = true;
    Find(row.key, std::string(status.message()),
         holds_known_bytes ? "it is set aside, and its bytes are held"
         : of_rights  ? "it is set aside, and what it says of rights does not hold any more: look "
                        "at `cxlpool access list` and `cxlpool certificate list` afterwards"
         : holds_none ? "it is set aside"
                      : "it is set aside, and all free bytes are held, for it may have had any");
    Remove(row.key, std::string(status.message()));
  }

  // One that the manager would not load is as good as lost: nothing in it can be relied on, not
  // even that the device is in service. `loaded`: with those before it.
  void AddDevice(uint64_t key, const pb::Record& record, PoolState& loaded) {
    if (!record.has_device()) return;
    const pb::DeviceRecord& device = record.device();
    if (bytes_.Knows(device.id())) {
      Find(key, absl::StrCat("there are two records of device ", device.id()), "it is set aside");
      not_devices_.emplace(key, "there are two records of this device");
      return;
    }
    const absl::Status status = Load(key, record, loaded);
    if (!status.ok() && !CXLPOOL_MUTANT("fsck-takes-unsound-devices-for-empty")) {
      Find(key, absl::StrCat("the manager would not load it: ", status.message()),
           "it is set aside, and all free bytes are held, for nobody knows what it had");
      not_devices_.emplace(key, std::string(status.message()));
      unknown_bytes_ = true;
      return;
    }
    bytes_.AddDevice(device.id(), device.capacity_bytes(), device.granule_bytes(),
                     device.max_lds());
  }

  // Devices that Regions are on and no record tells of. With a record that the fabric contradicts,
  // for it has no serial number, the manager places nothing there; without one it would take the
  // device for new and empty. Its granule is one of which the Regions have whole ones, or their
  // records would not load.
  void InferDevices() {
    for (const auto& [key, why] : not_devices_) Remove(key, why);
    struct Seen {
      uint64_t end = 0;
      uint64_t granule = kUnknownGranule;
    };
    std::map<std::string, Seen> devices;
    const auto add = [&](const pb::RegionRecord& region) {
      for (const pb::ExtentRecord& extent : region.extents()) {
        if (bytes_.Knows(extent.device()) || extent.device().empty()) continue;
        Seen& seen = devices[extent.device()];
        seen.end = std::max(seen.end, RangeOf(extent).end);
        const uint64_t bits = extent.dpa_bytes() | extent.length_bytes() | seen.granule;
        const uint64_t granule = bits & (~bits + 1);  // The lowest bit of them all.
        if (granule >= kLeastGranule) seen.granule = granule;
      }
    };
    for (const auto& [key, record] : records_) add(record.region());
    for (const pb::RegionRecord& region : orphans_) add(region);
    for (const auto& [id, seen] : devices) {
      pb::Record record;
      pb::DeviceRecord& device = *record.mutable_device();
      // An end that no device can have is damage as well.
      const uint64_t capacity =
          std::min(seen.end / kUnknownGranule + 1, kLargestDevice / kUnknownGranule) *
          kUnknownGranule;
      device.set_id(id);
      device.set_capacity_bytes(capacity);
      device.set_granule_bytes(CXLPOOL_MUTANT("fsck-guesses-the-granule") ? kUnknownGranule
                                                                          : seen.granule);
      const uint64_t key = NewId();
      bytes_.AddDevice(id, capacity, device.granule_bytes());
      Find(key, absl::StrCat("Regions are on device ", id, ", of which there is no record"),
           "it gets one as large as they need; nothing is placed on it until it fits the fabric");
      Put(key, std::move(record));
    }
  }

  // Names, tags, generations, slots and requests belong to one Region each: the first that has one
  // keeps it. One that is QUARANTINED already may break any other rule.
  void CheckRegion(uint64_t key, const pb::RegionRecord& region) {
    for (const Claim& claim : ClaimsOf(region)) {
      const auto [owner, first] = claims_.emplace(claim.text, key);
      if (first || owner->second == key) continue;
      Dispute(owner->second, key, absl::StrCat(claim.text, " belongs to record "));
      contested_[key].insert(claim.text);
    }
    for (const pb::ExtentRecord& extent : region.extents()) CheckExtent(key, extent);
    if (region.state() == static_cast<uint32_t>(RegionState::kQuarantined)) return;
    for (const std::string& broken : BrokenRules(region)) {
      Find(key, absl::StrCat("region \"", region.id(), "\": ", broken), kQuarantine);
      disputed_[key].insert(broken);
    }
  }

  // Every byte of the device is held by whoever named it first, also where the extent ends outside.
  void CheckExtent(uint64_t key, const pb::ExtentRecord& extent) {
    const ByteRange range = RangeOf(extent);
    if (!bytes_.Knows(range.device) || range.end > bytes_.CapacityOf(range.device) ||
        range.begin == range.end) {
      const std::string what = absl::StrCat(Text(range), " are not inside the device");
      Find(key, what, "it becomes QUARANTINED, without hosts, on its other bytes");
      outvoted_[key].insert(what);
      if (bytes_.Knows(range.device)) {
        bytes_.Hold(
            {range.device, range.begin, std::min(range.end, bytes_.CapacityOf(range.device))}, key);
      }
      return;
    }
    for (const HeldBytes::Owned& owned : bytes_.OwnersOf(range)) {
      if (owned.key == key) {
        const std::string what = absl::StrCat(Text(owned.range), " are in two of its extents");
        Find(key, what, "it becomes QUARANTINED, with these bytes once");
        outvoted_[key].insert(what);
      } else {
        Dispute(owned.key, key, absl::StrCat(Text(owned.range), " belong to record "));
      }
    }
    bytes_.Hold(range, key);
  }

  // Any of them may have been released since, and its bytes given to a Region of which nothing is
  // known. A host that has one keeps it.
  void DistrustAll() {
    constexpr char kWhy[] =
        "changes of the pool are lost, and this record may be of before them; find out who uses "
        "its "
        "bytes, then release it with force";
    size_t distrusted = 0;
    for (const auto& [key, record] : records_) {
      if (!record.has_region() ||
          record.region().state() == static_cast<uint32_t>(RegionState::kQuarantined)) {
        continue;
      }
      disputed_[key].insert(kWhy);
      ++distrusted;
    }
    if (distrusted == 0) return;
    Find(0, absl::StrCat("the records of ", distrusted, " Regions may be of an earlier moment"),
         "all of them become QUARANTINED");
  }

  // `later` claims what `earlier` has.
  void Dispute(uint64_t earlier, uint64_t later, const std::string& what) {
    Find(earlier, absl::StrCat(what, later, " as well"), kQuarantine);
    Find(later, absl::StrCat(what, earlier, " as well"),
         "it becomes QUARANTINED, without hosts, on the bytes that nobody else has");
    disputed_[earlier].insert(absl::StrCat(what, later, " as well"));
    outvoted_[later].insert(absl::StrCat(what, earlier, " as well"));
  }

  static std::string ReasonOf(const std::set<std::string>& reasons) {
    constexpr size_t kMost = 400;
    return absl::StrCat("FSCK: ", absl::StrJoin(reasons, "; ")).substr(0, kMost);
  }

  void Quarantine(uint64_t key, const std::set<std::string>& reasons) {
    if (outvoted_.contains(key)) return;  // That does more.
    pb::Record record = records_.at(key);
    SetQuarantined(*record.mutable_region(), ReasonOf(reasons));
    for (pb::ExtentRecord& extent : *record.mutable_region()->mutable_extents()) MarkIfBad(extent);
    Put(key, std::move(record));
  }

  // Also where another Region held the bytes when they were lost: the one that holds them now has
  // lost them.
  void MarkIfBad(pb::ExtentRecord& extent) const {
    const ByteRange range = RangeOf(extent);
    for (const auto& [bad, reason] : bad_) {
      const bool overlaps =
          bad.device == range.device && bad.begin < range.end && range.begin < bad.end;
      if (overlaps && extent.bad_reason().empty()) extent.set_bad_reason(reason);
    }
  }

  static void SetQuarantined(pb::RegionRecord& region, const std::string& reason) {
    region.set_state(static_cast<uint32_t>(RegionState::kQuarantined));
    region.set_state_reason(reason);
    region.set_forced(false);
    region.set_compensating(false);
  }

  // Makes of a Region one without hosts, on those of its bytes that are its own.
  void Shrink(uint64_t key, const std::set<std::string>& reasons) {
    const pb::RegionRecord before = records_.at(key).region();
    pb::RegionRecord after;
    after.set_tenant(before.tenant());
    after.set_requested_bytes(before.requested_bytes());
    after.set_sharing(before.sharing());
    after.set_fabric_isolation(before.fabric_isolation());
    after.set_create_time_unix_us(before.create_time_unix_us());
    after.set_revision(before.revision());
    after.set_interleave_ways(1);
    const std::set<std::string>& contested = contested_[key];
    const auto own = [&](const Claim& claim) { return !contested.contains(claim.text); };
    const std::vector<Claim> claims = ClaimsOf(before);  // Name, tag and generation come first.
    after.set_id(own(claims[0]) ? before.id() : absl::StrCat("fsck-", key));
    after.set_tag(own(claims[1]) ? before.tag() : options_.make_tag());
    after.set_generation(own(claims[2]) ? before.generation() : NewId());
    for (const pb::RequestRecord& request : before.requests()) {
      if (own(RequestClaim(request))) *after.add_requests() = request;
    }
    SetQuarantined(after, ReasonOf(reasons));
    Remove(key, ReasonOf(reasons));
    std::vector<ByteRange> left;
    for (const pb::ExtentRecord& extent : before.extents()) {
      for (const HeldBytes::Owned& owned : bytes_.OwnersOf(RangeOf(extent))) {
        const bool twice = std::any_of(left.begin(), left.end(), [&](const ByteRange& other) {
          return other.device == owned.range.device && other.begin < owned.range.end &&
                 owned.range.begin < other.end;
        });
        if (owned.key == key && !twice) left.push_back(owned.range);
      }
    }
    if (left.empty()) Find(key, "no byte is its own", "it is set aside");
    Keep(key, std::move(after), left);
  }

  // Gives `region` the ranges, and what is beyond a Region's limit to Regions of their own.
  void Keep(uint64_t key, pb::RegionRecord region, const std::vector<ByteRange>& ranges) {
    for (size_t i = 0; i < ranges.size(); i += kMaxExtentsPerRegion) {
      pb::Record record;
      if (i > 0) {
        key = NewId();
        region = HoldRegion(key, region.state_reason());
      }
      *record.mutable_region() = region;
      for (size_t j = i; j < std::min(ranges.size(), i + kMaxExtentsPerRegion); ++j) {
        pb::ExtentRecord& extent = *record.mutable_region()->add_extents();
        extent.set_device(ranges[j].device);
        extent.set_dpa_bytes(ranges[j].begin);
        extent.set_length_bytes(ranges[j].end - ranges[j].begin);
        MarkIfBad(extent);
        bytes_.Hold(ranges[j], key);
      }
      Put(key, std::move(record));
    }
  }

  pb::RegionRecord HoldRegion(uint64_t key, const std::string& reason) {
    pb::RegionRecord region;
    region.set_tag(options_.make_tag());
    region.set_id(absl::StrCat("fsck-hold-", key));
    region.set_tenant(kDefaultTenant);
    region.set_generation(key);
    region.set_sharing(static_cast<uint32_t>(Sharing::kExclusive));
    region.set_create_time_unix_us(absl::ToUnixMicros(options_.now));
    region.set_interleave_ways(1);
    SetQuarantined(region, reason);
    return region;
  }

  // Of a record that was taken out: those of its bytes that no Region has now.
  void HoldBytesOf(const pb::RegionRecord& lost) {
    std::vector<ByteRange> ranges;
    for (const pb::ExtentRecord& extent : lost.extents()) {
      for (ByteRange& range : bytes_.FreeOf(RangeOf(extent))) {
        bytes_.Hold(range, 0);
        ranges.push_back(std::move(range));
      }
    }
    HoldRanges(ranges, absl::StrCat("FSCK: bytes of Region \"", lost.id(),
                                    "\", whose record is in the table quarantine"));
  }

  // Devices that no record knows are held when the manager sees them (PoolMeta::hold_reason).
  void HoldEverythingFree() {
    if (CXLPOOL_MUTANT("fsck-without-hold")) return;
    const std::vector<ByteRange> free = bytes_.Free();
    if (options_.records_lost) {
      Find(0, "records were lost; what they held is not known",
           "all free bytes are held by QUARANTINED Regions, and so is each device that no record "
           "knows; revocations among them do not hold any more: look at `cxlpool certificate list` "
           "afterwards");
    }
    if (free.empty()) return;
    HoldRanges(free, "FSCK: a record was lost, and may have had these bytes");
  }

  // While nobody is bound every operator's certificate is an admin's (RoleOf). So a pool that may
  // have lost its last binding gets one of nobody, which has ended: admins are then those of the
  // configuration and of the manager's own socket, who bind others anew.
  void KeepBound() {
    for (const auto& [key, record] : records_) {
      if (record.has_role_binding()) return;
    }
    RoleBinding binding{.key = NewId(),
                        .identity = "cxlpool://fsck/nobody",
                        .end = options_.now,
                        .reason = "roles may have been lost, as a repair found",
                        .principal = "fsck",
                        .time = options_.now};
    Find(0, "no role is bound, and one may have been lost",
         "operators get in when somebody who is an admin by the manager's own socket or by "
         "access.admins gives them roles again");
    PutEncoded(binding.key, EncodeItem(binding));
  }

  void HoldRanges(const std::vector<ByteRange>& ranges, const std::string& reason) {
    if (ranges.empty()) return;
    const uint64_t key = NewId();
    uint64_t bytes = 0;
    for (const ByteRange& range : ranges) bytes += range.end - range.begin;
    pb::RegionRecord region = HoldRegion(key, reason);
    region.set_requested_bytes(bytes);
    Keep(key, std::move(region), ranges);
  }

  void Put(uint64_t key, pb::Record record) {
    records_[key] = std::move(record);
    changed_.insert(key);
  }

  // As Put, of bytes that EncodeItem or EncodePool made.
  void PutEncoded(uint64_t key, const std::string& value) {
    pb::Record record;
    record.ParseFromString(value);
    Put(key, std::move(record));
  }

  // The pool's own record, with ids that start above all that are known.
  void PutPool() {
    pool_.next_id = greatest_id_ + kIdMargin;
    PutEncoded(kPoolKey, EncodePool(pool_));
  }

  // The manager's own word on one record, beside those that `state` has.
  static absl::Status Load(uint64_t key, const pb::Record& record, PoolState& state) {
    auto decoded = DecodeRecord(key, record.SerializeAsString());
    if (!decoded.ok()) return decoded.status();
    return state.Apply({std::get<Item>(*std::move(decoded))}).status();
  }

  // Whether the entries of the topology go together, as the manager takes them: all at once.
  bool TopologyLoads() const {
    Change entries;
    for (const auto& [key, record] : records_) {
      if (!record.has_topology_entry()) continue;
      auto decoded = DecodeRecord(key, record.SerializeAsString());
      if (!decoded.ok()) return false;
      entries.push_back(std::get<Item>(*std::move(decoded)));
    }
    return PoolState().Apply(entries).ok();
  }

  // The manager's own word on each record, in the order in which it needs them. What it refuses
  // for a reason that is not looked for above is set aside, too.
  void CheckThatItLoads() {
    const auto rank = [](const pb::Record& record) {
      return record.has_device()   ? 0
             : record.has_host()   ? 1
             : record.has_tenant() ? 2
             : record.has_region() ? 3
             // Nodes of the topology, then the links between them.
             : !record.has_topology_entry()       ? 4
             : record.topology_entry().has_link() ? 6
                                                  : 5;
    };
    std::vector<std::pair<int, uint64_t>> order;
    for (const auto& [key, record] : records_) order.emplace_back(rank(record), key);
    std::sort(order.begin(), order.end());
    PoolState state;
    const bool topology_loads = TopologyLoads();
    for (const auto& [of, key] : order) {
      if (records_.at(key).has_audit_row()) continue;  // They are no part of the pool.
      // Each by itself, a thousand links would be looked at a thousand times.
      if (of >= 5 && topology_loads) continue;
      const absl::Status status = Load(key, records_.at(key), state);
      if (status.ok()) continue;
      const bool region = records_.at(key).has_region();
      if (region) orphans_.push_back(records_.at(key).region());
      if (region) Release(key);
      Find(key, absl::StrCat("the manager would not load it: ", status.message()),
           region ? "it is set aside, and its bytes are held" : "it is set aside");
      Remove(key, std::string(status.message()));
    }
  }

  // Its bytes are to be held by another record.
  void Release(uint64_t key) {
    HeldBytes without;
    for (const auto& [id, record] : records_) {
      if (record.has_device()) {
        without.AddDevice(record.device().id(), record.device().capacity_bytes(),
                          record.device().granule_bytes(), record.device().max_lds());
      }
    }
    for (const auto& [other, record] : records_) {
      if (other == key || !record.has_region()) continue;
      for (const pb::ExtentRecord& extent : record.region().extents()) {
        without.Hold(RangeOf(extent), other);
      }
    }
    bytes_ = std::move(without);
  }

  // What was altered cannot be repaired, and what is only set aside can still be read: the rows
  // leave together, and the trail goes on behind the last that is known of.
  void CheckAudit() {
    if (options_.anchor.has_value()) CheckThatItHas(*options_.anchor);
    const std::vector<AuditFlaw> flaws = VerifyChain(pool_.audit, audit_rows_);
    if (flaws.empty()) return;
    constexpr char kWhy[] = "the audit trail is not as it was written";
    for (const AuditFlaw& flaw : flaws) {
      Find(0, absl::StrCat(kWhy, ": ", flaw.what),
           "all of its rows are set aside, and it goes on behind the last");
    }
    for (const AuditRowPtr& row : audit_rows_) {
      if (row->head.number > pool_.audit.head.number) pool_.audit.head = row->head;
      Remove(row->key, kWhy);
    }
    pool_.audit.dropped = pool_.audit.head;
  }

  // A trail without the anchor was written anew, or the anchor is another pool's: nobody can tell
  // here, so it is said and nothing is done.
  void CheckThatItHas(const AuditHead& anchor) {
    const auto flaw = CheckAnchor(pool_.audit, audit_rows_, anchor);
    if (flaw.ok() && !flaw->has_value()) return;
    out_.anchor = {0, flaw.ok() ? (*flaw)->what : std::string(flaw.status().message()),
                   "none: see that the anchor is this pool's, and compare with a backup of then"};
  }

  // A repair is a change like any other: the trail goes on with it. Its row is the last record that
  // is made, and is not among the ids that CheckPool knew.
  void NoteRepair() {
    if (out_.findings.empty() || CXLPOOL_MUTANT("fsck-repair-without-entry")) return;
    AuditRow row;
    row.key = NewId();
    row.bytes = EncodeEntries({{.time = options_.now,
                                .who = "fsck",
                                .method = "repair",
                                .more = out_.findings.size() - 1,
                                .reason = out_.findings.front().what,
                                .revision = out_.greatest_revision}});
    row.head = pool_.audit.head = NextHead(pool_.audit.head, row.bytes);
    PutEncoded(row.key, EncodeItem(std::make_shared<const AuditRow>(row)));
    PutPool();
  }

  // Ids start above all that are known, with a margin: a lost record may have had a greater one.
  void CheckPool() {
    if (!next_id_.has_value()) {
      if (records_.empty() && out_.findings.empty() && !unknown_bytes_) return;  // A new store.
      Find(kPoolKey, "the record of the pool is missing",
           "it is made again, with ids above all that are known");
    } else if (*next_id_ <= greatest_found_) {
      Find(kPoolKey,
           absl::StrCat("ids from ", *next_id_, " on would be given out again; ", greatest_found_,
                        " is in use"),
           "ids start above it");
    } else if (greatest_id_ == unused_id_ && !unknown_bytes_) {
      return;
    }
    if (unknown_bytes_ && !CXLPOOL_MUTANT("fsck-without-hold")) {
      pool_.hold_reason =
          absl::StrCat("records were lost, as a repair found on ",
                       absl::FormatTime("%Y-%m-%d", options_.now, absl::UTCTimeZone()));
    }
    PutPool();
  }

  Examination Result() {
    for (const auto& [key, record] : records_) {
      // What was not touched stays byte for byte.
      out_.rows.push_back(
          {key, changed_.contains(key) ? record.SerializeAsString() : originals_.at(key)});
    }
    if (next_id_.has_value() && !changed_.contains(kPoolKey)) {
      out_.rows.insert(out_.rows.begin(), {kPoolKey, originals_.at(kPoolKey)});
    }
    return std::move(out_);
  }

  const ExamineOptions& options_;
  Examination out_;
  std::map<uint64_t, std::string> originals_;  // As found.
  std::map<uint64_t, pb::Record> records_;     // As they are to be, without the pool's.
  PoolMeta pool_;
  std::optional<uint64_t> next_id_;  // As found.
  std::set<uint64_t> changed_;
  uint64_t greatest_id_ = kPoolKey;
  uint64_t greatest_found_ = kPoolKey;
  uint64_t unused_id_ = 0;
  bool unknown_bytes_ = false;
  bool binding_lost_ = false;                    // Perhaps.
  std::map<uint64_t, std::string> not_devices_;  // Records of devices that are set aside, and why.
  HeldBytes bytes_;
  std::vector<std::pair<ByteRange, std::string>> bad_;  // Of all Regions: bytes that were lost.
  std::map<std::string, uint64_t> claims_;              // Text -> who had it first.
  std::map<uint64_t, std::set<std::string>> disputed_, outvoted_, contested_;
  std::vector<AuditRowPtr> audit_rows_;    // In order of key.
  std::vector<pb::RegionRecord> orphans_;  // Taken out; their bytes are known.
};

}  // namespace

Examination Examine(const std::vector<Row>& rows, const ExamineOptions& options) {
  return Examiner(options).Run(rows);
}

}  // namespace cxlpool::fm
