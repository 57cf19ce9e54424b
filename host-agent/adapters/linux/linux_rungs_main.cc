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
#include "host-agent/adapters/linux/linux_space.h"
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
 of devices that this host sees whole; PIECE is DEVICE OFFSET LENGTH in bytes (region0 0 2097152):
  space prepare                           check the host, make each device usable
  space look                              devices, and the pieces that are made of them
  space carve PIECE | uncarve PIECE       a DAX device of exactly these bytes
  space bind PIECE device_dax|kmem        as above
  space online|offline|unbind|holders PIECE
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

// One line per bridge, memdev and host region, with facts as NAME=VALUE: tests on virtual machines
// read them.
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

// Run has checked that there are at least four words: the command, a bridge, a size and one serial.
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

// Run calls this only for power-on and power-off, with a slot and a serial.
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

absl::Status PrintHolders(const absl::StatusOr<std::vector<ProcessId>>& holders) {
  if (!holders.ok()) return holders.status();
  std::vector<uint32_t> pids;
  for (const ProcessId& holder : *holders) pids.push_back(holder.pid);
  absl::PrintF("holders=%s\n", absl::StrJoin(pids, ","));
  return absl::OkStatus();
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
  // None of the commands below takes a third word.
  if (!option.empty()) return Usage();
  if (command == "holders") {
    return PrintHolders(WaitFor<std::vector<ProcessId>>([&](DoneWith<std::vector<ProcessId>> done) {
      host.FindHolders(*serial, std::move(done));
    }));
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

void Print(const SpaceView& seen) {
  for (const SpaceDevice& device : seen.devices) {
    absl::PrintF("device %s serial=%s size=%d align=%d unfit=%s\n", device.name, device.serial,
                 device.size_bytes, device.align_bytes, device.unfit);
  }
  for (const SpacePiece& piece : seen.pieces) {
    absl::PrintF("piece %s %d %d dax=%s driver=%s hpa=%#x node=%d blocks=%d/%d movable=%d\n",
                 piece.device, piece.offset_bytes, piece.length_bytes, piece.dax,
                 Name(piece.driver), piece.hpa_bytes, piece.numa_node.value_or(-1),
                 piece.online_blocks, piece.total_blocks, piece.all_movable);
  }
  absl::PrintF("memory_block=%d page_struct_spare=%d\n", seen.memory_block_bytes,
               seen.page_struct_spare_bytes);
}

// The commands after the word "space".
absl::Status RunSpace(DaxSpace& space, const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  if (words.size() == 1 && command == "prepare") return space.Prepare();
  if (words.size() == 1 && command == "look") {
    const absl::StatusOr<SpaceView> view = space.Look();
    if (view.ok()) Print(*view);
    return view.status();
  }
  if (words.size() != (command == "bind" ? 5 : 4)) return Usage();
  const absl::StatusOr<uint64_t> offset = Number(words[2]);
  if (!offset.ok()) return offset.status();
  const absl::StatusOr<uint64_t> length = Number(words[3]);
  if (!length.ok()) return length.status();
  if (command == "carve") return space.Carve(words[1], *offset, *length);
  // Without the name of a DAX device: the space finds the one that has exactly these bytes.
  const SpacePiece piece = {
      .device = words[1], .offset_bytes = *offset, .length_bytes = *length, .dax = ""};
  if (command == "uncarve") return space.Uncarve(piece);
  if (command == "bind" && words[4] == "kmem") return space.Bind(piece, DaxDriver::kKmem);
  if (command == "bind" && words[4] == "device_dax") {
    return space.Bind(piece, DaxDriver::kDeviceDax);
  }
  if (command == "online") return space.OnlineBlocks(piece, MemoryZone::kMovable);
  if (command == "offline") return space.OfflineBlocks(piece, absl::Minutes(1));
  if (command == "unbind") return space.Unbind(piece);
  if (command == "holders") return PrintHolders(space.FindHolders(piece));
  return Usage();
}

// Counts the words, so that the functions above can take theirs by position.
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
  const std::vector<std::string> words(argv + 1, argv + argc);
  absl::Status status;
  if (!words.empty() && words[0] == "space") {
    status = RunSpace(*MakeLinuxSpace({}), {words.begin() + 1, words.end()});
  } else {
    absl::StatusOr<std::unique_ptr<HostMemory>> host = MakeLinuxHostMemory({});
    status = host.ok() ? Run(**host, words) : host.status();
  }
  if (status.ok()) return EXIT_SUCCESS;
  // Recognized by its text: other errors are INVALID_ARGUMENT, too.
  if (status.message() == kUsage) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  absl::FPrintF(stderr, "cxlpool-rungs: %s: %s\n", absl::StatusCodeToString(status.code()),
                status.message());
  return EXIT_FAILURE;
}
