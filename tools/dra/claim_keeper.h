// Keeps the Regions of prepared claims open, and for each a CDI file that shows its device to
// container runtimes.
//
// Invariant: once a call has returned, a file is there only while its Region is open here. While it
// is open the agent does not let it go, and the kernel gives the number of its device to no other:
// so as long as this process runs no file leads a container to memory of somebody else. What is
// prepared outlives this process by its files, of which the next one takes over what it still can
// open. Between the two nobody holds the Regions: docs/kubernetes.md says what not to do then.
//
// Bounded: kMaxClaims. Any thread; calls take turns, each waits for the agent for seconds at most.
#ifndef CXLPOOL_TOOLS_DRA_CLAIM_KEEPER_H_
#define CXLPOOL_TOOLS_DRA_CLAIM_KEEPER_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/pool.h"
#include "proto/support/mutex.h"

namespace cxlpool::dra {

class ClaimKeeper {
 public:
  static constexpr size_t kMaxClaims = 256;

  // `agent_socket` may be empty: as libpool finds it.
  ClaimKeeper(std::string cdi_folder, std::string agent_socket)
      : cdi_folder_(std::move(cdi_folder)), agent_socket_(std::move(agent_socket)) {}

  // Takes over what the process before this one has prepared. Call it first.
  // FAILED_PRECONDITION: the folder cannot be used.
  absl::Status Start();

  // By uid: OK once the Region is open here and its file is there. Until `deadline`, or `stop`
  // answers true, it tries again what may pass by itself; MayPass of the status says whether that
  // was all. Nothing is prepared once `stop` answers true; it is called with the keeper locked, and
  // must not call it. Idempotent.
  std::map<std::string, absl::Status> Prepare(const std::vector<std::string>& uids,
                                              absl::Time deadline,
                                              const std::function<bool()>& stop);

  // Removes the file, and closes the Region. Nothing is prepared: OK.
  absl::Status Unprepare(const std::string& uid);

  // Call it every few seconds: tells an agent that has started again what is open, opens again what
  // was lost, and removes the files of what is not to be had any more.
  void Refresh();

 private:
  struct Held {
    std::optional<Region> region;  // Nothing: it was, and is to be opened again.
    std::string cdi_text;
  };

  absl::Status TryPrepare(const std::string& uid, const std::function<bool()>& stop)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Hold(const std::string& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Pool*> Agent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Region> Open(const std::string& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const std::string& region, const std::string& text) const;
  absl::Status Remove(const std::string& region) const;

  const std::string cdi_folder_;
  const std::string agent_socket_;
  Mutex mutex_;
  std::optional<Pool> pool_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Held> held_ ABSL_GUARDED_BY(mutex_);  // By the Region's id.
};

}  // namespace cxlpool::dra

#endif  // CXLPOOL_TOOLS_DRA_CLAIM_KEEPER_H_
