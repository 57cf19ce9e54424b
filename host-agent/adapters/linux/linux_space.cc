#include "host-agent/adapters/linux/linux_space.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "host-agent/adapters/linux/cxl/bridge_view.h"
#include "host-agent/adapters/linux/cxl/host_region.h"
#include "host-agent/adapters/linux/cxl/region_plan.h"
#include "host-agent/adapters/linux/cxl/sysfs_region.h"
#include "host-agent/adapters/linux/dax/dax_carve.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/dax/dax_holders.h"
#include "host-agent/adapters/linux/dax/dax_lookup.h"
#include "host-agent/adapters/linux/dax/dax_region.h"
#include "host-agent/adapters/linux/machine/host_needs.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/adapters/linux/machine/machine.h"
#include "host-agent/adapters/linux/memory/memory_blocks.h"
#include "host-agent/adapters/linux/observe_host.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// For each device; the kernel makes a host region and its DAX region within milliseconds.
constexpr absl::Duration kPrepareTimeout = absl::Seconds(5);
constexpr absl::Duration kHoldersTimeout = absl::Seconds(5);

std::string Hex(uint64_t serial) { return absl::StrFormat("%#x", serial); }

// A device as the kernel shows it: a DAX region; or a host region, or a memdev, that has none yet.
struct Candidate {
  std::string name;
  std::vector<uint64_t> serials;          // Of its memdevs.
  std::vector<std::string> memdevs = {};  // Their names: memN.
  std::optional<DaxRegion> region;        // What pieces are made of.
  const CxlHostRegion* host_region = nullptr;
  const CxlMemdev* memdev = nullptr;  // Only where it is in no host region.
};

// The memdev that the target is, as the kernel calls it. Empty: it is gone.
std::string MemdevOf(const HostFiles& files, const CxlRegionTarget& target) {
  const std::optional<DecoderName> decoder = ParseDecoder(target.decoder);
  if (!decoder.has_value()) return "";
  return files.LinkName(CxlFile(absl::StrCat("endpoint", decoder->port), "uport"));
}

// Everything that this host might have for the pool. Serials are not unique: two devices of a make
// that gives none, or gives one to all, are two.
std::vector<Candidate> FindCandidates(const HostFiles& files, const CxlSnapshot& snapshot) {
  std::vector<Candidate> found;
  std::set<std::string> in_regions;  // Memdevs.
  std::set<uint64_t> gone;           // Serials of targets that are gone, as far as they are known.
  for (const CxlHostRegion& region : snapshot.regions) {
    // What is not committed was left half made: MakeHostRegion clears it away for its memdev.
    if (!region.committed) continue;
    std::vector<std::string> memdevs;
    for (const CxlRegionTarget& target : region.targets) {
      const std::string memdev = MemdevOf(files, target);
      if (!memdev.empty()) memdevs.push_back(memdev);
      const bool by_serial = memdev.empty() || CXLPOOL_MUTANT("region-by-serial");
      if (by_serial && target.serial != 0) gone.insert(target.serial);
    }
    in_regions.insert(memdevs.begin(), memdevs.end());
    // Persistent memory is a namespace's.
    if (files.Read(CxlFile(region.name, "mode")).value_or("ram") != "ram") continue;
    Candidate candidate{.name = region.name,
                        .serials = {},
                        .memdevs = std::move(memdevs),
                        .region = ReadDaxRegion(files, region.name),
                        .host_region = &region};
    for (const CxlRegionTarget& target : region.targets) {
      candidate.serials.push_back(target.serial);
    }
    found.push_back(std::move(candidate));
  }
  for (const std::string& name : DaxRegionNames(files)) {
    std::optional<DaxRegion> region;
    if (!IsNumbered(name, "region")) region = ReadDaxRegion(files, name);
    if (region.has_value()) found.push_back({.name = name, .serials = {}, .region = region});
  }
  for (const CxlMemdev& memdev : snapshot.memdevs) {
    if (in_regions.contains(memdev.name) || gone.contains(memdev.serial)) continue;
    found.push_back({.name = memdev.name,
                     .serials = {memdev.serial},
                     .memdevs = {memdev.name},
                     .region = {},
                     .memdev = &memdev});
  }
  return found;
}

class LinuxSpace : public DaxSpace {
 public:
  explicit LinuxSpace(LinuxSpaceOptions options)
      : wanted_(options.devices.begin(), options.devices.end()),
        machine_(std::move(options.files)) {}

  absl::Status Prepare() override;
  absl::StatusOr<SpaceView> Look() override;
  std::optional<SpacePiece> LookAgain(const SpacePiece& seen) override;

  absl::Status Carve(const std::string& device, uint64_t offset_bytes,
                     uint64_t length_bytes) override {
    const absl::StatusOr<DaxRegion> region = RegionOf(device);
    if (!region.ok()) return region.status();
    return CarveDax(files_, *region, RangeIn(*region, offset_bytes, length_bytes));
  }

  absl::Status Uncarve(const SpacePiece& piece) override {
    const absl::StatusOr<DaxRegion> region = RegionOf(piece.device);
    // Without its device it cannot be there.
    if (absl::IsNotFound(region.status())) return absl::OkStatus();
    if (!region.ok()) return region.status();
    return UncarveDax(files_, *region, RangeIn(*region, piece.offset_bytes, piece.length_bytes),
                      piece.dax);
  }

  absl::Status Bind(const SpacePiece& piece, DaxDriver driver) override {
    const absl::StatusOr<DaxDevice> dax = DaxOf(piece);
    if (!dax.ok()) return dax.status();
    absl::Status status = BindDaxDriver(files_, dax->name, driver);
    machine_.page_struct_spare.Forget();
    return status;
  }

  absl::Status Unbind(const SpacePiece& piece) override {
    const absl::StatusOr<DaxDevice> dax = DaxOf(piece);
    return dax.ok() ? UnbindDaxDriver(files_, *dax) : dax.status();
  }

  absl::Status OnlineBlocks(const SpacePiece& piece, MemoryZone zone) override {
    const absl::StatusOr<DaxDevice> dax = DaxOf(piece);
    return dax.ok() ? OnlineMemoryBlocks(files_, *dax, zone) : dax.status();
  }

  absl::Status OfflineBlocks(const SpacePiece& piece, absl::Duration patience) override {
    const absl::StatusOr<DaxDevice> dax = DaxOf(piece);
    if (!dax.ok()) return dax.status();
    return OfflineMemoryBlocks(files_, *dax, child_, Deadline::In(patience));
  }

  absl::StatusOr<std::vector<ProcessId>> FindHolders(const SpacePiece& piece) override {
    if (NoDaxDeviceIsOpen(files_)) return std::vector<ProcessId>();
    const absl::StatusOr<DaxDevice> dax = DaxOf(piece);
    if (absl::IsNotFound(dax.status())) return std::vector<ProcessId>();  // Nothing to hold.
    if (!dax.ok()) return dax.status();
    return FindDeviceHolders(files_, {dax->name, makedev(dax->major, dax->minor)}, getpid(),
                             Deadline::In(kHoldersTimeout));
  }

  absl::StatusOr<OpenPiece> Open(const SpacePiece& piece, bool read_only) override;

 private:
  bool IsWanted(const Candidate& candidate) const;
  absl::StatusOr<DaxRegion> RegionOf(const std::string& device) const;
  absl::StatusOr<DaxDevice> DaxOf(const SpacePiece& piece) const;
  absl::Status MakeUsable(const Candidate& candidate, const CxlSnapshot& snapshot);
  absl::Status MakeRegionOver(const CxlMemdev& memdev, const CxlSnapshot& snapshot,
                              const Deadline& deadline);
  std::string WhyUnfit(const Candidate& candidate) const;
  SpacePiece ViewPiece(const DaxRegion& region, const RegionDax& dax, const HpaRange& range) const;

  static HpaRange RangeIn(const DaxRegion& region, uint64_t offset_bytes, uint64_t length_bytes) {
    return {region.hpa_bytes + offset_bytes, region.hpa_bytes + offset_bytes + length_bytes};
  }

  const std::set<std::string> wanted_;  // Empty: all.
  Machine machine_;                     // Synchronises itself.
  const HostFiles& files_ = machine_.files;
  OfflineChild child_;  // Of the thread that changes the machine.

  mutable Mutex mutex_;
  // Why Prepare could not make a device usable, by its name. Holds until Prepare tries again.
  std::map<std::string, std::string> troubles_ ABSL_GUARDED_BY(mutex_);
};

// By any of the names that LinuxSpaceOptions allows.
bool LinuxSpace::IsWanted(const Candidate& candidate) const {
  if (wanted_.empty() || wanted_.contains(candidate.name)) return true;
  const auto is_named = [&](const std::string& memdev) { return wanted_.contains(memdev); };
  const auto has_serial = [&](uint64_t serial) {
    return serial != 0 && wanted_.contains(Hex(serial));
  };
  return std::any_of(candidate.memdevs.begin(), candidate.memdevs.end(), is_named) ||
         std::any_of(candidate.serials.begin(), candidate.serials.end(), has_serial);
}

// OK means that the host itself is fit. A device that cannot be made usable does not keep the
// others from the pool: Look reports why it is unfit.
absl::Status LinuxSpace::Prepare() {
  if (absl::Status status = PrepareHost(files_, KernelRelease(), HostUse::kWhole); !status.ok()) {
    return status;
  }
  {
    const MutexLock lock(mutex_);
    troubles_.clear();
  }
  const CxlSnapshot snapshot = LookAtCxl(machine_);
  for (const Candidate& candidate : FindCandidates(files_, snapshot)) {
    if (!IsWanted(candidate)) continue;
    const absl::Status status = MakeUsable(candidate, snapshot);
    if (status.ok()) continue;
    const MutexLock lock(mutex_);
    troubles_[candidate.name] = std::string(status.message());
  }
  return absl::OkStatus();
}

// From whatever a device is now to a DAX region that pieces can be made of.
absl::Status LinuxSpace::MakeUsable(const Candidate& candidate, const CxlSnapshot& snapshot) {
  const Deadline deadline = Deadline::In(kPrepareTimeout);
  std::optional<DaxRegion> region = candidate.region;
  if (!region.has_value()) {
    std::string name = candidate.name;
    if (candidate.memdev != nullptr) {
      if (!candidate.memdev->ready) return absl::OkStatus();  // WhyUnfit says it.
      absl::Status made = MakeRegionOver(*candidate.memdev, snapshot, deadline);
      if (!made.ok()) return made;
      const absl::StatusOr<DaxNode> dax = LookUpDax(files_, candidate.memdev->serial);
      if (!dax.ok()) return dax.status();
      name = dax->region;
    } else if (!candidate.host_region->enabled) {
      if (absl::Status status = SwitchAutoprobeOff(files_); !status.ok()) return status;
      if (absl::Status status = EnableRegion(files_, name); !status.ok()) return status;
    }
    // Linux 7 makes it some milliseconds later.
    PollUntil(deadline, [&] { return (region = ReadDaxRegion(files_, name)).has_value(); });
    if (!region.has_value()) return absl::OkStatus();  // WhyUnfit says it.
  }
  if (absl::Status status = TakeWholeApart(files_, *region, deadline); !status.ok()) return status;
  region = ReadDaxRegion(files_, region->name);
  if (region.has_value()) TidyEmptyDax(files_, *region);
  return absl::OkStatus();
}

absl::Status LinuxSpace::MakeRegionOver(const CxlMemdev& memdev, const CxlSnapshot& snapshot,
                                        const Deadline& deadline) {
  const uint64_t usable = memdev.size_bytes / kRegionGranuleBytes * kRegionGranuleBytes;
  const auto unfit = [](std::string why, std::string remedy) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_IN_USE", std::move(why),
                  std::move(remedy));
  };
  if (memdev.serial == 0) {
    return unfit("it has no serial number, by which a host region is made",
                 "make one by hand: cxl create-region");
  }
  for (const CxlMemdev& other : snapshot.memdevs) {
    if (other.serial != memdev.serial || other.name == memdev.name) continue;
    return unfit(absl::StrCat("its serial number, by which a host region is made, is also that of ",
                              other.name),
                 absl::StrCat("make one by hand: cxl create-region ", memdev.name));
  }
  if (usable == 0) {
    return unfit(absl::StrCat("it has ", memdev.size_bytes, " bytes of volatile memory; a host ",
                              "region has at least ", kRegionGranuleBytes),
                 "see `cxl list -M`: it may be partitioned as persistent");
  }
  return MakeHostRegion(machine_,
                        {.host_bridge = AcpiNameOf(snapshot, memdev.pci_bridge),
                         .serials = {memdev.serial},
                         .size_bytes = usable},
                        deadline);
}

std::string LinuxSpace::WhyUnfit(const Candidate& candidate) const {
  {
    const MutexLock lock(mutex_);
    const auto trouble = troubles_.find(candidate.name);
    if (trouble != troubles_.end()) return trouble->second;
  }
  if (candidate.memdev != nullptr) {
    return candidate.memdev->ready
               ? "there is no host region over it; restart the agent, which makes one"
               : "its driver has not taken it (yet); look at the kernel's log for cxl messages, "
                 "and "
                 "restart the agent when it has";
  }
  if (!candidate.region.has_value()) {
    return absl::StrCat("host region ", candidate.name,
                        " has no DAX region; check that the module dax_cxl is loaded, and restart "
                        "the agent");
  }
  std::string why = WhyWhole(files_, *candidate.region);
  if (!why.empty()) return why;
  if (candidate.region->hpa_bytes != 0 && candidate.region->align_bytes != 0) return "";
  return "where it lies in memory is not known; restart the agent, which finds out";
}

// A device that is not fit is shown with the reason and its size, and without pieces as long as its
// address is not known.
absl::StatusOr<SpaceView> LinuxSpace::Look() {
  SpaceView view;
  const CxlSnapshot snapshot = LookAtCxl(machine_);
  for (const Candidate& candidate : FindCandidates(files_, snapshot)) {
    if (!IsWanted(candidate)) continue;
    SpaceDevice& device = view.devices.emplace_back();
    device.name = candidate.name;
    std::vector<std::string> serials;
    for (const uint64_t serial : candidate.serials) {
      if (serial != 0) serials.push_back(Hex(serial));
    }
    device.serial = absl::StrJoin(serials, "+");
    device.unfit = WhyUnfit(candidate);
    device.pieces_known = candidate.region.has_value() && candidate.region->hpa_bytes != 0;
    if (!candidate.region.has_value()) {
      device.size_bytes = candidate.memdev != nullptr ? candidate.memdev->size_bytes
                                                      : candidate.host_region->size_bytes;
      continue;
    }
    const DaxRegion& region = *candidate.region;
    device.size_bytes = region.size_bytes;
    device.align_bytes = region.align_bytes;
    if (!device.pieces_known) continue;
    for (const RegionDax& dax : region.devices) {
      for (const HpaRange& range : dax.ranges) {
        view.pieces.push_back(ViewPiece(region, dax, range));
      }
    }
  }
  view.memory_block_bytes = MemoryBlockBytes(files_);
  // 0 would say that it is not known.
  view.page_struct_spare_bytes = std::max<uint64_t>(1, machine_.page_struct_spare.Read());
  view.own_nodes = ReadOwnNodes(files_);
  return view;
}

// Only the one DAX device of that name is read, and counts only if it still has exactly that range.
std::optional<SpacePiece> LinuxSpace::LookAgain(const SpacePiece& seen) {
  const absl::StatusOr<DaxRegion> region = RegionOf(seen.device);
  if (!region.ok()) return std::nullopt;
  const HpaRange range = RangeIn(*region, seen.offset_bytes, seen.length_bytes);
  const std::optional<RegionDax> dax = ReadRegionDax(files_, *region, seen.dax);
  if (!dax.has_value() || dax->ranges != std::vector{range}) return std::nullopt;
  SpacePiece now = ViewPiece(*region, *dax, range);
  now.numa_node = seen.numa_node;  // The region's, which was read bare.
  return now;
}

SpacePiece LinuxSpace::ViewPiece(const DaxRegion& region, const RegionDax& dax,
                                 const HpaRange& range) const {
  SpacePiece piece;
  piece.device = region.name;
  piece.offset_bytes = range.begin - region.hpa_bytes;
  piece.length_bytes = range.size();
  piece.dax = dax.name;
  piece.hpa_bytes = range.begin;
  piece.numa_node = region.target_node;
  if (dax.driver == "device_dax") piece.driver = DaxDriver::kDeviceDax;
  if (dax.driver != "kmem") return piece;
  piece.driver = DaxDriver::kKmem;
  const std::vector<MemoryBlock> blocks = ReadMemoryBlocks(files_, range.begin, range.size());
  piece.total_blocks = static_cast<uint32_t>(blocks.size());
  piece.online_blocks = CountOnline(blocks);
  piece.all_movable = piece.online_blocks != 0 &&
                      std::all_of(blocks.begin(), blocks.end(), [](const MemoryBlock& block) {
                        return block.offline || block.movable;
                      });
  return piece;
}

// The device's DAX region as it is now, bare. NOT_FOUND/UNKNOWN_DEVICE; FAILED_PRECONDITION/
// DEVICE_IN_USE: no piece can be made of it, or found in it.
absl::StatusOr<DaxRegion> LinuxSpace::RegionOf(const std::string& device) const {
  std::optional<DaxRegion> region = ReadBareDaxRegion(files_, device);
  if (!region.has_value()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                  absl::StrCat("this host has no DAX region ", device),
                  "name one that `daxctl list -R` shows");
  }
  if (region->hpa_bytes == 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_IN_USE",
                  absl::StrCat("where ", device, " lies in memory is not known"),
                  "restart the agent, which finds out");
  }
  return *std::move(region);
}

// The DAX device of exactly the piece's range, whatever it is called now.
absl::StatusOr<DaxDevice> LinuxSpace::DaxOf(const SpacePiece& piece) const {
  const absl::StatusOr<DaxRegion> region = RegionOf(piece.device);
  if (!region.ok()) return region.status();
  const std::optional<RegionDax> found = FindRegionDax(
      files_, *region, RangeIn(*region, piece.offset_bytes, piece.length_bytes), piece.dax);
  std::optional<DaxDevice> dax;
  if (found.has_value()) dax = ReadDaxNode(files_, *region, *found);
  if (dax.has_value()) return *std::move(dax);
  return Refuse(absl::StatusCode::kNotFound, "NO_DAX_DEVICE",
                absl::StrFormat("%s has no DAX device of exactly %d bytes at %#x", piece.device,
                                piece.length_bytes, piece.offset_bytes),
                "make it first");
}

// The names of DAX devices are used again, so it is looked up by its range before, and after: what
// was opened in between is that of this range.
absl::StatusOr<OpenPiece> LinuxSpace::Open(const SpacePiece& piece, bool read_only) {
  const absl::StatusOr<DaxDevice> dax = DaxOf(piece);
  if (!dax.ok()) return dax.status();
  absl::StatusOr<UniqueFd> fd =
      OpenDaxNode(files_, {dax->name, dax->region, dax->major, dax->minor}, read_only);
  if (!fd.ok()) return fd.status();
  const absl::StatusOr<DaxDevice> again = DaxOf(piece);
  if (!again.ok()) return again.status();
  if (again->name != dax->name || again->minor != dax->minor) {
    return Refuse(absl::StatusCode::kInternal, "DAX_OPEN",
                  absl::StrCat(dax->name, " was replaced while it was opened"), "try again");
  }
  return OpenPiece{.fd = *std::move(fd), .node = DaxNodePath(files_, dax->name)};
}

}  // namespace

std::unique_ptr<DaxSpace> MakeLinuxSpace(LinuxSpaceOptions options) {
  return std::make_unique<LinuxSpace>(std::move(options));
}

// One finding for all devices: missing where there is none, a warning where any is not usable.
Finding ExamineWholeDevices(LinuxSpaceOptions options) {
  constexpr char kId[] = "whole_devices";
  const absl::StatusOr<SpaceView> view = LinuxSpace(std::move(options)).Look();
  if (!view.ok()) {
    return {kId, Verdict::kMissing, std::string(view.status().message()), "run as root"};
  }
  if (view->devices.empty()) {
    return {
        kId, Verdict::kMissing, "this host sees no memory device that pool memory could be made of",
        "see `cxl list -M` and `daxctl list -R`; compare the devices that the configuration names"};
  }
  std::vector<std::string> fit;
  std::vector<std::string> unfit;
  for (const SpaceDevice& device : view->devices) {
    std::string name = device.name;
    if (!device.serial.empty()) absl::StrAppend(&name, " (serial ", device.serial, ")");
    if (device.unfit.empty()) {
      fit.push_back(absl::StrCat(name, " of ", device.size_bytes, " bytes"));
    } else {
      unfit.push_back(absl::StrCat(name, ": ", device.unfit));
    }
  }
  if (unfit.empty()) {
    return {kId, Verdict::kOk,
            absl::StrCat("devices that this host sees whole: ", absl::StrJoin(fit, ", ")), ""};
  }
  return {kId, Verdict::kWarning,
          absl::StrCat("not usable as they are: ", absl::StrJoin(unfit, "; ")),
          "do what is said for each; a device that is not in use is taken when the agent starts"};
}

}  // namespace cxlpool::agent
