#include "host-agent/adapters/linux/cxl/pool_memdevs.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/model/observation.h"

namespace cxlpool::agent {
namespace {

// "mem3"; "memory..." is none.
bool IsMemdev(absl::string_view name) {
  return absl::ConsumePrefix(&name, "mem") && !name.empty() && absl::ascii_isdigit(name[0]);
}

}  // namespace

std::vector<PoolMemdev> ReadPoolMemdevs(const HostFiles& files, bool every) {
  std::vector<PoolMemdev> memdevs;
  for (const std::string& name : files.List(kCxlDevices)) {
    if (!IsMemdev(name)) continue;
    PoolMemdev memdev;
    memdev.path = absl::StrCat(kCxlDevices, "/", name);
    memdev.serial = files.ReadNumber(absl::StrCat(memdev.path, "/serial")).value_or(0);
    if (every ? memdev.serial == 0 : !IsPoolSerial(memdev.serial)) continue;
    memdev.device = files.Resolve(memdev.path);
    memdevs.push_back(std::move(memdev));
  }
  return memdevs;
}

bool IsBehind(const PoolMemdev& memdev, absl::string_view pci_function) {
  return !pci_function.empty() &&
         absl::StrContains(memdev.device, absl::StrCat("/", pci_function, "/"));
}

}  // namespace cxlpool::agent
