// What the kernel says in sysfs and procfs, line by line and number by number; and the poison that
// the emulated fabric reads from files of the same kind.

#include <string>

#include "host-agent/adapters/emulated/emulated_host_events.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/adapters/linux/memory/node_room.h"
#include "host-agent/local/access_list.h"
#include "proto/support/process_stat.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

CXLPOOL_FUZZ(kernel_text) {
  (void)agent::ParseKernelNumber(bytes);
  (void)agent::ParseHex(bytes);
  Require(agent::ParseNumberList(bytes).size() <= 4096);
  (void)agent::MeminfoBytes(bytes, "MemFree");
  (void)agent::ParseNodeMeminfo(1, bytes);
  (void)agent::NumaMapsLineBytes(bytes, 1);
  (void)agent::ParseSlotNumber(bytes);
  (void)agent::ParseDecoder(bytes);
  (void)agent::IsNumbered(bytes, "port");
  (void)agent::PciHostBridgeOf(bytes);
  (void)agent::PciFunctionsOf(bytes);
  (void)agent::MapsShow(bytes, {"dax0.0", 252, 1, 7});
  (void)ParseStartTicks(bytes);
  Require(agent::ParsePoisonFile(bytes, 7).size() <= 256);
  // What is one access list is the same when it is written again.
  if (const auto list = agent::DecodeAccessList(bytes); list.has_value()) {
    const auto again = agent::DecodeAccessList(agent::EncodeAccessList(*list));
    Require(again.has_value() && *again == *list);
    (void)agent::WithUsers(*list, {});
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
