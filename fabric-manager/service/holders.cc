#include "fabric-manager/service/holders.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

Holder ToHolder(const v1::RegionHolder& in) {
  Holder holder;
  holder.pid = in.pid();
  holder.start_ticks = in.start_ticks();
  holder.uid = in.uid();
  holder.program = CutText(Utf8Text(in.program()), kMaxHolderProgram);
  holder.open_bytes = in.open_bytes();
  holder.mapped_bytes = in.mapped_bytes();
  holder.live_bytes = in.live_bytes();
  holder.slack_bytes = in.slack_bytes();
  holder.pins = in.pins();
  return holder;
}

// Whether `host` has the Attachment that `reported` is of.
bool HasAttachment(const PoolState& state, absl::string_view host,
                   const v1::RegionHolders& reported) {
  if (CXLPOOL_MUTANT("holders-of-any-attachment")) return true;
  Uuid tag;
  if (!ParseUuid(reported.region_tag(), tag)) return false;
  const RegionPtr* region = state.FindRegionByTag(tag);
  if (region == nullptr) return false;
  const Attachment* attachment = (*region)->FindAttachment(host);
  return attachment != nullptr && attachment->generation == reported.attachment_generation();
}

}  // namespace

// Believes a host only about Attachments that it has, and once about each: what it says otherwise
// is left out. However much it says, no more than the limits is kept.
std::shared_ptr<const HolderReport> TakeHolders(const PoolState& state, absl::string_view host,
                                                const v1::HoldersReport& report, absl::Time now) {
  auto kept = std::make_shared<HolderReport>();
  kept->time = now;
  size_t free = kMaxHoldersOfHost;
  for (const v1::RegionHolders& reported : report.regions()) {
    if (!HasAttachment(state, host, reported)) continue;
    const auto [at, is_first] = kept->by_generation.try_emplace(reported.attachment_generation());
    if (!is_first) continue;
    HolderReport::OfAttachment& of = at->second;
    const auto size = static_cast<size_t>(reported.holders_size());
    size_t listed = std::min({size, kMaxHoldersOfAttachment, free});
    if (CXLPOOL_MUTANT("holders-without-limit")) listed = size;
    of.holders.reserve(listed);
    for (size_t i = 0; i < listed; ++i) {
      of.holders.push_back(ToHolder(reported.holders(static_cast<int>(i))));
    }
    free -= std::min(free, listed);
    if (reported.has_unopened_since()) {
      // By the host's clock: later than now it cannot be, and no reader takes every number.
      const absl::Time since = absl::FromUnixSeconds(reported.unopened_since().seconds()) +
                               absl::Nanoseconds(reported.unopened_since().nanos());
      const bool believed = CXLPOOL_MUTANT("agents-tell-of-any-time");
      of.unopened_since = believed ? since : std::min(now, std::max(since, absl::UnixEpoch()));
    }
    // Nobody who was reported is lost: those who are not listed are counted.
    of.more = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{reported.more()} + (size - listed),
                                                       std::numeric_limits<uint32_t>::max()));
  }
  return kept;
}

}  // namespace cxlpool::fm
