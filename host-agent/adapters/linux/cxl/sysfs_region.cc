#include "host-agent/adapters/linux/cxl/sysfs_region.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kDriver = "sys/bus/cxl/drivers/cxl_region";
constexpr int kNameAttempts = 5;

absl::Status CommitFailed(absl::string_view step, int error) {
  return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT",
                absl::StrCat("the kernel refused to make the host region, ", step, ": ",
                             error == 0 ? "no effect" : ErrnoText(error)),
                "look at the kernel's log for cxl messages");
}

absl::Status Put(const HostFiles& files, absl::string_view device, absl::string_view attribute,
                 absl::string_view text) {
  const int error = files.Write(CxlFile(device, attribute), text);
  return error == 0 ? absl::OkStatus()
                    : CommitFailed(absl::StrCat("at ", device, "/", attribute), error);
}

// Makes an empty region under the window and returns its name. The file hands out the next name;
// the first process that writes it back has it.
absl::StatusOr<std::string> CreateEmpty(const HostFiles& files, const std::string& window) {
  const std::string create = CxlFile(window, "create_ram_region");
  int error = 0;
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    const std::optional<std::string> name = files.Read(create);
    if (!name.has_value()) break;
    error = files.Write(create, *name);
    if (error == 0) return *name;
  }
  return CommitFailed(absl::StrCat("at ", window, "/create_ram_region"), error);
}

// The endpoint's decoders, topmost first.
std::vector<std::string> DecodersOf(const std::vector<std::string>& names,
                                    absl::string_view endpoint) {
  std::vector<std::pair<int, std::string>> decoders;
  for (const std::string& name : names) {
    const std::optional<DecoderName> decoder = ParseDecoder(name);
    if (decoder.has_value() && decoder->port == endpoint) decoders.emplace_back(decoder->id, name);
  }
  std::sort(decoders.begin(), decoders.end(), std::greater<>());
  std::vector<std::string> sorted;
  for (auto& [id, name] : decoders) sorted.push_back(std::move(name));
  return sorted;
}

// The memdev's lowest free decoder, with `bytes` of its DPA. DPA that an interrupted attempt left
// allocated is freed first, from the top as the kernel wants it.
absl::StatusOr<std::string> TakeEndpointDecoder(const HostFiles& files,
                                                const std::vector<std::string>& names,
                                                uint64_t serial, uint64_t bytes) {
  const auto endpoint = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return absl::StartsWith(name, "endpoint") &&
           files.ReadNumber(CxlFile(name, "uport/serial")) == serial;
  });
  if (endpoint == names.end()) {
    return CommitFailed(absl::StrFormat("memdev %#x has no endpoint", serial), 0);
  }
  std::string lowest_free;
  for (const std::string& decoder : DecodersOf(names, absl::string_view(*endpoint).substr(8))) {
    const std::optional<uint64_t> held = files.ReadNumber(CxlFile(decoder, "dpa_size"));
    if (!held.has_value()) continue;  // It is going.
    if (*held != 0) {                 // Without DPA it is in no region.
      if (files.Read(CxlFile(decoder, "region")) != "") continue;
      if (!Put(files, decoder, "dpa_size", "0").ok()) continue;
    }
    lowest_free = decoder;
  }
  if (lowest_free.empty()) {
    return CommitFailed(absl::StrFormat("memdev %#x has no free decoder", serial), 0);
  }
  absl::Status status = Put(files, lowest_free, "mode", "ram");
  if (status.ok()) status = Put(files, lowest_free, "dpa_size", absl::StrCat(bytes));
  if (!status.ok()) return status;
  return lowest_free;
}

// Fills in `taken` as it goes, so that the caller can give back.
absl::Status Program(const HostFiles& files, const std::string& region, const RegionPlan& plan,
                     std::vector<std::string>& taken) {
  const size_t ways = plan.serials.size();
  absl::Status status =
      Put(files, region, "interleave_granularity", absl::StrCat(plan.interleave_granularity_bytes));
  if (status.ok()) status = Put(files, region, "interleave_ways", absl::StrCat(ways));
  if (!status.ok()) return status;
  const std::vector<std::string> names = files.List(kCxlDevices);
  for (const uint64_t serial : plan.serials) {
    absl::StatusOr<std::string> decoder =
        TakeEndpointDecoder(files, names, serial, plan.size_bytes / ways);
    if (!decoder.ok()) return decoder.status();
    taken.push_back(*std::move(decoder));
  }
  status = Put(files, region, "size", absl::StrCat(plan.size_bytes));
  for (size_t i = 0; status.ok() && i < ways; ++i) {
    status = Put(files, region, absl::StrCat("target", i), taken[i]);
  }
  if (status.ok()) status = Put(files, region, "commit", "1");
  if (status.ok()) status = EnableRegion(files, region);
  return status;
}

}  // namespace

absl::Status ProgramRegion(const HostFiles& files, const RegionPlan& plan, CleanUp clean_up) {
  absl::StatusOr<std::string> name = CreateEmpty(files, plan.window);
  if (!name.ok()) return name.status();
  std::vector<std::string> taken;
  absl::Status status = Program(files, *name, plan, taken);
  if (status.ok()) return status;

  absl::Status undone = clean_up(files, *name);
  // DPA that no target had yet is not found by way of the region.
  for (auto it = taken.rbegin(); it != taken.rend(); ++it) {
    files.Write(CxlFile(*it, "dpa_size"), "0");
  }
  if (undone.ok()) return status;
  return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT",
                absl::StrCat(status.message(), "; and ", undone.message()),
                "look at the kernel's log for cxl messages");
}

absl::Status EnableRegion(const HostFiles& files, const std::string& name) {
  const int error = files.Write(absl::StrCat(kDriver, "/bind"), name);
  if (!files.LinkName(CxlFile(name, "driver")).empty()) return absl::OkStatus();
  return CommitFailed("binding the region driver", error);
}

absl::Status DeleteRegion(const HostFiles& files, const CxlHostRegion& region, CleanUp clean_up) {
  bool straight = true;
  const auto put = [&](const std::string& path, absl::string_view text) {
    straight = straight && files.Write(path, text) == 0;
  };
  if (region.enabled) put(absl::StrCat(kDriver, "/unbind"), region.name);
  if (region.committed) put(CxlFile(region.name, "commit"), "0");
  for (size_t i = 0; i < region.targets.size(); ++i) {
    if (!region.targets[i].decoder.empty())
      put(CxlFile(region.name, absl::StrCat("target", i)), "\n");
  }
  for (auto it = region.targets.rbegin(); it != region.targets.rend(); ++it) {
    if (!it->decoder.empty()) put(CxlFile(it->decoder, "dpa_size"), "0");
  }
  put(CxlFile(region.window, "delete_region"), region.name);
  if (straight && !files.Exists(absl::StrCat(kCxlDevices, "/", region.name)))
    return absl::OkStatus();
  absl::Status status = clean_up(files, region.name);
  // The targets may be cleared already, and then it does not know them.
  for (auto it = region.targets.rbegin(); it != region.targets.rend(); ++it) {
    if (!it->decoder.empty()) files.Write(CxlFile(it->decoder, "dpa_size"), "0");
  }
  return status;
}

}  // namespace cxlpool::agent
