// Follows Regions by Watch, across broken streams and restarts of the manager, as if it were one
// unbroken stream.
//
// - A stream that breaks is resumed after the last revision seen; when that is compacted, all is
//   listed again: what is known already is not passed on twice, and what is missing is passed on as
//   REMOVED.
// - SYNCED is passed on once.
// - No stream lives longer than a minute before it is resumed, so a manager that vanished without
//   a word is noticed.
// One thread; one Follow per object.
#ifndef CXLPOOL_TOOLS_CLI_REGION_FOLLOWER_H_
#define CXLPOOL_TOOLS_CLI_REGION_FOLLOWER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/cli/connection.h"
#include "tools/cli/pacer.h"

namespace cxlpool::cli {

class RegionFollower {
 public:
  struct Options {
    std::string name = {};        // Only this Region; empty: all.
    uint64_t start_revision = 0;  // After this one; 0: begin with everything as it is.
    absl::Duration limit = absl::InfiniteDuration();
    // How long the manager may stay out of reach before that is an error.
    absl::Duration patience = absl::InfiniteDuration();
  };
  enum class End { kStopped, kTimeUp };
  // Changes between what was seen last and what comes next are not known: why.
  using OnGap = std::function<void(const absl::Status&)>;
  using OnEvent = ManagerStub::OnEvent;

  static constexpr absl::Duration kStreamLife = absl::Seconds(60);
  // A stream that is open for longer was served by the manager, and not by what stands before it
  // and finds none.
  static constexpr absl::Duration kServes = absl::Seconds(2);

  RegionFollower(Connection& connection, Options options)
      : connection_(connection), options_(std::move(options)) {}

  // Calls `on_gap` for each gap. A listing follows that begins with what is different.
  void ListenForGaps(OnGap on_gap) { on_gap_ = std::move(on_gap); }

  // A Region that the caller has seen already, as of `options.start_revision`.
  void Know(const v1::Region& region) { known_[region.tag()] = region; }

  // Calls `on_event` for each event until it returns false (kStopped) or `limit` is over (kTimeUp).
  // Errors: the manager's, where trying again cannot help; UNAVAILABLE after `patience`;
  // OUT_OF_RANGE if it does not know the changes after `options.start_revision` (any more) and the
  // caller, which knows no Region, asked only for these.
  absl::StatusOr<End> Follow(OnEvent on_event);

  // Why the manager is out of reach now; OK if it is not.
  const absl::Status& last_error() const { return last_error_; }

 private:
  bool Take(const v1::WatchRegionsResponse& event, OnEvent on_event);
  bool TakeChanged(const v1::WatchRegionsResponse& event, OnEvent on_event);
  bool TakeRemoved(const v1::WatchRegionsResponse& event, OnEvent on_event);
  bool TakeSynced(const v1::WatchRegionsResponse& event, OnEvent on_event);
  void ListAgain();

  Connection& connection_;
  const Options options_;

  uint64_t revision_ = 0;
  bool listing_ = false;  // Between asking for everything and SYNCED.
  bool synced_reported_ = false;
  bool stopped_ = false;
  std::map<std::string, v1::Region> known_;  // By tag: a name may change.
  std::set<std::string> listed_;             // Tags seen in this listing.
  OnGap on_gap_;
  absl::Status last_error_;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_REGION_FOLLOWER_H_
