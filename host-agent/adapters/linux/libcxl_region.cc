#include "host-agent/adapters/linux/libcxl_region.h"

#include <climits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "host-agent/adapters/linux/libcxl_context.h"
#include "host-agent/adapters/linux/refuse.h"

namespace cxlpool::agent {
namespace {

constexpr int kNameAttempts = 5;
constexpr uint32_t kMaxWays = 16;

absl::Status CommitFailed(absl::string_view step, int error, const std::string& complaint = "") {
  return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT",
                absl::StrCat("the kernel refused to make the host region, ", step, ": ",
                             error < 0 ? ErrnoText(-error) : "no effect",
                             complaint.empty() ? "" : "; libcxl: ", complaint),
                "look at the kernel's log for cxl messages");
}
absl::Status CommitFailed(const CxlContext& context, absl::string_view step, int error) {
  return CommitFailed(step, error, context.complaint());
}

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

// Makes an empty region under the window and returns its name. By its file: libcxl before 77 has no
// call for volatile regions. The file hands out the next name; whoever writes it back first has it.
absl::StatusOr<std::string> CreateEmpty(const HostFiles& files, const std::string& window) {
  const std::string create = absl::StrCat("sys/bus/cxl/devices/", window, "/create_ram_region");
  int error = 0;
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    const std::optional<std::string> name = files.Read(create);
    if (!name.has_value()) break;
    error = files.Write(create, *name);
    if (error == 0) return *name;
  }
  return CommitFailed(absl::StrCat("at ", window, "/create_ram_region"), -error);
}

cxl_memdev* FindBySerial(cxl_ctx* context, uint64_t serial) {
  cxl_memdev* memdev = nullptr;
  cxl_memdev_foreach(context, memdev) {
    if (cxl_memdev_get_serial(memdev) == serial) return memdev;
  }
  return nullptr;
}

// The memdev's lowest free decoder, with `bytes` of its DPA. DPA that an interrupted attempt left
// allocated is freed first, from the top as the kernel wants it.
absl::StatusOr<cxl_decoder*> TakeEndpointDecoder(const CxlContext& context, uint64_t serial,
                                                 uint64_t bytes) {
  cxl_memdev* const memdev = FindBySerial(context.get(), serial);
  cxl_endpoint* const endpoint = memdev == nullptr ? nullptr : cxl_memdev_get_endpoint(memdev);
  if (endpoint == nullptr) {
    return CommitFailed(context, absl::StrFormat("memdev %#x has no endpoint", serial), 0);
  }
  cxl_port* const port = cxl_endpoint_get_port(endpoint);
  cxl_decoder* decoder = nullptr;
  cxl_decoder* lowest_free = nullptr;
  cxl_decoder_foreach_reverse(port, decoder) {
    if (cxl_decoder_get_region(decoder) != nullptr) continue;
    const unsigned long long held = cxl_decoder_get_dpa_size(decoder);
    if (held != 0 && held != ULLONG_MAX && cxl_decoder_set_dpa_size(decoder, 0) < 0) continue;
    lowest_free = decoder;
  }
  if (lowest_free == nullptr) {
    return CommitFailed(context, absl::StrFormat("memdev %#x has no free decoder", serial), 0);
  }
  if (const int error = cxl_decoder_set_mode(lowest_free, CXL_DECODER_MODE_RAM); error < 0) {
    return CommitFailed(context, absl::StrFormat("memdev %#x, decoder mode", serial), error);
  }
  if (const int error = cxl_decoder_set_dpa_size(lowest_free, bytes); error < 0) {
    return CommitFailed(context, absl::StrFormat("memdev %#x, DPA size", serial), error);
  }
  return lowest_free;
}

// Fills in `taken` as it goes, so that the caller can give back.
absl::Status Program(const CxlContext& context, cxl_region* region, const RegionPlan& plan,
                     std::vector<cxl_decoder*>& taken) {
  const auto ways = static_cast<unsigned int>(plan.serials.size());
  int error = cxl_region_set_interleave_granularity(region, plan.interleave_granularity_bytes);
  if (error < 0) return CommitFailed(context, "at interleave_granularity", error);
  error = cxl_region_set_interleave_ways(region, ways);
  if (error < 0) return CommitFailed(context, "at interleave_ways", error);
  for (const uint64_t serial : plan.serials) {
    absl::StatusOr<cxl_decoder*> decoder =
        TakeEndpointDecoder(context, serial, plan.size_bytes / ways);
    if (!decoder.ok()) return decoder.status();
    taken.push_back(*decoder);
  }
  error = cxl_region_set_size(region, plan.size_bytes);
  if (error < 0) return CommitFailed(context, "at size", error);
  for (unsigned int i = 0; i < ways; ++i) {
    error = cxl_region_set_target(region, static_cast<int>(i), taken[i]);
    if (error < 0) return CommitFailed(context, absl::StrCat("at target", i), error);
  }
  error = cxl_region_decode_commit(region);
  if (error < 0) return CommitFailed(context, "at commit", error);
  error = cxl_region_enable(region);
  if (error < 0) return CommitFailed(context, "binding the region driver", error);
  return absl::OkStatus();
}

}  // namespace

absl::Status ProgramRegion(const HostFiles& files, const RegionPlan& plan) {
  absl::StatusOr<std::string> name = CreateEmpty(files, plan.window);
  if (!name.ok()) return name.status();

  absl::StatusOr<CxlContext> context = CxlContext::Open();  // It sees the region.
  if (!context.ok()) return context.status();
  std::vector<cxl_decoder*> taken;
  cxl_region* const region = FindByName(context->get(), *name);
  absl::Status status = region == nullptr
                            ? CommitFailed(*context, absl::StrCat(*name, " was not found"), 0)
                            : Program(*context, region, plan, taken);
  if (status.ok()) return status;

  absl::Status undone = TakeRegionAway(files, *name);
  // DPA that no target had yet is not found by way of the region.
  for (auto it = taken.rbegin(); it != taken.rend(); ++it) cxl_decoder_set_dpa_size(*it, 0);
  if (undone.ok()) return status;
  return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT",
                absl::StrCat(status.message(), "; and ", undone.message()),
                "look at the kernel's log for cxl messages");
}

absl::Status EnableRegion(const std::string& name) {
  absl::StatusOr<CxlContext> context = CxlContext::Open();
  if (!context.ok()) return context.status();
  cxl_region* const region = FindByName(context->get(), name);
  if (region == nullptr) return CommitFailed(*context, absl::StrCat(name, " was not found"), 0);
  const int error = cxl_region_enable(region);
  if (error < 0) return CommitFailed(*context, "binding the region driver", error);
  return absl::OkStatus();
}

absl::Status TakeRegionAway(const HostFiles& files, const std::string& name) {
  absl::StatusOr<CxlContext> context = CxlContext::Open();
  if (!context.ok()) return context.status();
  cxl_region* const region = FindByName(context->get(), name);
  int error = 0;
  const auto keep = [&error](int result) { error = error == 0 && result < 0 ? result : error; };
  if (region != nullptr) {
    std::vector<cxl_decoder*> targets;
    const unsigned int ways = cxl_region_get_interleave_ways(region);
    const int positions = ways > kMaxWays ? 0 : static_cast<int>(ways);
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
  if (!files.Exists(absl::StrCat("sys/bus/cxl/devices/", name))) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kInternal, "REGION_DESTROY",
      absl::StrCat("host region ", name,
                   " is still there: ", error < 0 ? ErrnoText(-error) : "no effect",
                   context->complaint().empty() ? "" : "; libcxl: ", context->complaint()),
      "look at the kernel's log for cxl messages; it is tried again");
}

}  // namespace cxlpool::agent
