// Where a test may kill the manager: between the rungs of the ladder.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_PROBE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_PROBE_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace cxlpool::fm {

// Called with the name of each rung as it is passed ("before-bind", "after-commit-ONLINE", ...).
// Empty in production.
using Probe = std::function<void(absl::string_view)>;

// The one Probe of a manager, for all that pass rungs. Runs wholly on the executor.
class ProbePoints {
 public:
  explicit ProbePoints(Probe probe) : probe_(std::move(probe)) {}
  ProbePoints(const ProbePoints&) = delete;
  ProbePoints& operator=(const ProbePoints&) = delete;

  void Pass(absl::string_view rung) {
    if (probe_) probe_(rung);
  }
  // For names that are made of two parts, such as "before-commit-" and the state.
  void Pass(absl::string_view moment, absl::string_view rung) {
    if (!probe_) return;
    name_.assign(moment.data(), moment.size());
    name_.append(rung.data(), rung.size());
    probe_(name_);
  }

 private:
  const Probe probe_;
  std::string name_;  // Kept for its memory.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_PROBE_H_
