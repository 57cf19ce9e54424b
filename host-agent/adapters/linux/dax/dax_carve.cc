#include "host-agent/adapters/linux/dax/dax_carve.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/dax/dax_holders.h"
#include "host-agent/adapters/linux/memory/memory_blocks.h"
#include "host-agent/adapters/linux/memory/node_room.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// The users of system-ram are searched for no longer than this: they are only named in a message.
constexpr absl::Duration kHolderSearchTimeout = absl::Seconds(1);

std::string RegionFile(const DaxRegion& region, absl::string_view file) {
  return absl::StrCat(region.folder, "/dax_region/", file);
}

std::string DaxFile(const DaxRegion& region, absl::string_view dax, absl::string_view file) {
  return absl::StrCat(region.folder, "/", dax, "/", file);
}

std::string Text(const DaxRegion& region, const HpaRange& range) {
  return absl::StrFormat("bytes %#x to %#x of %s", range.begin - region.hpa_bytes,
                         range.end - region.hpa_bytes - 1, region.name);
}

absl::Status CarveFailed(absl::string_view what, int error) {
  return Refuse(
      absl::StatusCode::kInternal, "DAX_CARVE",
      absl::StrCat(what, ": ",
                   error == 0 ? "the kernel accepted it without effect" : ErrnoText(error)),
      error == EACCES || error == EPERM ? "run as root" : "look at the kernel's log");
}

absl::Status RangeTaken(const DaxRegion& region, const HpaRange& range, const RegionDax& by) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "RANGE_TAKEN",
                absl::StrCat(by.name, " has some of ", Text(region, range)),
                "see who made that DAX device (daxctl list), and remove it if nobody needs it");
}

absl::Status CheckRange(const DaxRegion& region, const HpaRange& range) {
  const uint64_t align = std::max<uint64_t>(1, region.align_bytes);
  const HpaRange whole = region.range();
  // The kernel takes a length that is no multiple as none, and any begin at all.
  if (region.hpa_bytes != 0 && range.begin < range.end && range.begin >= whole.begin &&
      range.end <= whole.end && (range.begin - whole.begin) % align == 0 &&
      range.size() % align == 0) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_RANGE",
                absl::StrFormat("%s, which has %d bytes, cannot be a DAX device",
                                Text(region, range), region.size_bytes),
                absl::StrCat("give a range within it, at multiples of ", align));
}

// Makes an empty DAX device, and answers its name. The kernel shows which is the youngest;
// that one must be empty, and not have been there before.
absl::StatusOr<std::string> MakeEmpty(const HostFiles& files, const DaxRegion& region) {
  const std::string create = RegionFile(region, "create");
  const std::vector<std::string> before = files.List(region.folder);
  if (const int error = files.Write(create, "1"); error != 0) {
    return CarveFailed(absl::StrCat("making a DAX device of ", region.name), error);
  }
  std::string name = files.Read(create).value_or("");
  const bool known = std::find(before.begin(), before.end(), name) != before.end();
  if (name.empty() || known || files.ReadNumber(DaxFile(region, name, "size")) != 0) {
    return CarveFailed(absl::StrCat("finding the DAX device just made of ", region.name), 0);
  }
  return name;
}

// Sees to it that the region's seed is an empty DAX device. The kernel calls the first that was
// made and never bound the seed, and that is what `daxctl create-device` gives a size to, whatever
// it has: a DAX device of the pool's would change under it. So an empty one is left in that place.
absl::Status KeepSeed(const HostFiles& files, const DaxRegion& region) {
  const std::string seed = files.Read(RegionFile(region, "seed")).value_or("");
  const bool is_there = !seed.empty() || CXLPOOL_MUTANT("carved-is-the-seed");
  return is_there ? absl::OkStatus() : MakeEmpty(files, region).status();
}

// Removes an empty DAX device without a driver; the kernel refuses any other. daxN.0 stays.
absl::Status RemoveEmpty(const HostFiles& files, const DaxRegion& region, const std::string& name) {
  if (IsFirstDax(name)) return absl::OkStatus();
  const int deleted = files.Write(RegionFile(region, "delete"), name);
  if (!files.Exists(absl::StrCat(region.folder, "/", name))) return absl::OkStatus();
  return CarveFailed(absl::StrCat("removing ", name), deleted);
}

// Takes all bytes from a DAX device without a driver, and removes it. Not for one that somebody
// else may be removing: see TidyEmptyDax.
absl::Status Remove(const HostFiles& files, const DaxRegion& region, const std::string& name) {
  const std::string size = DaxFile(region, name, "size");
  const int shrunk = files.Write(size, "0");
  const std::optional<uint64_t> left = files.ReadNumber(size);
  if (!left.has_value()) return absl::OkStatus();  // It has gone.
  if (*left != 0) return CarveFailed(absl::StrCat("taking the bytes from ", name), shrunk);
  return RemoveEmpty(files, region, name);
}

std::string PidText(const std::vector<int>& pids) {
  return pids.empty() ? "" : absl::StrCat("; process ", absl::StrJoin(pids, ", "), " uses it");
}

// Why a DAX device that kmem has stays as it is, and what to do; "": nothing is online.
std::string WhyKmem(const HostFiles& files, const DaxRegion& region, const RegionDax& whole) {
  const HpaRange range = whole.ranges.front();
  const std::vector<MemoryBlock> blocks = ReadMemoryBlocks(files, range.begin, range.size());
  const uint32_t online = CountOnline(blocks);
  if (online == 0) return "";
  const std::string node =
      region.target_node.has_value() ? absl::StrCat(" of NUMA node ", *region.target_node) : "";
  return absl::StrCat(
      whole.name, " gives all of it to the kernel as system memory", node, " (", online, " of ",
      blocks.size(),
      " memory blocks are online); to take it for the pool: ", "daxctl offline-memory ", whole.name,
      ", then restart the agent. So that it stays out of the kernel's hands at "
      "boot, see `cxlpool-agent check`");
}

// Which processes hold a DAX device that device_dax has.
absl::StatusOr<std::vector<ProcessId>> HoldersOf(const HostFiles& files, const DaxDevice& dax,
                                                 const Deadline& deadline) {
  if (NoDaxDeviceIsOpen(files)) return std::vector<ProcessId>();
  return FindDeviceHolders(files, {dax.name, makedev(dax.major, dax.minor)}, getpid(), deadline);
}

absl::Status InUse(std::string why) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_IN_USE", std::move(why), "");
}

}  // namespace

// The kernel judges whether a range is free. Only where it refuses is everything read: to say who
// has it, or that what is wanted is there already.
absl::Status CarveDax(const HostFiles& files, const DaxRegion& region, const HpaRange& range) {
  if (absl::Status status = CheckRange(region, range); !status.ok()) return status;
  if (absl::Status status = SwitchAutoprobeOff(files); !status.ok()) return status;
  absl::StatusOr<std::string> name = std::string();
  absl::Status status = KeepSeed(files, region);
  if (status.ok()) {
    name = MakeEmpty(files, region);
    status = name.status();
  }
  if (status.ok()) {
    const int error = files.Write(DaxFile(region, *name, "mapping"),
                                  absl::StrFormat("%x-%x", range.begin, range.end - 1));
    const std::optional<RegionDax> made = ReadRegionDax(files, region, *name);
    if (error == 0 && CXLPOOL_MUTANT("carve-is-believed")) return absl::OkStatus();
    if (made.has_value() && made->ranges == std::vector{range}) return absl::OkStatus();
    status = CarveFailed(absl::StrCat("giving ", *name, " ", Text(region, range)), error);
    // It is there still, empty or with something else.
    const absl::Status removed =
        CXLPOOL_MUTANT("refused-carve-stays") ? absl::OkStatus() : Remove(files, region, *name);
    if (!removed.ok()) {
      return Refuse(absl::StatusCode::kInternal, "DAX_CARVE",
                    absl::StrCat(status.message(), "; and ", removed.message()), "");
    }
  }
  const std::optional<DaxRegion> now = ReadDaxRegion(files, region.name);
  if (!now.has_value()) return status;
  if (now->Find(range) != nullptr) return absl::OkStatus();
  const RegionDax* const by = now->FindOverlap(range);
  return by == nullptr ? status : RangeTaken(*now, range, *by);
}

// A DAX device whose memory the kernel still uses keeps its bytes: they would be given away.
absl::Status UncarveDax(const HostFiles& files, const DaxRegion& region, const HpaRange& range,
                        const std::string& hint) {
  const std::optional<RegionDax> dax = FindRegionDax(files, region, range, hint);
  if (!dax.has_value()) return absl::OkStatus();
  if (!dax->driver.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "DAX_BOUND",
                  absl::StrCat(dax->name, " is bound to ", dax->driver), "unbind it first");
  }
  if (!CXLPOOL_MUTANT("uncarved-under-online-blocks")) {
    absl::Status status = CheckNoBlocksStay(files, dax->name, range.begin, range.size());
    if (!status.ok()) return status;
  }
  return Remove(files, region, dax->name);
}

std::string WhyWhole(const HostFiles& files, const DaxRegion& region) {
  const RegionDax* const whole = region.Whole();
  if (whole == nullptr) return "";
  std::string why = whole->driver == "kmem" ? WhyKmem(files, region, *whole) : "";
  if (!why.empty()) return why;
  return absl::StrCat(whole->name,
                      " is on all of it (driver: ", whole->driver.empty() ? "none" : whole->driver,
                      "); when nothing uses it, restart the agent, which takes it apart");
}

// Takes the device from its driver only where that harms no one: kmem without online blocks, or
// device_dax that no process has open. A driver that is not known here keeps it.
absl::Status TakeWholeApart(const HostFiles& files, const DaxRegion& region,
                            const Deadline& deadline) {
  const RegionDax* const whole = region.Whole();
  if (whole == nullptr) return absl::OkStatus();
  if (!whole->driver.empty()) {
    const std::optional<DaxDevice> dax = ReadDaxNode(files, region, *whole);
    if (!dax.has_value()) return CarveFailed(absl::StrCat("reading ", whole->name), 0);
    if (whole->driver == "kmem") {
      if (std::string why = WhyKmem(files, region, *whole); !why.empty()) {
        std::vector<int> pids;
        if (region.target_node.has_value()) {
          for (const NodeUser& user :
               FindNodeUsers(files, *region.target_node, getpid(),
                             Deadline::In(std::min(deadline.left(), kHolderSearchTimeout)))) {
            pids.push_back(user.pid);
          }
        }
        return InUse(absl::StrCat(why, PidText(pids)));
      }
    } else if (whole->driver == "device_dax") {
      const absl::StatusOr<std::vector<ProcessId>> holders = HoldersOf(files, *dax, deadline);
      if (!holders.ok()) return holders.status();
      if (!holders->empty() && !CXLPOOL_MUTANT("held-is-taken-apart")) {
        std::vector<int> pids;
        for (const ProcessId& holder : *holders) pids.push_back(static_cast<int>(holder.pid));
        return InUse(absl::StrCat(whole->name, " is on all of it, and is open or mapped",
                                  PidText(pids), "; end that and restart the agent"));
      }
    } else {
      return InUse(absl::StrCat(whole->name, " is on all of it, and the driver ", whole->driver,
                                " has it; unbind it and restart the agent"));
    }
    if (absl::Status status = UnbindDaxDriver(files, *dax); !status.ok()) return status;
  }
  const HpaRange range = whole->ranges.front();
  absl::Status status = CheckNoBlocksStay(files, whole->name, range.begin, range.size());
  return status.ok() ? Remove(files, region, whole->name) : status;
}

void TidyEmptyDax(const HostFiles& files, const DaxRegion& region) {
  KeepSeed(files, region).IgnoreError();  // Else the next CarveDax says what is wrong.
  const std::string seed = files.Read(RegionFile(region, "seed")).value_or("");
  for (const RegionDax& dax : region.devices) {
    if (!dax.ranges.empty() || dax.name == seed) continue;
    (CXLPOOL_MUTANT("tidied-by-size") ? Remove : RemoveEmpty)(files, region, dax.name)
        .IgnoreError();
  }
}

}  // namespace cxlpool::agent
