// DevicePaths in memory, for tests of the agent's service: who may open which node by which path,
// and failures where a test says so. Not thread-safe.
#ifndef CXLPOOL_TEST_RIGS_FAKE_DEVICE_PATHS_H_
#define CXLPOOL_TEST_RIGS_FAKE_DEVICE_PATHS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/ports/device_paths.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

class FakeDevicePaths : public DevicePaths {
 public:
  // What a test sets and looks at.
  std::map<std::string, std::vector<PathUser>> users;  // By node.
  std::set<std::string> links;                         // "r1 /dev/dax0.0".
  std::set<int> strangers;                             // Pids that have another /dev.
  absl::Status failure;                                // Of Show, Narrow and Hide.
  int starts = 0;

  absl::Status TakeBackAll() override {
    ++starts;
    users.clear();
    links.clear();
    return failure;
  }
  absl::Status CheckCaller(int pid) const override {
    if (!strangers.contains(pid)) return absl::OkStatus();
    return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_NAMESPACE", "another /dev", "stop");
  }
  absl::StatusOr<std::string> Show(const std::string& folder, const std::string& node,
                                   const std::vector<PathUser>& shown_to) override {
    if (!failure.ok()) return failure;
    users[node] = shown_to;
    links.insert(absl::StrCat(folder, " ", node));
    return absl::StrCat("/dev/cxlpool/", folder, node.substr(node.rfind('/')));
  }
  absl::Status Narrow(const std::string& node, const std::vector<PathUser>& left) override {
    if (!failure.ok()) return failure;
    const auto named = users.find(node);
    if (named == users.end()) return absl::OkStatus();
    std::vector<PathUser> stay;
    for (const PathUser& user : left) {
      for (const PathUser& has : named->second) {
        if (has.uid != user.uid) continue;
        stay.push_back({.uid = user.uid, .writable = user.writable && has.writable});
      }
    }
    named->second = std::move(stay);
    return absl::OkStatus();
  }
  absl::Status Hide(const std::string& folder, const std::string& node) override {
    if (!failure.ok()) return failure;
    users.erase(node);
    links.erase(absl::StrCat(folder, " ", node));
    return absl::OkStatus();
  }
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_FAKE_DEVICE_PATHS_H_
