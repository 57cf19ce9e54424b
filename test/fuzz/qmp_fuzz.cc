// What QEMU says: lines of QMP, values of its objects, and the ids that say what is bound.

#include <string>

#include "fabric-manager/adapters/fabric_qemu/ld_name.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_process.h"
#include "fabric-manager/adapters/fabric_qemu/qmp_message.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

CXLPOOL_FUZZ(qmp) {
  if (const auto message = fm::ParseQmpMessage(bytes); message.ok()) {
    const nlohmann::json& value = message->value;
    (void)fm::ParseQomList(value);
    (void)fm::ParseQomString(value);
    (void)fm::ParseQomUint(value);
    (void)fm::ParseQomBool(value);
    (void)fm::ParseCpuThread(value);
    (void)fm::ParseChardev(value, "/run/qmp");
    // Refused, or one line that says the same.
    if (const auto line = fm::FormatQmpCommand(7, "c", value); line.ok()) {
      Require(line->find('\n') == line->size() - 1);
      const nlohmann::json back = nlohmann::json::parse(*line, nullptr, false);
      Require(value.empty() || back["arguments"] == value);
    }
  }
  if (const auto key = fm::ParseLdDeviceId(bytes, "host-a"); key.has_value()) {
    Require(fm::LdDeviceId(*key) == bytes);
  }
  (void)fm::ParseLdBackendId(bytes, "host-a");
  if (const auto process = fm::ParseIncarnation(bytes); process && process->this_boot) {
    Require(fm::ParseIncarnation(fm::FormatIncarnation(process->name))->name == process->name);
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
