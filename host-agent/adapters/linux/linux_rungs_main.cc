// cxlpool-rungs: look at a host's CXL memory, or take one rung of the ladder by hand.
//
// For people who debug a host; what it does the agent would do. Not to be used on a host whose
// agent runs, other than to observe.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/linux_host_memory.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"

namespace cxlpool::agent {
namespace {

constexpr char kUsage[] = R"(usage: cxlpool-rungs COMMAND
  prepare                                 check the host, DAX autoprobe off
  observe                                 host bridges, memdevs, host regions
  power-on SLOT SERIAL                    until the memdev is there
  create BRIDGE SIZE[/GRANULARITY] SERIAL...
                                          a host region of SIZE bytes (ACPI0016:00 268435456 0x1001),
                                          over several memdevs striped every GRANULARITY bytes
  bind SERIAL device_dax|kmem             its DAX device, to a driver
  online SERIAL | offline SERIAL          its memory blocks
  unbind SERIAL                           its DAX device, from its driver
  destroy SERIAL                          the host region; 0: those that lost all their memdevs
  power-off SLOT SERIAL                   for an unbind that the fabric has begun
  holders SERIAL                          processes that have its DAX device open or mapped
  open SERIAL r|rw                        open the DAX device and close it again
exit: 0 done, 1 refused or failed (why, on stderr), 2 usage
)";

absl::Status Wait(absl::AnyInvocable<void(Done) &&> call) {
  std::promise<absl::Status> answer;
  std::move(call)([&](absl::Status status) { answer.set_value(std::move(status)); });
  return answer.get_future().get();  // Every call has a deadline of its own.
}

template <typename T>
absl::StatusOr<T> WaitFor(absl::AnyInvocable<void(DoneWith<T>) &&> call) {
  std::promise<absl::StatusOr<T>> answer;
  std::move(call)([&](absl::StatusOr<T> result) { answer.set_value(std::move(result)); });
  return answer.get_future().get();
}

const char* Name(DaxDriver driver) {
  switch (driver) {
    case DaxDriver::kDeviceDax:
      return "device_dax";
    case DaxDriver::kKmem:
      return "kmem";
    case DaxDriver::kNone:
      return "none";
  }
  return "none";
}

void Print(const HostObservation& seen) {
  for (const ObservedBridge& bridge : seen.bridges) {
    absl::PrintF("bridge %s regions=%d/%d blocked=%d top=%#x window=%d free=%d slots=%s\n",
                 bridge.name, bridge.live_regions, bridge.max_regions, bridge.blocked,
                 bridge.blocking_serial, bridge.window_bytes, bridge.free_window_bytes,
                 absl::StrJoin(bridge.slots, ","));
  }
  for (const ObservedMemdev& memdev : seen.memdevs) {
    absl::PrintF("memdev %s serial=%#x slot=%d size=%d bridge=%s\n", memdev.name, memdev.serial,
                 memdev.slot, memdev.size_bytes, memdev.host_bridge);
  }
  const auto hex = [](std::string* out, uint64_t serial) {
    absl::StrAppendFormat(out, "%#x", serial);
  };
  for (const ObservedHostRegion& region : seen.regions) {
    absl::PrintF(
        "region %s serials=%s committed=%d hpa=%#x size=%d granularity=%d dax=%s driver=%s "
        "node=%d align=%d online=%d/%d movable=%d\n",
        region.name, absl::StrJoin(region.serials, ",", hex), region.committed, region.hpa_bytes,
        region.size_bytes, region.interleave_granularity_bytes,
        region.dax_device.empty() ? "none" : region.dax_device, Name(region.dax_driver),
        region.numa_node.value_or(-1), region.dax_align_bytes, region.online_blocks,
        region.total_blocks, region.all_movable);
  }
  absl::PrintF("host block=%d page-struct-spare=%d\n", seen.memory_block_bytes,
               seen.page_struct_spare_bytes);
}

absl::Status Usage() { return absl::InvalidArgumentError(kUsage); }

absl::StatusOr<uint64_t> Number(const std::string& text) {
  const std::optional<uint64_t> number = ParseKernelNumber(text);
  if (!number.has_value()) return absl::InvalidArgumentError(absl::StrCat("not a number: ", text));
  return *number;
}

absl::Status CreateRegion(HostMemory& host, const std::vector<std::string>& words) {
  HostRegionSpec spec;
  spec.host_bridge = words[1];
  const std::pair<std::string, std::string> shape =
      absl::StrSplit(words[2], absl::MaxSplits('/', 1));
  absl::StatusOr<uint64_t> size = Number(shape.first);
  if (!size.ok()) return size.status();
  spec.size_bytes = *size;
  if (!shape.second.empty()) {
    absl::StatusOr<uint64_t> granularity = Number(shape.second);
    if (!granularity.ok()) return granularity.status();
    spec.interleave_granularity_bytes = static_cast<uint32_t>(*granularity);
  }
  for (size_t i = 3; i < words.size(); ++i) {
    absl::StatusOr<uint64_t> serial = Number(words[i]);
    if (!serial.ok()) return serial.status();
    spec.serials.push_back(*serial);
  }
  return Wait([&](Done done) { host.CreateHostRegion(spec, std::move(done)); });
}

absl::Status Power(HostMemory& host, const std::vector<std::string>& words) {
  absl::StatusOr<uint64_t> slot = Number(words[1]);
  if (!slot.ok()) return slot.status();
  absl::StatusOr<uint64_t> serial = Number(words[2]);
  if (!serial.ok()) return serial.status();
  return Wait([&](Done done) {
    if (words[0] == "power-on") {
      host.PowerOn(static_cast<uint32_t>(*slot), *serial, std::move(done));
    } else {
      host.PowerOff(static_cast<uint32_t>(*slot), *serial, std::move(done));
    }
  });
}

// The commands whose first argument is a serial.
absl::Status OnRegion(HostMemory& host, const std::vector<std::string>& words) {
  absl::StatusOr<uint64_t> serial = Number(words[1]);
  if (!serial.ok()) return serial.status();
  const std::string& command = words[0];
  const std::string option = words.size() > 2 ? words[2] : "";
  if (command == "bind") {
    if (option != "kmem" && option != "device_dax") return Usage();
    const DaxDriver driver = option == "kmem" ? DaxDriver::kKmem : DaxDriver::kDeviceDax;
    return Wait([&](Done done) { host.BindDax(*serial, driver, std::move(done)); });
  }
  if (command == "open") {
    if (option != "r" && option != "rw") return Usage();
    return host.OpenDax(*serial, option == "r").status();
  }
  if (!option.empty()) return Usage();
  if (command == "holders") {
    absl::StatusOr<std::vector<ProcessId>> holders = WaitFor<std::vector<ProcessId>>(
        [&](DoneWith<std::vector<ProcessId>> done) { host.FindHolders(*serial, std::move(done)); });
    if (!holders.ok()) return holders.status();
    std::vector<uint32_t> pids;
    for (const ProcessId& holder : *holders) pids.push_back(holder.pid);
    absl::PrintF("holders=%s\n", absl::StrJoin(pids, ","));
    return absl::OkStatus();
  }
  return Wait([&](Done done) {
    if (command == "online") {
      return host.OnlineBlocks(*serial, MemoryZone::kMovable, std::move(done));
    }
    if (command == "offline") return host.OfflineBlocks(*serial, absl::Minutes(1), std::move(done));
    if (command == "unbind") return host.UnbindDax(*serial, std::move(done));
    if (command == "destroy") return host.DestroyHostRegion(*serial, std::move(done));
    std::move(done)(Usage());
  });
}

absl::Status Run(HostMemory& host, const std::vector<std::string>& words) {
  if (words.empty()) return Usage();
  const std::string& command = words[0];
  if (command == "prepare" && words.size() == 1) {
    return Wait([&](Done done) { host.Prepare(std::move(done)); });
  }
  if (command == "observe" && words.size() == 1) {
    absl::StatusOr<HostObservation> seen = WaitFor<HostObservation>(
        [&](DoneWith<HostObservation> done) { host.Observe(std::move(done)); });
    if (seen.ok()) Print(*seen);
    return seen.status();
  }
  if (command == "create" && words.size() >= 4) return CreateRegion(host, words);
  if ((command == "power-on" || command == "power-off") && words.size() == 3) {
    return Power(host, words);
  }
  if (words.size() == 2 || words.size() == 3) return OnRegion(host, words);
  return Usage();
}

}  // namespace
}  // namespace cxlpool::agent

int main(int argc, char** argv) {
  using namespace cxlpool::agent;
  absl::StatusOr<std::unique_ptr<HostMemory>> host = MakeLinuxHostMemory({});
  const absl::Status status =
      host.ok() ? Run(**host, std::vector<std::string>(argv + 1, argv + argc)) : host.status();
  if (status.ok()) return EXIT_SUCCESS;
  if (status.message() == kUsage) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  absl::FPrintF(stderr, "cxlpool-rungs: %s: %s\n", absl::StatusCodeToString(status.code()),
                status.message());
  return EXIT_FAILURE;
}
