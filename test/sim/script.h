// What happens in one simulation: operations that clients ask for and faults that strike, each at
// its time. A seed makes a script; a script can be written down, shortened and run again.
//
// As text, a line a step, in order of time:
//
//   seed 42
//   1200 allocate client=1 region=3 granules=4 host=2 mode=1
//   5000 kill-manager for=20000
//
// Times and durations are in microseconds. Numbers of clients, regions, hosts, devices and tenants
// count from 0; host=9 is none, and so is region=12 of an allocation: the manager names it. What is
// left out is 0.
//
// by=0 is an operator, by=1 host-a and so on, by=4 a host that nobody enrolled. etag=1 is the
// newest that the clients know of the Region, etag=2 an older one. dry=1 asks first what would be,
// and then does it; dry=2 only asks. standby=1 is the manager that does not lead; with call=3 the
// one that leads stands still at the third bind or scrub from then. serves=5 enrols a host for
// tenants 0 and 2, a bit each.
#ifndef CXLPOOL_TEST_SIM_SCRIPT_H_
#define CXLPOOL_TEST_SIM_SCRIPT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool::sim {

inline constexpr int kHosts = 3;
inline constexpr int kDevices = 4;
inline constexpr int kGranulesPerDevice = 16;
inline constexpr int kSlotsPerHost = 8;  // On two bridges.
inline constexpr int kClients = 4;
inline constexpr int kRegionNames = 12;
inline constexpr int kTenants = 3;
inline constexpr int kNoHost = 9;
inline constexpr int kStranger = kHosts + 1;  // As who calls.

enum class Verb : uint8_t {
  // Of clients.
  kAllocate,
  kAllocateBatch,
  kAttach,
  kDetach,
  kResize,
  kRename,
  kRenew,
  kRelease,
  kForceRelease,
  kReleaseBatch,
  kGet,
  kSetTenant,
  kDrainDevice,
  kAddDevice,
  kFailDevice,
  kFenceHost,
  kRetireHost,
  kEnrolHost,
  // Of applications on hosts.
  kOpen,
  kClose,
  // Of who watches.
  kWatch,
  // Faults: of the network,
  kWeather,
  kPartitionHost,
  kCutSession,
  kPartitionClient,
  // the store,
  kSlowStore,
  kFullStore,
  kFailStore,
  kLoseCommit,
  // the manager,
  kKillManager,
  kKillManagerAt,
  // the fabric,
  kFabricFails,
  kFabricUnknown,
  kFabricSlow,
  kFabricLies,
  kSurpriseRemoval,
  kUnreachableHost,
  kFalseEvent,
  kNoFence,
  // and hosts.
  kKillAgent,
  kKillAgentAt,
  kPauseHost,
  kResetHost,
  kPowerLoss,
  kRefuseOffline,
  kHoldMemory,
  kRungFails,
  kAgentLies,
  kOldState,
  kWallJumps,
  // Bytes that are lost.
  kPoison,
  // The machine of one of two managers.
  kPauseManager,
};
inline constexpr int kVerbs = static_cast<int>(Verb::kPauseManager) + 1;
inline constexpr Verb kFirstFault = Verb::kWeather;

inline constexpr int kMaxArguments = 9;

// What an argument may be called, of any verb.
inline constexpr auto kArgumentNames = std::to_array<absl::string_view>(
    {"",        "ahead",   "all",    "by",       "call",   "client",    "connection", "count",
     "cut",     "device",  "done",   "drop",     "dry",    "duplicate", "etag",       "every",
     "extents", "fence",   "for",    "granules", "host",   "how",       "kind",       "late",
     "limit",   "mode",    "probe",  "quota",    "region", "reserved",  "serves",     "shape",
     "slot",    "standby", "tenant", "to"});

// One of them, by its place there. A literal that is none does not compile.
class Argument {
 public:
  constexpr Argument() = default;  // None.
  template <size_t N>
  consteval Argument(const char (&name)[N]) : number_(NumberOf({name, N - 1})) {}

  constexpr size_t number() const { return number_; }
  constexpr bool empty() const { return number_ == 0; }
  constexpr absl::string_view name() const { return kArgumentNames[number_]; }
  friend constexpr bool operator==(Argument, Argument) = default;

 private:
  static consteval uint8_t NumberOf(absl::string_view name) {
    uint8_t number = 0;
    while (kArgumentNames[number] != name) ++number;
    return number;
  }

  uint8_t number_ = 0;
};

struct VerbInfo {
  absl::string_view name;
  std::array<Argument, kMaxArguments> arguments;  // Empty: no more.
};
const VerbInfo& InfoOf(Verb verb);
inline bool IsFault(Verb verb) { return verb >= kFirstFault; }

struct Step {
  int64_t at_us = 0;
  Verb verb = Verb::kGet;
  std::array<int64_t, kMaxArguments> arguments = {};

  // 0 for one that the verb does not have.
  int64_t Get(Argument argument) const;
  Step& Set(Argument argument, int64_t value);
  friend bool operator==(const Step&, const Step&) = default;
};

struct Script {
  uint64_t seed = 1;    // Of every delay and chance that the steps do not fix.
  bool shared = false;  // Hosts see the devices whole (rack.h). As text: "seed 42 shared".
  // Two managers, one of which stands by. As text: "seed 42 standby". Not where it is shared.
  bool standby = false;
  std::vector<Step> steps;
};

std::string ToText(const Step& step);
std::string ToText(const Script& script);
// INVALID_ARGUMENT names the line.
absl::StatusOr<Script> ParseScript(absl::string_view text);

// `operations` steps of clients and applications, and faults among them as the seed has it: some
// seeds have none, some one kind alone, most a mixture. One in four has a standby; all, if
// `standby`.
Script MakeScript(uint64_t seed, int operations, bool standby = false);

// Makes a script that fails shorter, until a person can read it: takes steps away, chunk by chunk,
// as long as it still fails. `fails`: runs a script. At most `max_runs` of it. The answer fails, if
// `script` does.
Script Shrink(const Script& script, const std::function<bool(const Script&)>& fails, int max_runs);

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SCRIPT_H_
