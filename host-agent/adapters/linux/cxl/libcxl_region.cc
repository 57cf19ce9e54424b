#include "host-agent/adapters/linux/cxl/libcxl_region.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/cxl/libcxl_context.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

cxl_region* FindByName(cxl_ctx* context, const std::string& name) {
  cxl_bus* bus = nullptr;
  cxl_bus_foreach(context, bus) {
    cxl_decoder* window = nullptr;
    cxl_decoder_foreach(cxl_bus_get_port(bus), window) {
      cxl_region* region = nullptr;
      cxl_region_foreach(window, region) {
        if (name == cxl_region_get_devname(region)) return region;
      }
    }
  }
  return nullptr;
}

}  // namespace

absl::Status TakeRegionAway(const HostFiles& files, const std::string& name) {
  absl::StatusOr<CxlContext> context = CxlContext::Open();
  if (!context.ok()) return context.status();
  cxl_region* const region = FindByName(context->get(), name);
  int error = 0;
  const auto keep = [&error](int result) { error = error == 0 && result < 0 ? result : error; };
  if (region != nullptr) {
    std::vector<cxl_decoder*> targets;
    const unsigned int ways = cxl_region_get_interleave_ways(region);
    const int positions = ways > kMaxInterleaveWays ? 0 : static_cast<int>(ways);
    for (int i = 0; i < positions; ++i) {
      cxl_decoder* const target = cxl_region_get_target_decoder(region, i);
      if (target != nullptr) targets.push_back(target);
    }
    keep(cxl_region_disable(region));
    if (cxl_region_decode_is_committed(region) == 1) keep(cxl_region_decode_reset(region));
    for (int i = 0; i < positions; ++i) cxl_region_clear_target(region, i);
    for (auto it = targets.rbegin(); it != targets.rend(); ++it) {
      keep(cxl_decoder_set_dpa_size(*it, 0));
    }
    keep(cxl_region_delete(region));
  }
  if (!files.Exists(absl::StrCat(kCxlDevices, "/", name))) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kInternal, "REGION_DESTROY",
      absl::StrCat("host region ", name,
                   " is still there: ", error < 0 ? ErrnoText(-error) : "no effect",
                   context->complaint().empty() ? "" : "; libcxl: ", context->complaint()),
      "look at the kernel's log for cxl messages; it is tried again");
}

}  // namespace cxlpool::agent
