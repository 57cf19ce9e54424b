// DevicePaths on a file system: links in one folder, and access lists on the nodes themselves.
//
// The links are relative (/dev/cxlpool/kv/dax1.0 -> ../../dax1.0). Everybody may search the
// folders, and only the agent may change them. On a node that is shown the agent sets the named
// users of the access list: what else a site sets there (owner, group, mode, named groups) stays.
//
// The agent needs no capability for it: it owns the nodes. Not thread-safe.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_LINK_PATHS_H_
#define CXLPOOL_HOST_AGENT_LOCAL_LINK_PATHS_H_

#include <string>
#include <vector>

#include "host-agent/ports/device_paths.h"

namespace cxlpool::agent {

class LinkPaths : public DevicePaths {
 public:
  // `root`: where the folders are; absolute. The folder that it is in has to be there. `proc` is
  // the machine's, and another in tests.
  explicit LinkPaths(std::string root, std::string proc = "/proc");

  absl::Status TakeBackAll() override;
  // A process sees the agent's paths if the folder that `root` is in is the same part of the same
  // file system for both. Their mount namespaces may differ: that of the agent is its unit's own.
  // The kernel's lists of mounts say so; to look at the process's files would be to wait for
  // whatever it has mounted.
  absl::Status CheckCaller(int pid) const override;
  absl::StatusOr<std::string> Show(const std::string& folder, const std::string& node,
                                   const std::vector<PathUser>& users) override;
  absl::Status Narrow(const std::string& node, const std::vector<PathUser>& users) override;
  absl::Status Hide(const std::string& folder, const std::string& node) override;

 private:
  const std::string root_;
  const std::string parent_;  // Of root_.
  const std::string proc_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_LINK_PATHS_H_
