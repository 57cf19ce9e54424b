// What the manager of shared devices has to remember over its restarts, in a directory of its own:
//
//   identity   the pool's UUID, which every mark of its devices bears; made once. In another
//              directory the pool's own devices would be another pool's.
//   clearing   which host was asked to clear which bytes, and has not been heard to be through. A
//              host that stood still may go on with that at any time, so that nobody gets the bytes
//              before it is known to be over (shared_scrub.cc).
//   lock       one manager at a time.
//
// The first two end with a line of their checksum; those of an earlier release, which have none,
// are read and written anew.
//
// Not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_STATE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_STATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

// A host was asked, in this life of it, to clear these bytes.
struct Clearing {
  std::string host;
  std::string life;
  Slice slice;
  friend bool operator==(const Clearing&, const Clearing&) = default;
};

class SharedState {
 public:
  // Makes the directory where it is missing. FAILED_PRECONDITION/FABRIC_BUSY: another manager has
  // it. DATA_LOSS: one of its files is damaged; nothing was changed.
  static absl::StatusOr<SharedState> Open(const std::string& directory);

  const std::string& pool() const { return pool_; }  // UUID, 36 characters.
  const std::vector<Clearing>& clearings() const { return clearings_; }

  // Durable when they return OK. Added twice it is one.
  absl::Status Add(const Clearing& clearing);
  absl::Status Remove(const Clearing& clearing);

 private:
  explicit SharedState(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Load();
  absl::Status ParseClearings(absl::string_view text);
  absl::Status Save(std::vector<Clearing> clearings);

  std::string directory_;
  UniqueFd lock_;
  std::string pool_;
  std::vector<Clearing> clearings_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_STATE_H_
