// What the explainers of Regions, and of hosts, devices and the pool, say alike (explain.h).
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_EXPLAIN_WORDS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_EXPLAIN_WORDS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/service/explain.h"

namespace cxlpool::fm {

inline constexpr size_t kNamed = 5;  // Of those that something waits for.

// What is said of one subject.
class Findings {
 public:
  explicit Findings(std::string subject) : subject_(std::move(subject)) {}

  // The caller may add to what it gives back, until the next Say.
  Finding& Say(Urgency urgency, const char* problem, std::string text,
               std::vector<std::string> commands = {}) {
    all_.push_back({.urgency = urgency,
                    .subject = subject_,
                    .problem = problem,
                    .text = std::move(text),
                    .commands = std::move(commands)});
    return all_.back();
  }

  void Add(Finding finding) { all_.push_back(std::move(finding)); }

  std::vector<Finding> Take() { return std::move(all_); }

 private:
  const std::string subject_;
  std::vector<Finding> all_;
};

std::string RegionName(absl::string_view id);
std::string HostName(absl::string_view id);
std::string DeviceName(absl::string_view id);

// " (why)", or nothing.
std::string InBrackets(absl::string_view why);

// Commands.
std::string OnHost(absl::string_view host, absl::string_view command);
// Memory stays as it is meanwhile; an agent that hangs is ended, too.
std::string RestartAgent(absl::string_view host);
// How a host is without the pool's memory for certain, the last thing to do. A fabric that cannot
// cut hosts off sees by a host's next boot that the one before it has ended.
std::string CutOff(const FabricCapabilities& fabric, absl::string_view host);
std::string Detach(absl::string_view region, absl::string_view host);
// Of a Region that is QUARANTINED, one after the other: no word may stand for a proof that a living
// host can give, so it is detached there first.
std::vector<std::string> EndQuarantine(const Region& region);
// Where a device has to be looked at, and, if it is broken for good, what ends all waiting for it:
// the finding's text ends with kFailOnlyIf, for nothing takes that back.
std::vector<std::string> LookOrFail(absl::string_view device);
inline constexpr absl::string_view kFailOnlyIf =
    "; fail the device only if it is broken for good, its bytes are given up with it";

// Null: there is none.
const HostView* FindHost(const PoolView& view, absl::string_view id);

// Since when that is so, of a host's `wrong_since` or the view's `scarce_since`; InfinitePast: it
// is not known.
absl::Time SinceWhen(const std::map<std::string, absl::Time>& known, const std::string& what);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_EXPLAIN_WORDS_H_
