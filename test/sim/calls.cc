#include "test/sim/calls.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "test/sim/processes.h"

namespace cxlpool::sim {
namespace {

constexpr int64_t kFirstRenamed = 9;
constexpr int64_t kShapeOfLease = 7;

// Whether an error says that nothing was done, or leaves it open.
bool LeavesOpen(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsUnknown(status) || absl::IsDataLoss(status);
}

}  // namespace

std::string RegionName(int64_t region) {
  static const std::vector<std::string>& kNames = *new auto([] {
    std::vector<std::string> names;
    for (int i = 0; i < 2 * kRegionNames; ++i) names.push_back(absl::StrCat("r", i));
    return names;
  }());
  const auto number = static_cast<size_t>(region);
  return number < kNames.size() ? kNames[number] : absl::StrCat("r", region);
}
std::string Renamed(int64_t region) {
  return RegionName(kFirstRenamed + region % (kRegionNames - kFirstRenamed));
}
std::string NewName(const Step& step) {
  const std::string to = Renamed(step.Get("to"));
  return to == Renamed(step.Get("region")) ? Renamed(step.Get("to") + 1) : to;
}
std::string TenantName(int64_t tenant) {
  return tenant == 0 ? fm::kDefaultTenant : absl::StrCat("t", tenant);
}
std::string DeviceName(int64_t device) { return absl::StrCat("cmm-", device); }

fm::AllocateSpec AllocateSpecOf(const Step& step, const fm::Request& request, int64_t region) {
  fm::AllocateSpec spec;
  spec.caller = CallerOf(step.Get("by"));
  spec.request = request;
  if (region < kRegionNames) spec.region_id = RegionName(region);
  spec.tenant = TenantName(step.Get("tenant"));
  spec.size_bytes = static_cast<uint64_t>(step.Get("granules")) * kGranule;
  if (step.verb == Verb::kAllocateBatch) return spec;
  if (step.Get("host") < kHosts) spec.host = HostName(static_cast<int>(step.Get("host")));
  spec.mode = step.Get("mode") == 1 ? fm::Mode::kSystemRam : fm::Mode::kDevdax;
  spec.access = step.Get("mode") == 2 ? fm::Access::kReadOnly : fm::Access::kReadWrite;
  switch (step.Get("shape")) {
    case 1:
      spec.max_extents = 4;
      break;
    case 2:
    case 3:
      spec.policy = fm::Policy::kBandwidth;
      spec.interleave_ways = step.Get("shape") == 2 ? 2 : 4;
      spec.max_extents = 4;
      break;
    case 4:
      spec.policy = fm::Policy::kSpread;
      break;
    case 5:
      spec.policy = fm::Policy::kIsolate;
      spec.isolate_from = {RegionName((region + 1) % kRegionNames)};
      break;
    case 6:
      spec.sharing = fm::Sharing::kMultiWriter;
      break;
    case kShapeOfLease:
      spec.ttl = absl::Seconds(10);
      break;
    case 8:
      spec.policy = fm::Policy::kLatency;
      spec.expected_lifetime = absl::Seconds(60);
      break;
    default:
      break;
  }
  return spec;
}

fm::ReleaseSpec ReleaseSpecOf(const Step& step, const fm::Request& request, int64_t region) {
  fm::ReleaseSpec spec;
  spec.caller = CallerOf(step.Get("by"));
  spec.request = request;
  spec.region_id = RegionName(region);
  spec.detach_all = step.verb != Verb::kRelease || step.Get("all") != 0;
  spec.force = step.verb == Verb::kForceRelease;
  if (spec.force) spec.reason = "the simulation says so";
  spec.fence = step.Get("fence") != 0;
  return spec;
}

fm::Caller CallerOf(int64_t by) {
  return by == 0 ? fm::Caller::Admin("cxlpool://operator/sim")
                 : fm::Caller::OfHost(HostName(static_cast<int>(by) - 1), PrincipalOf(by).str());
}
Interned PrincipalOf(int64_t by) {
  static const std::vector<Interned>& kPrincipals = *new auto([] {
    std::vector<Interned> principals = {Interned("cxlpool://operator/sim")};
    for (int host = 0; host < kStranger; ++host) {
      principals.emplace_back(absl::StrCat("cxlpool://host/", HostName(host)));
    }
    return principals;
  }());
  return kPrincipals[static_cast<size_t>(by)];
}

fm::Request RequestOf(Interned method, uint64_t number, uint64_t item, int64_t by) {
  std::string id(16, '\0');
  for (int i = 0; i < 8; ++i) id[i] = static_cast<char>(number >> (8 * i));
  id[8] = static_cast<char>(item + 1);
  return fm::Request{{PrincipalOf(by), method, Uuid(id)}, 1};
}

bool SaysTheSame(const absl::StatusOr<fm::Committed>& a, const absl::StatusOr<fm::Committed>& b) {
  if (!a.ok() || !b.ok()) return a.status() == b.status();
  const fm::Region& x = *a->region;
  const fm::Region& y = *b->region;
  const auto same_place = [](const fm::Segment& s, const fm::Segment& t) {
    return s.extent_index == t.extent_index && s.slot == t.slot;
  };
  const auto same_use = [&](const fm::Attachment& s, const fm::Attachment& t) {
    return s.host == t.host && s.mode == t.mode && s.access == t.access &&
           s.settled().state == t.settled().state &&
           s.settled().detaching == t.settled().detaching && s.parts.size() == t.parts.size() &&
           std::equal(s.segments.begin(), s.segments.end(), t.segments.begin(), t.segments.end(),
                      same_place);
  };
  const bool made_up = x.id.starts_with("r-") && y.id.starts_with("r-");
  return (made_up || x.id == y.id) && x.tenant == y.tenant && x.state == y.state &&
         x.revision == y.revision && x.extents == y.extents && x.sharing == y.sharing &&
         x.policy == y.policy && x.ttl == y.ttl && x.interleave_ways == y.interleave_ways &&
         x.tail_extents == y.tail_extents && x.tail_leaving == y.tail_leaving &&
         std::equal(x.attachments.begin(), x.attachments.end(), y.attachments.begin(),
                    y.attachments.end(), same_use);
}

bool FillOp(const Step& step, int64_t item, ClientOp& op) {
  const int64_t region = step.Get("region");
  if (region >= kRegionNames) return false;  // Nobody can ask for it by name.
  if (step.Get("dry") == 2) return false;    // Nothing is done.
  op.by_host = step.Get("by") != 0;
  op.client = static_cast<int>(step.Get("client"));
  op.region_id = RegionName((region + item) % kRegionNames);
  op.size_granules = static_cast<uint64_t>(step.Get("granules"));
  const int64_t host = step.Get("host");
  if (host < kHosts) op.host = HostName(static_cast<int>(host));
  switch (step.verb) {
    case Verb::kAllocateBatch:
      op.host.clear();
      [[fallthrough]];
    case Verb::kAllocate:
      op.kind = ClientOp::kAllocate;
      op.lease = step.Get("shape") == kShapeOfLease;
      return true;
    case Verb::kGet:
      op.kind = ClientOp::kGet;
      return true;
    case Verb::kResize:
      op.kind = ClientOp::kResize;
      return true;
    case Verb::kRename:
      op.kind = ClientOp::kRename;
      op.region_id = Renamed(region);
      op.new_region_id = NewName(step);
      return true;
    case Verb::kAttach:
      op.kind = ClientOp::kAttach;
      return true;
    case Verb::kDetach:
      op.kind = ClientOp::kDetach;
      return true;
    case Verb::kRenew:
      op.kind = ClientOp::kRenew;
      op.lease = true;
      return true;
    case Verb::kRelease:
    case Verb::kReleaseBatch:
    case Verb::kForceRelease:
      op.kind = ClientOp::kRelease;
      // Of a host: it lets go of its own, and others' stand in its way.
      op.detach_all = step.verb != Verb::kRelease || step.Get("all") != 0 || op.by_host;
      op.force = step.verb == Verb::kForceRelease;
      return true;
    default:
      return false;
  }
}

void WriteDown(const absl::StatusOr<fm::Committed>& answer, ClientOp& op) {
  if (!answer.ok()) {
    op.outcome = LeavesOpen(answer.status()) ? ClientOp::kUnknown : ClientOp::kRefused;
    op.reason = ReasonOf(answer.status());
    return;
  }
  if (answer->region == nullptr) return;
  const fm::Region& region = *answer->region;
  op.outcome = ClientOp::kOk;
  op.tag = std::string(region.tag.bytes());
  op.generation = region.generation;
  op.revision = region.revision;
  op.answered_granules = region.size_bytes() / kGranule;
  op.resizing = region.resizing();
  op.state = std::string(ToString(region.state));
  for (const fm::Attachment& attachment : region.attachments) {
    op.hosts.push_back({attachment.host, attachment.settled().detaching});
  }
}

}  // namespace cxlpool::sim
