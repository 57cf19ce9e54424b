// The two files that stand for one emulated PCIe slot, read and written with suspicion.
//
// What they say and who writes which: proto/cxlpool/emulated/v1/slot.proto. The directory belongs
// to the host agent, so nothing found in it is believed before it was seen to be a small regular
// file of the right owner. Symbolic links are never followed. Blocking; any thread, but one writer
// per slot.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_SLOT_FILES_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_SLOT_FILES_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cxlpool/emulated/v1/slot.pb.h"

namespace cxlpool::fm {

class SlotFiles {
 public:
  // `directory` is ROOT/hosts/HOST/slot-N; `agent_uid` owns it and host.textproto.
  SlotFiles(std::string directory, uid_t agent_uid);

  // Makes the directory, mode 0700, the agent's. There already: puts owner and mode right.
  absl::Status Prepare() const;

  // What the driver wrote; nothing where the file is absent: no LD is bound here.
  // DATA_LOSS/SLOT_CORRUPT: it is there, but is not the driver's own or does not parse, so that
  // it is not known what is bound.
  absl::StatusOr<std::optional<emulated::v1::FabricSide>> ReadFabricSide() const;

  // Replaces the file by rename; synced first, so that it is whole after a crash of the machine.
  absl::Status WriteFabricSide(const emulated::v1::FabricSide& side) const;

  // Absent: OK.
  absl::Status RemoveFabricSide() const;

  // What the agent wrote; nothing where the file is absent.
  // DATA_LOSS/SLOT_CORRUPT: it is there, but not to be believed; never a proof of anything.
  absl::StatusOr<std::optional<emulated::v1::HostSide>> ReadHostSide() const;

 private:
  std::string directory_;
  uid_t agent_uid_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_SLOT_FILES_H_
