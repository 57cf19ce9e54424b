// The files of slot.proto, seen from the host: what the fabric shows in a slot, and what this
// host has made of it.
//
// A file is replaced by rename, so a reader sees the old one or the new one, whole. Any thread;
// one writer of host.textproto.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_SLOT_FILES_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_SLOT_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cxlpool/emulated/v1/slot.pb.h"

namespace cxlpool::agent {

// Both sides of one slot. A file that is not there reads as the default message, whose serial is
// 0: no serial of an LD.
struct SlotFiles {
  emulated::v1::FabricSide fabric;
  emulated::v1::HostSide host;

  bool bound() const { return fabric.serial() != 0; }
  // A memdev is there: the fabric still shows the LD that was powered on.
  bool has_memdev() const { return bound() && host.powered() && host.serial() == fabric.serial(); }
};

std::string SlotDirectory(const std::string& root, const std::string& host, uint32_t slot);

// DATA_LOSS/SLOT_FILE: a file that does not parse or exceeds 64 KiB. UNAVAILABLE: cannot be read.
absl::StatusOr<SlotFiles> ReadSlot(const std::string& directory);

absl::Status WriteHostSide(const std::string& directory, const emulated::v1::HostSide& side);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_EMULATED_SLOT_FILES_H_
