#include "fabric-manager/model/plan_parts.h"

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/placement.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

absl::Status Refuse(absl::StatusCode code, const std::string& reason, const std::string& message,
                    const std::string& remedy, Metadata metadata) {
  return Refusal{code, reason, message, remedy, std::move(metadata)}.ToStatus();
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 80)), text.size() > 80 ? "..." : "",
                      "\"");
}

absl::StatusOr<std::optional<Plan>> FindRetry(const PoolState& state, const Request& request) {
  if (request.id.id.empty()) return std::nullopt;
  const auto remembered = state.FindRequest(request.id);
  if (!remembered.has_value()) return std::nullopt;
  if (remembered->payload_hash == request.payload_hash) return Plan{remembered->region, {}};
  const std::string& region = remembered->region->id;
  return Refuse(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
                absl::StrCat("this request_id belongs to an earlier ", request.id.method,
                             " of region \"", region, "\" with other arguments"),
                "make a new request_id for each new call, and keep it only for retries",
                {{"region", region}, {"request_id", FormatUuid(request.id.id)}});
}

absl::StatusOr<RegionPtr> GetRegion(const PoolState& state, absl::string_view region_id) {
  const RegionPtr* found = state.FindRegionById(region_id);
  if (found == nullptr) {
    if (const auto tag = ParseUuid(region_id); tag.ok()) found = state.FindRegionByTag(*tag);
  }
  if (found != nullptr) return *found;
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_REGION",
                absl::StrCat("there is no region ", Quoted(region_id)),
                "see `cxlpool region list`; it may have been released",
                {{"region", std::string(region_id.substr(0, 80))}});
}

void Remember(Region& region, const Request& request) {
  if (request.id.id.empty()) return;
  // The first is the one that made the Region: it stays.
  if (region.requests.size() > kMaxRequestsPerRegion) {
    region.requests.erase(region.requests.begin() + 1);
  }
  region.requests.push_back(request);
}

std::shared_ptr<Region> Edit(const Region& region, const Request& request,
                             const PlanContext& context) {
  auto edited = std::make_shared<Region>(region);
  edited->revision = context.revision;
  Remember(*edited, request);
  return edited;
}

absl::Status CheckSharing(absl::string_view label, Sharing sharing,
                          const std::vector<Attachment>& present, absl::string_view host, Mode mode,
                          Access access) {
  const auto conflict = [&](const std::string& why, const std::string& remedy,
                            const std::vector<std::string>& holders) {
    const std::string names = absl::StrJoin(holders, ",");
    return Refuse(absl::StatusCode::kFailedPrecondition, "SHARING_CONFLICT",
                  absl::StrCat(label, " ", why), remedy,
                  {{"host", std::string(host)},
                   {"holders", names},
                   {"sharing", std::string(ToString(sharing))}});
  };
  if (mode == Mode::kSystemRam && sharing != Sharing::kExclusive) {
    return conflict(absl::StrCat("is ", ToString(sharing), " and cannot be system-ram: a kernel ",
                                 "shares its memory with no other host"),
                    "allocate it EXCLUSIVE, or attach it as devdax", {});
  }
  if (mode == Mode::kSystemRam && access != Access::kReadWrite) {
    return conflict("cannot be read-only system-ram: a kernel writes to its memory",
                    "attach it READ_WRITE, or as devdax", {});
  }
  std::vector<std::string> holders;
  bool all_leaving = true;
  for (const Attachment& other : present) {
    const bool both_write = access == Access::kReadWrite && other.access == Access::kReadWrite;
    if (sharing == Sharing::kExclusive || (sharing == Sharing::kSingleWriter && both_write)) {
      holders.push_back(other.host);
      all_leaving &= other.detaching;
    }
  }
  if (holders.empty() || sharing == Sharing::kMultiWriter) return absl::OkStatus();
  const std::string names = absl::StrJoin(holders, ", ");
  std::string remedy =
      all_leaving ? absl::StrCat("retry when ", names, " has let go of it")
                  : absl::StrCat("detach it from ", names,
                                 sharing == Sharing::kExclusive
                                     ? " first, or allocate it as SINGLE_WRITER or MULTI_WRITER"
                                     : " first, or attach READ_ONLY");
  return conflict(
      absl::StrCat("is ", ToString(sharing), " and ",
                   sharing == Sharing::kExclusive ? "attached to " : "written by ", names),
      remedy, holders);
}

absl::StatusOr<Attachment> MakeAttachment(const PoolState& state, absl::string_view label,
                                          const std::vector<Extent>& extents,
                                          const std::string& host, Mode mode, Access access,
                                          PlanContext& context) {
  std::vector<uint64_t> lengths;
  for (const Extent& extent : extents) lengths.push_back(extent.length_bytes);
  auto segments = PlaceOnHost(state, host, lengths, label);
  if (!segments.ok()) return segments.status();
  Attachment attachment;
  attachment.host = host;
  attachment.mode = mode;
  attachment.access = access;
  attachment.generation = context.next_id();
  attachment.segments = *std::move(segments);
  for (Segment& segment : attachment.segments) segment.serial = kSerialBase | context.next_id();
  return attachment;
}

}  // namespace cxlpool::fm
