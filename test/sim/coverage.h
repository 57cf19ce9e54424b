// What a run has visited: states and edges of the ladder, kinds of fault, kinds of answer, and what
// hosts, etags, dry runs and watchers met. A run that did not visit all of them proves less than it
// says, and is void.
#ifndef CXLPOOL_TEST_SIM_COVERAGE_H_
#define CXLPOOL_TEST_SIM_COVERAGE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fabric-manager/model/pool/region.h"
#include "test/sim/script.h"

namespace cxlpool::sim {

// What callers and watchers meet that is no state, edge or fault, in the order of its names.
enum class Meeting : uint8_t {
  kHostAllocates,
  kHostRenews,
  kHostReleases,
  kNotYourHost,
  kTenantNotYours,
  kNotYourRegion,
  kNotOwner,
  kOthersAttached,
  kNotEnrolled,
  kQuota,
  kEtagPassed,
  kEtagStale,
  kDryRunAlone,
  kRehearsedDone,
  kRehearsedRefused,
  kWatchCompared,
  kWatchToldOfGap,
  kWatchResumed,
  // Of two managers.
  kTookOver,
  kCameBack,
  kFencedCommit,
  kClaimOutrun,
  kOutcomeLost,
  kOutcomeFound,
  kTransactionDoubled,
  kReadAnew,
  kLateBind,
  kLateScrub,
};
inline constexpr int kMeetings = static_cast<int>(Meeting::kLateScrub) + 1;
inline constexpr Meeting kFirstOfTwo = Meeting::kTookOver;

class Coverage {
 public:
  void Begins(fm::RegionState state) { ++region_[0][Index(state)]; }
  void Begins(fm::AttachmentState state) { ++attachment_[0][Index(state)]; }
  void Edge(fm::RegionState from, fm::RegionState to) { ++region_[Index(from)][Index(to)]; }
  void Edge(fm::AttachmentState from, fm::AttachmentState to) {
    ++attachment_[Index(from)][Index(to)];
  }
  // A tail's are counted by themselves.
  void TailEdge(fm::AttachmentState from, fm::AttachmentState to) {
    ++tail_[Index(from)][Index(to)];
  }
  void Struck(Verb fault) { ++verbs_[static_cast<size_t>(fault)]; }
  void Answer(const std::string& reason);  // "OK" or the refusal's.

  void Met(Meeting meeting, uint64_t times = 1) { met_[static_cast<size_t>(meeting)] += times; }
  uint64_t Times(Meeting meeting) const { return met_[static_cast<size_t>(meeting)]; }
  // Why a host was refused; nothing for what no wall stands behind.
  void HostIsTold(const std::string& reason);

  void Add(const Coverage& other);

  uint64_t operations = 0;
  uint64_t acknowledged = 0;
  uint64_t histories = 0;  // Held against the model of a Region.
  uint64_t gave_up = 0;    // Of those: too many ways to look at.
  uint64_t events = 0;
  uint64_t commits = 0;
  uint64_t lives = 0;       // Of managers.
  uint64_t standbys = 0;    // Simulations with two of them; without any their faults do not count.
  uint64_t bad_marked = 0;  // Extents that lost bytes, as the records say,
  uint64_t bad_kept = 0;    // that their Region let go of,
  uint64_t bad_freed = 0;   // and that an operator freed.
  int64_t simulated_us = 0;

  // "12 of 12 states, 31 of 31 edges, 31 of 31 faults, 28 of 28 meetings": of all that there are.
  std::string Summary() const;
  // What was not visited; empty: nothing.
  std::string Missing() const;
  // Everything with its count, a line each.
  std::string Table() const;

 private:
  static constexpr size_t kStates = 8;
  using Matrix = std::array<std::array<uint64_t, kStates>, kStates>;
  template <typename State>
  static size_t Index(State state) {
    return static_cast<size_t>(state);
  }
  template <typename State>
  void Walk(const Matrix& matrix, int last, int& visited, int& all,
            std::vector<std::string>& missing, std::string* table) const;
  struct Tally;
  Tally Count(std::string* table) const;

  Matrix region_ = {};
  Matrix attachment_ = {};
  Matrix tail_ = {};
  std::array<uint64_t, kVerbs> verbs_ = {};
  std::array<uint64_t, kMeetings> met_ = {};
  absl::flat_hash_map<std::string, uint64_t> answers_;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_COVERAGE_H_
