#include "host-agent/model/step_effect.h"

#include <algorithm>

namespace cxlpool::agent {
namespace {

bool SpansAll(const DesiredSegment& desired, const ObservedHostRegion& region) {
  return std::all_of(desired.targets.begin(), desired.targets.end(), [&](const DesiredTarget& t) {
    return std::find(region.serials.begin(), region.serials.end(), t.serial) !=
           region.serials.end();
  });
}

}  // namespace

bool PostconditionHolds(const Step& step, const DesiredSegment& desired,
                        const HostObservation& host) {
  const ObservedHostRegion* const region = HostRegionOf(desired, host);
  switch (step.kind) {
    case Step::Kind::kPowerOn:
      return FindMemdev(host, desired.targets[step.target].serial) != nullptr;
    case Step::Kind::kCreateHostRegion:
      return region != nullptr && region->committed && SpansAll(desired, *region) &&
             !region->dax_device.empty();
    case Step::Kind::kBindDax:
      return region != nullptr && region->dax_driver == step.driver;
    case Step::Kind::kOnlineBlocks:
      return region != nullptr && InMode(desired, *region, host);
    case Step::Kind::kOfflineBlocks:
      return region == nullptr || region->online_blocks == 0;
    case Step::Kind::kUnbindDax:
      return region == nullptr || region->dax_driver == DaxDriver::kNone;
    case Step::Kind::kDestroyHostRegion:
      return FindHostRegion(host, step.serial) == nullptr;
    case Step::Kind::kPowerOff:
      return FindMemdev(host, desired.targets[step.target].serial) == nullptr;
    case Step::Kind::kDone:
    case Step::Kind::kWait:
    case Step::Kind::kRefuse:
      break;
  }
  return true;
}

const char* PostconditionText(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::kPowerOn:
      return "the memdev";
    case Step::Kind::kCreateHostRegion:
      return "the host region, committed, with a DAX device";
    case Step::Kind::kBindDax:
      return "that the driver has the DAX device";
    case Step::Kind::kOnlineBlocks:
      return "every memory block online in its zone";
    case Step::Kind::kOfflineBlocks:
      return "every memory block offline";
    case Step::Kind::kUnbindDax:
      return "that no driver has the DAX device";
    case Step::Kind::kDestroyHostRegion:
      return "that the host region is gone";
    case Step::Kind::kPowerOff:
      return "that the memdev is gone";
    case Step::Kind::kDone:
    case Step::Kind::kWait:
    case Step::Kind::kRefuse:
      break;
  }
  return "";
}

}  // namespace cxlpool::agent
