// What is wrong with the pool or waits, for the person who is to end it: what it is, since when,
// what it waits for, and the command that ends it. Pure: all of it is read off one view. Nothing is
// decided by it.
//
// docs/operations.md has a line for each problem.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_EXPLAIN_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_EXPLAIN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

// The worst first.
enum class Urgency : uint8_t {
  kWrong = 1,  // It stays so until somebody does something.
  kWaits = 2,  // It goes on by itself, once something else has happened.
  kNote = 3,   // Nothing is wrong yet.
};

struct Finding {
  Urgency urgency = Urgency::kNote;
  std::string subject = {};                 // Resource name; empty: the pool.
  std::string problem = {};                 // UPPER_SNAKE, stable.
  std::string text = {};                    // What it is, and why.
  absl::Time since = absl::InfinitePast();  // InfinitePast: not known.
  std::vector<std::string> waits_for = {};  // Resource names.
  // What ends it, the mildest first. WHY and the like stand for what the operator has to say; "on
  // HOST: " comes before what is to be run there.
  std::vector<std::string> commands = {};
};

inline constexpr absl::Duration kCertificateEndsSoon = absl::Hours(14 * 24);
inline constexpr absl::Duration kLeaseEndsSoon = absl::Minutes(10);
// So long an unbind may take before somebody should look at it.
inline constexpr absl::Duration kSlowUnbind = absl::Minutes(1);

// Empty: nothing is wrong with it, and it waits for nothing. Of a Region, what concerns only its
// hosts and devices is not said again, but where it is what the Region waits for. `left_bytes`: how
// many of its bytes are to be cleared yet (Scrubs::LeftBytes); 0: that is not said.
std::vector<Finding> ExplainRegion(const PoolView& view, const Region& region, absl::Time now,
                                   uint64_t left_bytes = 0);
// What one part of an Attachment waits for; nothing: for nothing.
std::optional<Finding> ExplainPart(const PoolView& view, const Region& region,
                                   const Attachment& attachment, const Part& part, absl::Time now);
std::vector<Finding> ExplainHost(const PoolView& view, const HostView& host, absl::Time now);
// Also of one that is laid down, and that the fabric has never shown. Nothing: there is none.
std::optional<std::vector<Finding>> ExplainDevice(const PoolView& view, const std::string& device);

// All of it, the worst first; of what is equally bad first the pool, then hosts, devices and
// Regions, each in order of name; `of_manager` is among them. For a role for tenants: of its
// tenants and of the Regions that it may see, alone. Beyond `limit` findings are counted in
// `left_out`, and those of the worst are kept.
struct Diagnosis {
  std::vector<Finding> findings;
  uint64_t left_out = 0;
};
Diagnosis Diagnose(const PoolView& view, const Caller& caller, std::vector<Finding> of_manager,
                   absl::Time now, size_t limit);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_EXPLAIN_H_
