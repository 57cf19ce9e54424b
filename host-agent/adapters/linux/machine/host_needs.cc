#include "host-agent/adapters/linux/machine/host_needs.h"

#include <sys/utsname.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "host-agent/adapters/linux/cxl/pci_slots.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "host-agent/adapters/linux/dax/dax_region.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

struct Need {
  absl::string_view id;
  absl::string_view path;
  absl::string_view there;
  absl::string_view missing;  // What it means that there is no such path.
  absl::string_view remedy;
};

constexpr Need kNeeds[] = {
    {"cxl_bus", "sys/bus/cxl", "the CXL bus", "no CXL support (CONFIG_CXL_BUS)",
     "modprobe cxl_core, or use a kernel with it"},
    {"cxl_acpi", "sys/bus/cxl/devices/root0", "CXL host bridges, found by cxl_acpi",
     "no CXL host bridge was found by cxl_acpi",
     "modprobe cxl_acpi; if it stays so, the machine's firmware describes none (ACPI CEDT)"},
    {"cxl_pci", "sys/bus/pci/drivers/cxl_pci", "driver cxl_pci", "no driver cxl_pci",
     "modprobe cxl_pci"},
    {"cxl_port", "sys/bus/cxl/drivers/cxl_port", "driver cxl_port", "no driver cxl_port",
     "modprobe cxl_port"},
    {"cxl_mem", "sys/bus/cxl/drivers/cxl_mem", "driver cxl_mem", "no driver cxl_mem",
     "modprobe cxl_mem"},
    {"cxl_region", "sys/bus/cxl/drivers/cxl_region", "driver cxl_region",
     "no driver cxl_region (CONFIG_CXL_REGION)", "use a kernel that has it"},
    {"dax_cxl", "sys/bus/cxl/drivers/cxl_dax_region", "DAX for CXL memory (dax_cxl)",
     "no DAX for CXL memory (dax_cxl)",
     "modprobe dax_cxl; Linux has it since 6.3 (CONFIG_DEV_DAX_CXL)"},
    {"dax_bus", "sys/bus/dax/drivers_autoprobe", "the DAX bus", "no DAX bus", "modprobe dax"},
    {"device_dax", "sys/bus/dax/drivers/device_dax", "driver device_dax", "no driver device_dax",
     "modprobe device_dax"},
    {"kmem", "sys/bus/dax/drivers/kmem", "driver kmem", "no driver kmem", "modprobe kmem"},
    {"memory_hotplug", "sys/devices/system/memory/auto_online_blocks", "memory hot-plug",
     "no memory hot-plug (CONFIG_MEMORY_HOTPLUG)", "use a kernel that has it"},
};

Finding ExamineWindows(const HostFiles& files) {
  const size_t windows = VolatileWindows(files).size();
  if (windows > 0) {
    return {"volatile_window", Verdict::kOk,
            absl::StrCat("memory windows that take volatile regions: ", windows), ""};
  }
  return {"volatile_window", Verdict::kMissing, "no memory window that takes volatile regions",
          "enable one in the firmware; Linux makes such regions since 6.3"};
}

Finding ExamineSlots(const HostFiles& files) {
  const size_t slots = CountSlotsForDevices(files);
  if (slots > 0) {
    return {"hotplug_slots", Verdict::kOk, absl::StrCat("PCIe hot-plug slots: ", slots), ""};
  }
  return {"hotplug_slots", Verdict::kMissing, "no PCIe hot-plug slot that could take an LD",
          "use a kernel with CONFIG_HOTPLUG_PCI_PCIE, and check the firmware's hot-plug setting"};
}

}  // namespace

std::string KernelRelease() {
  utsname name = {};
  return uname(&name) == 0 ? name.release : "unknown";
}

std::vector<std::string> VolatileWindows(const HostFiles& files) {
  constexpr absl::string_view kRoot = "sys/bus/cxl/devices/root0";
  std::vector<std::string> windows;
  for (const std::string& name : files.List(kRoot)) {
    std::string decoder = absl::StrCat(kRoot, "/", name);
    if (absl::StartsWith(name, "decoder") &&
        files.Exists(absl::StrCat(decoder, "/create_ram_region"))) {
      windows.push_back(std::move(decoder));
    }
  }
  return windows;
}

// A host of whole devices needs CXL only where it has no DAX regions: firmware may have made them
// Soft Reserved memory, which needs none of the CXL drivers.
std::vector<Finding> ExamineNeeds(const HostFiles& files, HostUse use) {
  const bool needs_cxl = use == HostUse::kPlugged || DaxRegionNames(files).empty();
  std::vector<Finding> findings;
  for (const Need& need : kNeeds) {
    if (!needs_cxl && absl::StrContains(need.path, "cxl")) continue;
    const bool there = files.Exists(need.path);
    findings.push_back({std::string(need.id), there ? Verdict::kOk : Verdict::kMissing,
                        std::string(there ? need.there : need.missing),
                        std::string(there ? "" : need.remedy)});
  }
  // Without a root there is nothing to have windows, and need cxl_acpi reports that already.
  if (needs_cxl && files.Exists("sys/bus/cxl/devices/root0")) {
    findings.push_back(ExamineWindows(files));
  }
  if (use == HostUse::kPlugged) findings.push_back(ExamineSlots(files));
  return findings;
}

// Sets the kernel's DAX policy first, then reports everything that is missing in one error: an
// operator fixes all of it before the next start.
absl::Status PrepareHost(const HostFiles& files, const std::string& kernel, HostUse use) {
  RestoreAutoOnline(files);
  std::vector<std::string> complaints;
  const absl::Status autoprobe = SwitchAutoprobeOff(files);
  if (!autoprobe.ok() && !absl::IsNotFound(autoprobe)) {  // No DAX bus: that is one of the needs.
    complaints.emplace_back(autoprobe.message());
  }
  for (const Finding& need : ExamineNeeds(files, use)) {
    if (need.verdict == Verdict::kMissing) {
      complaints.push_back(absl::StrCat(need.what, " (", need.remedy, ")"));
    }
  }
  if (complaints.empty()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_UNFIT",
                absl::StrCat("this host (Linux ", kernel,
                             ") cannot use pool memory: ", absl::StrJoin(complaints, "; ")),
                "fix what is listed and start again", {{"kernel", kernel}});
}

}  // namespace cxlpool::agent
