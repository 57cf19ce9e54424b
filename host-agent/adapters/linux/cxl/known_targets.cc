#include "host-agent/adapters/linux/cxl/known_targets.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/model/observation.h"
#include "host-agent/support/run_file.h"
#include "proto/support/log.h"

namespace cxlpool::agent {

KnownTargets::KnownTargets(std::string file, std::string boot_id)
    : file_(std::move(file)), boot_id_(std::move(boot_id)) {
  if (file_.empty()) return;
  MutexLock lock(mutex_);
  saved_ = ReadKnownRegions(file_, boot_id_);
  regions_ = saved_;
}

// What the kernel shows wins; what is remembered only fills gaps. It is put together anew from each
// snapshot, so host regions that are gone are forgotten.
void KnownTargets::Complete(CxlSnapshot& snapshot) {
  MutexLock lock(mutex_);
  KnownRegions now;
  for (CxlHostRegion& region : snapshot.regions) {
    KnownRegion known{region.hpa_bytes, region.inode, {}};
    const auto before = regions_.find(region.name);
    if (before != regions_.end() && before->second.hpa_bytes == region.hpa_bytes &&
        before->second.inode == region.inode) {
      known = before->second;
    }
    // The kernel may show fewer positions than before, once targets are gone.
    const size_t ways = std::max(region.targets.size(), known.serials.size());
    region.targets.resize(ways);
    known.serials.resize(ways);
    for (size_t i = 0; i < ways; ++i) {
      if (region.targets[i].serial != 0) known.serials[i] = region.targets[i].serial;
      region.targets[i].serial = known.serials[i];
    }
    now.emplace(region.name, std::move(known));
  }
  regions_ = std::move(now);
  if (!file_.empty()) Save();
}

// A failed write is tried again at every look, and logged only the first time.
void KnownTargets::Save() {
  KnownRegions wanted = WorthKeeping(regions_);
  if (wanted == saved_) return;
  const absl::Status status = WriteKnownRegions(file_, boot_id_, wanted);
  if (status.ok()) {
    saved_ = std::move(wanted);
  } else if (!std::exchange(complained_, true)) {
    LogWarning("host-memory", status.message());
  }
}

namespace {

constexpr absl::string_view kTargetsFile = "known regions";
// More than kMaxKnownRegions lines of the longest kind.
constexpr size_t kMaxTargetsBytes = 256 << 10;

bool IsWorthKeeping(const KnownRegion& region) {
  return region.hpa_bytes != 0 && region.inode != 0 && !region.serials.empty() &&
         region.serials.size() <= kMaxInterleaveWays &&
         std::all_of(region.serials.begin(), region.serials.end(), IsPoolSerial);
}

// Nothing if the line names no region, or one that would not have been kept.
std::optional<std::pair<std::string, KnownRegion>> ParseLine(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() < 4 || !absl::StartsWith(words[0], "region")) return std::nullopt;
  std::vector<uint64_t> numbers;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::optional<uint64_t> number = ParseKernelNumber(words[i]);
    if (!number.has_value()) return std::nullopt;
    numbers.push_back(*number);
  }
  KnownRegion region{numbers[0], numbers[1], {numbers.begin() + 2, numbers.end()}};
  if (!IsWorthKeeping(region)) return std::nullopt;
  return std::make_pair(words[0], std::move(region));
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat(path, " cannot be written: ", ErrnoText(error),
                   "; if an LD is pulled out while no agent runs, what is left of its host region "
                   "stays until the next one is made (make the folder writable to the agent)"));
}

}  // namespace

KnownRegions WorthKeeping(const KnownRegions& regions) {
  KnownRegions worth;
  for (const auto& [name, region] : regions) {
    if (worth.size() == kMaxKnownRegions) break;
    if (IsWorthKeeping(region)) worth.emplace(name, region);
  }
  return worth;
}

// All or nothing: if one line is not understood, the others are not trusted either.
KnownRegions ReadKnownRegions(const std::string& path, const std::string& boot_id) {
  const auto lines = ReadRunFile(path, kMaxTargetsBytes, kTargetsFile, boot_id);
  if (!lines.has_value() || lines->size() > kMaxKnownRegions) return {};
  KnownRegions regions;
  for (const std::string& line : *lines) {
    std::optional<std::pair<std::string, KnownRegion>> region = ParseLine(line);
    if (!region.has_value() || !regions.insert(*std::move(region)).second) return {};
  }
  return regions;
}

absl::Status WriteKnownRegions(const std::string& path, const std::string& boot_id,
                               const KnownRegions& regions) {
  std::string text;
  for (const auto& [name, region] : regions) {
    absl::StrAppend(&text, name, " 0x", absl::Hex(region.hpa_bytes), " ", region.inode);
    for (const uint64_t serial : region.serials) absl::StrAppend(&text, " 0x", absl::Hex(serial));
    text += '\n';
  }
  const int error = WriteRunFile(path, kTargetsFile, boot_id, text);
  return error == 0 ? absl::OkStatus() : CannotWrite(path, error);
}

}  // namespace cxlpool::agent
