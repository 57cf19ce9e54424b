#include "host-agent/service/holder_reports.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/service/posted.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

void HolderReports::Opened(const AttachmentKey& key, uint64_t connection, uint32_t uid,
                           const std::string& program) {
  programs_[connection] = {uid, program};
  if (!CXLPOOL_MUTANT("opened-once-is-forgotten")) unopened_since_[key] = std::nullopt;
  Consider();
}

absl::Status HolderReports::TakePage(uint64_t connection, UniqueFd page) {
  if (pages_.size() >= kMaxPages && !pages_.contains(connection)) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_USAGE_PAGES",
                  absl::StrCat("the agent reads the pages of counters of ", kMaxPages,
                               " connections already"),
                  "go on without");
  }
  pages_.insert_or_assign(connection, UsageSource(std::move(page)));
  return absl::OkStatus();
}

void HolderReports::Forget(uint64_t connection) {
  pages_.erase(connection);
  if (programs_.erase(connection) != 0) Consider();
}

void HolderReports::Saw() {
  const size_t before = unopened_since_.size();
  NoteUsable();
  if (core_->session_up() && core_->sessions() != session_) {
    Look();
  } else if (unopened_since_.size() != before) {
    Consider();
  }
}

void HolderReports::NoteUsable() {
  const auto& attachments = core_->attachments().all();
  std::erase_if(unopened_since_,
                [&](const auto& entry) { return !attachments.contains(entry.first); });
  for (const auto& [key, attachment] : attachments) {
    if (key == kOrphans || attachment.offer.mode() == v1::SYSTEM_RAM) continue;
    if (unopened_since_.contains(key)) continue;  // Before it is looked for: this is done often.
    if (UsableSegments(attachment, core_->observation()) == 0) continue;
    unopened_since_[key] = clock_->Now();
  }
}

// Something that is reported to the manager has changed.
void HolderReports::Consider() {
  if (!core_->session_up()) return;
  if (clock_->Elapsed() >= next_ || CXLPOOL_MUTANT("holders-told-at-every-change")) {
    Look();
  } else {
    Wake();
  }
}

// The counters change without a word, so that it looks again for as long as somebody has something
// open.
void HolderReports::Look() {
  if (!core_->session_up()) return;
  if (core_->sessions() != session_) {
    session_ = core_->sessions();
    if (!CXLPOOL_MUTANT("new-session-hears-of-no-holders")) sent_.clear();
  }
  v1::HoldersReport holders = Collect();
  const std::string now = holders.SerializeAsString();
  const bool anybody = std::any_of(
      holders.regions().begin(), holders.regions().end(),
      [](const v1::RegionHolders& region) { return region.holders_size() + region.more() > 0; });
  if (now != sent_) {
    sent_ = now;
    // The first open is told at once, however short a time before the Region came online.
    if (anybody) next_ = clock_->Elapsed() + kInterval;
    v1::Report report;
    *report.mutable_holders() = std::move(holders);
    link_->Send(std::move(report));
  }
  if (anybody) Wake();
}

void HolderReports::Wake() {
  if (std::exchange(wakes_, true)) return;
  executor_->PostAfter(kInterval, Posted(executor_, alive_, [this] {
                         wakes_ = false;
                         Look();
                       }));
}

HolderReports::Pages HolderReports::ReadPages() const {
  Pages pages;
  for (const auto& [connection, source] : pages_) {
    if (pages.contains(source.inode())) continue;
    if (const std::optional<UsagePage> page = source.Read()) pages[source.inode()] = *page;
  }
  return pages;
}

// Joins the connections of each process, then lists the holders of each Region: those beyond the
// limits are only counted.
v1::HoldersReport HolderReports::Collect() const {
  std::map<AttachmentKey, std::map<HolderKey, Holder>> regions;
  core_->opens().ForEachUse([&](const AttachmentKey& region, uint64_t connection,
                                const ProcessId& process, const std::set<uint64_t>& serials) {
    Program program;
    if (const auto known = programs_.find(connection); known != programs_.end()) {
      program = known->second;
    }
    Holder& holder = regions[region][{process.pid, process.start_ticks, program.uid}];
    holder.program = program.name;
    holder.serials.insert(serials.begin(), serials.end());
    const auto page = pages_.find(connection);
    if (page != pages_.end()) holder.pages.insert(page->second.inode());
  });
  // Which nobody has opened are listed, too.
  for (const auto& [key, since] : unopened_since_) {
    if (since.has_value()) regions[key];
  }
  v1::HoldersReport report;
  if (regions.empty()) return report;
  const Pages pages = ReadPages();
  int listed = 0;
  for (const auto& [key, holders] : regions) {
    const auto attachment = core_->attachments().all().find(key);
    if (attachment == core_->attachments().all().end()) continue;  // Withdrawn: it is no more.
    v1::RegionHolders& region = *report.add_regions();
    region.set_region_tag(key.tag);
    region.set_attachment_generation(key.generation);
    const auto unopened = unopened_since_.find(key);
    if (unopened != unopened_since_.end() && unopened->second.has_value()) {
      region.mutable_unopened_since()->set_seconds(absl::ToUnixSeconds(*unopened->second));
    }
    for (const auto& [holder_key, holder] : holders) {
      if (region.holders_size() == kMaxOfRegion || listed == kMaxHolders) {
        region.set_more(region.more() + 1);
        continue;
      }
      ++listed;
      Fill(holder_key, holder, key, attachment->second, pages, *region.add_holders());
    }
  }
  return report;
}

// The counters are sums of what the process's pages say of this Region, whatever that is.
void HolderReports::Fill(const HolderKey& key, const Holder& holder, const AttachmentKey& region,
                         const Attachment& attachment, const Pages& pages,
                         v1::RegionHolder& message) {
  message.set_pid(key.pid);
  message.set_start_ticks(key.start_ticks);
  message.set_uid(key.uid);
  message.set_program(holder.program);
  uint64_t open_bytes = 0;
  for (const Segment& segment : attachment.segments) {
    if (holder.serials.contains(segment.desired.first_serial())) {
      open_bytes += segment.desired.length_bytes;
    }
  }
  message.set_open_bytes(open_bytes);
  const UsageTag tag = UsageTagOf(region.tag);
  if (!tag.is_set()) return;
  UsageEntry sum;
  for (const uint64_t inode : holder.pages) {
    const auto page = pages.find(inode);
    if (page == pages.end()) continue;
    for (const UsageEntry& entry : page->second.entries) {
      if (entry.tag != tag) continue;
      sum.mapped_bytes += entry.mapped_bytes;
      sum.live_bytes += entry.live_bytes;
      sum.slack_bytes += entry.slack_bytes;
      sum.pins += entry.pins;
    }
  }
  message.set_mapped_bytes(sum.mapped_bytes);
  message.set_live_bytes(sum.live_bytes);
  message.set_slack_bytes(sum.slack_bytes);
  constexpr uint64_t kMostPins = std::numeric_limits<uint32_t>::max();
  message.set_pins(static_cast<uint32_t>(std::min(sum.pins, kMostPins)));
}

}  // namespace cxlpool::agent
