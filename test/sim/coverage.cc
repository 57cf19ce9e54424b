#include "test/sim/coverage.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cxlpool::sim {
namespace {

// The last of each enum; the first is 1.
constexpr int kLastRegionState = static_cast<int>(fm::RegionState::kQuarantined);
// In the order of Meeting: each is what Missing and Table call it.
constexpr std::array<const char*, kMeetings> kMeetingNames = {
    "a host allocated",
    "a host renewed",
    "a host released",
    "a host refused: NOT_YOUR_HOST",
    "a host refused: TENANT_NOT_YOURS",
    "a host refused: UNKNOWN_REGION",
    "a host refused: NOT_OWNER",
    "a host refused: REGION_ATTACHED",
    "a host refused: NOT_ENROLLED",
    "refused: QUOTA_EXCEEDED",
    "an etag held",
    "refused: ETAG_MISMATCH",
    "a dry run alone",
    "a dry run, and then the same done",
    "a dry run, and then the same refused",
    "a watch was the list",
    "a watch heard of a gap",
    "a watch went on with a new manager",
    "a standby took over",
    "a leader came back after another had taken over",
    "refused: STORE_FENCED",
    "a claim came too late",
    "a transaction was sent, and its outcome not heard",
    "a commit was found to be made",
    "a transaction came twice",
    "a standby was too far behind",
    "a bind of a leader that stood still was dropped",
    "a scrub of a leader that stood still was dropped",
};
constexpr int kLastAttachmentState = static_cast<int>(fm::AttachmentState::kReleaseBlocked);

}  // namespace

// How much of what there is was met, and the names of what was not.
struct Coverage::Tally {
  int states = 0, all_states = 0;
  int edges = 0, all_edges = 0;
  int faults = 0, all_faults = 0;
  int meetings = 0, all_meetings = 0;
  std::vector<std::string> missing;
};

// Sums of both; which seed met what is not kept.
void Coverage::Add(const Coverage& other) {
  for (size_t i = 0; i < kStates; ++i) {
    for (size_t k = 0; k < kStates; ++k) {
      region_[i][k] += other.region_[i][k];
      attachment_[i][k] += other.attachment_[i][k];
      tail_[i][k] += other.tail_[i][k];
    }
  }
  for (size_t i = 0; i < verbs_.size(); ++i) verbs_[i] += other.verbs_[i];
  for (size_t i = 0; i < met_.size(); ++i) met_[i] += other.met_[i];
  for (const auto& [reason, count] : other.answers_) answers_[reason] += count;
  operations += other.operations;
  acknowledged += other.acknowledged;
  histories += other.histories;
  gave_up += other.gave_up;
  events += other.events;
  commits += other.commits;
  lives += other.lives;
  standbys += other.standbys;
  bad_marked += other.bad_marked;
  bad_kept += other.bad_kept;
  bad_freed += other.bad_freed;
  simulated_us += other.simulated_us;
}

void Coverage::Answer(const std::string& reason) {
  ++answers_[reason];
  if (reason == "QUOTA_EXCEEDED") Met(Meeting::kQuota);
  if (reason == "ETAG_MISMATCH") Met(Meeting::kEtagStale);
}

// Of a host's own calls: an operator may meet the same reason for another cause.
void Coverage::HostIsTold(const std::string& reason) {
  if (reason == "NOT_YOUR_HOST") Met(Meeting::kNotYourHost);
  if (reason == "TENANT_NOT_YOURS") Met(Meeting::kTenantNotYours);
  if (reason == "UNKNOWN_REGION") Met(Meeting::kNotYourRegion);
  if (reason == "NOT_OWNER") Met(Meeting::kNotOwner);
  if (reason == "REGION_ATTACHED") Met(Meeting::kOthersAttached);
  if (reason == "NOT_ENROLLED") Met(Meeting::kNotEnrolled);
}

// Each edge of a ladder, whether it was taken. An edge that may not be counts only where it was
// taken all the same, so that the table shows it.
template <typename State>
void Coverage::Walk(const Matrix& matrix, int last, int& visited, int& all,
                    std::vector<std::string>& missing, std::string* table) const {
  for (int from = 1; from <= last; ++from) {
    for (int to = 1; to <= last; ++to) {
      const auto a = static_cast<State>(from);
      const auto b = static_cast<State>(to);
      const uint64_t count = matrix[Index(a)][Index(b)];
      if (from == to || (!MayFollow(a, b) && count == 0)) continue;
      const std::string name = absl::StrCat(fm::ToString(a), "->", fm::ToString(b));
      ++all;
      count > 0 ? (void)++visited : missing.push_back(name);
      if (table != nullptr) absl::StrAppend(table, "  ", name, ": ", count, "\n");
    }
  }
}

// `table`, where it is not null, gets a line for everything that is counted.
Coverage::Tally Coverage::Count(std::string* table) const {
  Tally tally;
  Walk<fm::RegionState>(region_, kLastRegionState, tally.edges, tally.all_edges, tally.missing,
                        table);
  Walk<fm::AttachmentState>(attachment_, kLastAttachmentState, tally.edges, tally.all_edges,
                            tally.missing, table);
  // A state counts as entered by whichever edge, the first of a record included.
  const auto entered = [&](const Matrix& matrix, int last) {
    for (int to = 1; to <= last; ++to) {
      uint64_t count = 0;
      for (const auto& from : matrix) count += from[static_cast<size_t>(to)];
      ++tally.all_states;
      tally.states += count > 0;
    }
  };
  entered(region_, kLastRegionState);
  entered(attachment_, kLastAttachmentState);
  for (int v = static_cast<int>(kFirstFault); v < kVerbs; ++v) {
    // Where no seed had two managers (--shared), nothing that needs two can be met.
    if (static_cast<Verb>(v) == Verb::kPauseManager && standbys == 0) continue;
    const auto name = std::string(InfoOf(static_cast<Verb>(v)).name);
    const uint64_t count = verbs_[static_cast<size_t>(v)];
    ++tally.all_faults;
    count > 0 ? (void)++tally.faults : tally.missing.push_back(name);
    if (table != nullptr) absl::StrAppend(table, "  ", name, ": ", count, "\n");
  }
  const std::pair<const char*, uint64_t> bad[] = {
      {"lost bytes marked", bad_marked}, {"kept", bad_kept}, {"freed", bad_freed}};
  for (const auto& [name, count] : bad) {
    if (count == 0) tally.missing.emplace_back(name);
    if (table != nullptr) absl::StrAppend(table, "  ", name, ": ", count, "\n");
  }
  tally.all_meetings = standbys > 0 ? kMeetings : static_cast<int>(kFirstOfTwo);
  for (size_t i = 0; i < static_cast<size_t>(tally.all_meetings); ++i) {
    met_[i] > 0 ? (void)++tally.meetings : tally.missing.push_back(kMeetingNames[i]);
    if (table != nullptr) absl::StrAppend(table, "  ", kMeetingNames[i], ": ", met_[i], "\n");
  }
  if (table != nullptr) {
    const std::map<std::string, uint64_t> in_order(answers_.begin(), answers_.end());
    for (const auto& [reason, count] : in_order) {
      absl::StrAppend(table, "  answer ", reason, ": ", count, "\n");
    }
  }
  return tally;
}

std::string Coverage::Summary() const {
  const Tally tally = Count(nullptr);
  return absl::StrCat(
      tally.states, " of ", tally.all_states, " states, ", tally.edges, " of ", tally.all_edges,
      " edges, ", tally.faults, " of ", tally.all_faults, " faults, ", tally.meetings, " of ",
      tally.all_meetings, " meetings; ", operations, " operations, ", acknowledged,
      " acknowledged, ", bad_kept, " of ", bad_marked, " bad extents kept, ", histories,
      " histories", gave_up > 0 ? absl::StrCat(" (", gave_up, " given up)") : "", ", ", lives,
      " managers, ", Times(Meeting::kTookOver), " takeovers, ", Times(Meeting::kCameBack),
      " leaders that came back after one, ", Times(Meeting::kOutcomeLost), " unknown outcomes, ",
      simulated_us / 1'000'000, " s simulated");
}

std::string Coverage::Missing() const {
  const Tally tally = Count(nullptr);
  return tally.missing.empty() ? "" : absl::StrCat("never: ", absl::StrJoin(tally.missing, ", "));
}

std::string Coverage::Table() const {
  std::string table;
  Count(&table);
  return table;
}

}  // namespace cxlpool::sim
