#include "host-agent/adapters/linux/prepare_host.h"

#include <cerrno>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "host-agent/adapters/linux/refuse.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kAutoprobe = "sys/bus/dax/drivers_autoprobe";

struct Need {
  absl::string_view path;
  absl::string_view missing;  // What it means that there is no such path.
  absl::string_view remedy;
};

// In the order in which a person would mend them.
constexpr Need kNeeds[] = {
    {"sys/bus/cxl", "no CXL support (CONFIG_CXL_BUS)",
     "modprobe cxl_core, or use a kernel with it"},
    {"sys/bus/cxl/devices/root0", "no CXL host bridge was found by cxl_acpi",
     "modprobe cxl_acpi; if it stays so, the machine's firmware describes none (ACPI CEDT)"},
    {"sys/bus/pci/drivers/cxl_pci", "no driver cxl_pci", "modprobe cxl_pci"},
    {"sys/bus/cxl/drivers/cxl_port", "no driver cxl_port", "modprobe cxl_port"},
    {"sys/bus/cxl/drivers/cxl_mem", "no driver cxl_mem", "modprobe cxl_mem"},
    {"sys/bus/cxl/drivers/cxl_region", "no driver cxl_region (CONFIG_CXL_REGION)",
     "use a kernel that has it"},
    {"sys/bus/cxl/drivers/cxl_dax_region", "no DAX for CXL memory (dax_cxl)",
     "modprobe dax_cxl; Linux has it since 6.3 (CONFIG_DEV_DAX_CXL)"},
    {"sys/bus/dax/drivers/device_dax", "no driver device_dax", "modprobe device_dax"},
    {"sys/bus/dax/drivers/kmem", "no driver kmem", "modprobe kmem"},
    {"sys/devices/system/memory/auto_online_blocks", "no memory hot-plug (CONFIG_MEMORY_HOTPLUG)",
     "use a kernel that has it"},
};

// Complains unless root0 has a decoder that volatile regions can be made under.
void CheckRegions(const HostFiles& files, std::vector<std::string>& complaints) {
  constexpr absl::string_view kRoot = "sys/bus/cxl/devices/root0";
  if (!files.Exists(kRoot)) return;
  for (const std::string& name : files.List(kRoot)) {
    if (absl::StartsWith(name, "decoder") &&
        files.Exists(absl::StrCat(kRoot, "/", name, "/create_ram_region"))) {
      return;
    }
  }
  complaints.push_back(
      "no memory window that takes volatile regions (enable one in the firmware; Linux makes such "
      "regions since 6.3)");
}

void CheckSlots(const HostFiles& files, std::vector<std::string>& complaints) {
  if (!files.List("sys/bus/pci/slots").empty()) return;
  complaints.push_back(
      "no PCIe hot-plug slot (use a kernel with CONFIG_HOTPLUG_PCI_PCIE, and check the firmware's "
      "hot-plug setting)");
}

void SetPolicy(const HostFiles& files, std::vector<std::string>& complaints) {
  const int error = files.Write(kAutoprobe, "0");
  if (error == 0 && files.Read(kAutoprobe) == "0") return;
  if (error == ENOENT) {
    complaints.push_back("no DAX bus (modprobe dax)");
  } else if (error == EACCES || error == EPERM || error == EROFS) {
    complaints.push_back(absl::StrCat("DAX autoprobe cannot be switched off: ", ErrnoText(error),
                                      " (run as root, /sys writable)"));
  } else {
    complaints.push_back(absl::StrCat("DAX autoprobe cannot be switched off: ", ErrnoText(error)));
  }
}

}  // namespace

absl::Status PrepareHost(const HostFiles& files, const std::string& kernel) {
  std::vector<std::string> complaints;
  SetPolicy(files, complaints);
  for (const Need& need : kNeeds) {
    if (!files.Exists(need.path)) {
      complaints.push_back(absl::StrCat(need.missing, " (", need.remedy, ")"));
    }
  }
  CheckRegions(files, complaints);
  CheckSlots(files, complaints);
  if (complaints.empty()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOST_UNFIT",
                absl::StrCat("this host (Linux ", kernel,
                             ") cannot use pool memory: ", absl::StrJoin(complaints, "; ")),
                "mend what is listed and start again", {{"kernel", kernel}});
}

}  // namespace cxlpool::agent
