// Hearing of lost bytes: poison and uncorrectable errors in the Regions of this host.
//
//   auto watch = cxlpool::FaultWatch::Start({}, [](const cxlpool::Fault& fault) {
//     std::cerr << fault.name << ": " << fault.length_bytes << " bytes from "
//               << fault.region_offset_bytes << " on are lost: " << fault.message << "\n";
//   });
//
// A load of lost bytes may raise SIGBUS (BUS_MCEERR_AR), or give wrong bytes; a fault may come
// before a load does, and gives a program the time to stop using them. It is no proof that all the
// other bytes are good: what the device and the kernel have not noticed, nobody can tell.
//
// Reported are the faults of all Regions that this user may open, opened or not, those that were
// there before the watch began included. Each is reported once; a restart of the agent may report
// some again where there are more than 16,000. Lost bytes stay lost until the Region is released:
// copy what is left, and give it up.
//
// Threads: `on_fault` is called from a thread of the watch's own, one call at a time. It may use
// any Client, and must not destroy the watch. The watch has a connection of its own. Do not use it
// in a forked child.
#ifndef CXLPOOL_FAULTS_H_
#define CXLPOOL_FAULTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cxlpool/client.h"

namespace cxlpool {

namespace libpool {
class FaultWatcher;  // Internal.
}

// Bytes of a Region that are lost: [region_offset_bytes, region_offset_bytes + length_bytes) of it,
// as in Mapping::bytes(). Where a Region is striped over several devices it is the range from the
// first to the last byte lost, and bytes between them may be good.
struct Fault {
  std::string name;  // regions/{region}, when it was reported.
  std::string tag;   // UUID; identity: Region::tag().
  uint64_t region_offset_bytes = 0;
  uint64_t length_bytes = 0;
  std::string message;  // For people: what the device said.
};

class FaultWatch {
 public:
  // Asks the agent once, so that it is known whether it can tell; then watches until the watch is
  // destroyed. An agent that goes away is looked for again.
  // Errors as Client::Connect, and PERMISSION_DENIED/USER_NOT_ALLOWED; an agent of a release
  // before faults: INVALID_ARGUMENT/BAD_REQUEST. INVALID_ARGUMENT/BAD_ARGUMENT: no `on_fault`.
  static absl::StatusOr<FaultWatch> Start(const ConnectOptions& options,
                                          std::function<void(const Fault&)> on_fault);

  FaultWatch(FaultWatch&&) noexcept;
  FaultWatch& operator=(FaultWatch&&) noexcept;

  // Waits for a call of `on_fault` that is under way.
  ~FaultWatch();

  // OK while the agent answers; else why it does not. The watch goes on trying.
  absl::Status Check() const;

 private:
  explicit FaultWatch(std::unique_ptr<libpool::FaultWatcher> watcher);
  std::unique_ptr<libpool::FaultWatcher> watcher_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_FAULTS_H_
