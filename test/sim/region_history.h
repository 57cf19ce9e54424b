// What clients asked of Regions and got as answers, and whether one pool that does one thing at a
// time could have answered so: linearizability of each Region name by itself.
//
// Checked beside it, over all names: of one Region (tag), an answer is never of an earlier revision
// than one that was known before the call began, and two answers of one revision show the same.
#ifndef CXLPOOL_TEST_SIM_REGION_HISTORY_H_
#define CXLPOOL_TEST_SIM_REGION_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "test/sim/region_model.h"

namespace cxlpool::sim {

// One host's use of a Region, as an answer shows it.
struct HostSeen {
  std::string host;
  bool detaching = false;
};

// What a call asked for, whose answer counts, and what that was. Retries of one logical call are
// one operation, from the first that was sent to the final answer.
struct ClientOp {
  enum Kind : uint8_t { kAllocate, kGet, kResize, kRename, kAttach, kDetach, kRelease, kRenew };
  // kUnknown: no answer that says what became of it. Also where return_us is kNever.
  enum Outcome : uint8_t { kOk, kRefused, kUnknown };

  int client = 0;
  uint64_t request = 0;  // For people.
  // Copies that may reach the manager: retries, and what the network doubled. Beyond one, a call
  // may have taken effect before what its answer shows; and, if it was refused, after that.
  uint32_t sends = 1;
  int64_t invoke_us = 0;
  int64_t return_us = kNever;

  Kind kind = kGet;
  std::string region_id;       // The name that was called, never a tag; empty: not checked.
  std::string new_region_id;   // kRename.
  uint64_t size_granules = 0;  // kAllocate, kResize.
  std::string host;            // kAllocate (empty: none), kAttach, kDetach.
  bool detach_all = false;     // kRelease.
  bool force = false;          // kRelease.
  bool lease = false;          // kAllocate, kRenew: with a term, in the call or before.
  bool by_host = false;        // Who may see a part of the Regions only.

  Outcome outcome = kUnknown;
  std::string reason;  // kRefused: as in docs/errors.md.

  // kOk: the Region in the answer.
  std::string tag;  // Text or bytes.
  uint64_t generation = 0;
  uint64_t revision = 0;  // The Region's own, of its last change. Never 0.
  uint64_t answered_granules = 0;
  bool resizing = false;
  std::string state;  // "RESERVED" to "QUARANTINED".
  std::vector<HostSeen> hosts;
};

struct RegionHistoryOptions {
  RegionModelOptions model = {};
  uint64_t max_states = 100'000;  // A name: beyond it the search gives up.
};

struct RegionHistoryResult {
  std::string why;      // Empty: nothing speaks against it. Else the report, in lines.
  size_t names = 0;     // Checked,
  size_t gave_up = 0;   // of which so many were given up: neither right nor wrong.
  uint64_t states = 0;  // Looked at, in all.

  bool ok() const { return why.empty(); }
};

// At most 32 hosts in one history. The first name that does not fit ends the check.
RegionHistoryResult CheckRegionHistory(const std::vector<ClientOp>& history,
                                       const RegionHistoryOptions& options = {});

// One line, without its end.
std::string ToText(const ClientOp& op);

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_REGION_HISTORY_H_
