// What this host has been granted of shared devices, over restarts of the agent and not over those
// of the host: with a boot everything that was made of it is gone.
//
// Kept in a file in /run, replaced before anybody is answered. One process at a time: HoldRunFile
// (support/run_file.h). Not thread-safe.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_GRANT_TABLE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_GRANT_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cxlpool/v1/host_service.pb.h"

namespace cxlpool::agent {

inline constexpr char kGrantsText[] = "grants of shared devices";  // For CheckRunFile.

struct Granted {
  v1::DeviceGrant grant = {};
  // Where its bytes are: the device as this host calls it in this boot, and how far from its start.
  std::string name = {};
  uint64_t offset_bytes = 0;
  // Its DAX device is the host's to use: no cache has a line from before. Until then, and again
  // from the moment that it is taken apart, it is nobody's.
  bool ready = false;
  // Since it was last ready, no flush of its bytes has come to its end: caches may have dirty lines
  // of them. Where `ready` holds, this does too.
  bool owes_flush = false;
};

// A range that the agent itself works on: a DAX device of it is not a stranger's, nor a grant's.
struct WorkRange {
  std::string device = {};  // SpaceDevice::name.
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
};

class GrantTable {
 public:
  // Reads what an agent of the same boot left at `path`; empty where nothing can be read.
  GrantTable(std::string path, std::string boot_id);

  const std::vector<Granted>& all() const { return granted_; }
  const Granted* FindSerial(uint64_t serial) const;
  const Granted* FindSlot(uint32_t slot) const;
  const std::optional<WorkRange>& work() const { return work_; }

  // Each is kept before it returns OK. UNAVAILABLE/RUN_FILE: nothing has changed.
  absl::Status Add(Granted granted);
  absl::Status Revoke(uint32_t slot);
  absl::Status SetReady(uint64_t serial, bool ready);  // True: from now on it owes a flush.
  absl::Status SetFlushed(uint64_t serial);            // Of one that is not ready.
  absl::Status Remove(uint64_t serial);
  absl::Status SetWork(std::optional<WorkRange> work);

 private:
  absl::Status Keep(std::vector<Granted> granted, std::optional<WorkRange> work);

  const std::string path_;
  const std::string boot_id_;
  std::vector<Granted> granted_;
  std::optional<WorkRange> work_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_GRANT_TABLE_H_
