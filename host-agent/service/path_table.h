// Which local connections have which devices as paths, and so which users may open them by name.
//
// A user may for as long as some connection of theirs that asked for it has the Region open, and
// may write as long as one of these has it open for writing. With the last of them the path goes. A
// device is shown in one folder: a Region that is renamed meanwhile keeps its path.
//
// A node is known by its name and by what device it is: a name is used again for another device,
// and having used the one before gives no user a right to that. Only Open adds a right.
//
// What could not be taken back is tried again at the next Open, Close or change of the core.
//
// Bounded: kMaxUsers users of one device; its connections are as many as there may be. Not
// thread-safe; the core's thread.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_PATH_TABLE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_PATH_TABLE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "host-agent/ports/device_paths.h"

namespace cxlpool::agent {

class PathTable {
 public:
  static constexpr size_t kMaxUsers = 64;

  // `paths` outlives this. Null: none are given, PATH_UNSUPPORTED.
  explicit PathTable(DevicePaths* paths = nullptr) : paths_(paths) {}

  // Takes back what an agent before this one has shown, before anything is shown. What cannot be
  // taken back is in the log.
  void Start();

  // PATH_UNSUPPORTED, OTHER_NAMESPACE: this process gets no path at all.
  absl::Status CheckCaller(int pid) const;

  struct Device {
    std::string node;    // "" where no file is this device and nothing else.
    std::string which;   // Of all devices ever: no other has the same.
    std::string folder;  // To show it in, unless it is shown already.
  };

  // From now on `user` may open the device, until the connection closes `name` or ends. The answer
  // is the path. Errors as DevicePaths::Show, and RESOURCE_EXHAUSTED/TOO_MANY_OPENS.
  absl::StatusOr<std::string> Open(const Device& device, uint64_t connection,
                                   const std::string& name, PathUser user);

  // Nothing of it open: no effect.
  void Close(uint64_t connection, const std::string& name);
  void CloseConnection(uint64_t connection);

  // Only these devices (Device::which) are there now: paths of any other are taken away.
  void KeepOnly(const std::set<std::string>& devices);
  bool empty() const { return shown_.empty(); }

 private:
  struct Use {
    uint64_t connection = 0;
    std::string name;
    friend auto operator<=>(const Use&, const Use&) = default;
  };
  struct Shown {
    std::string which;
    std::string folder;
    std::map<Use, PathUser> uses;
    bool owed = false;  // More users may open it than `uses` say: that could not be changed.
  };

  static std::vector<PathUser> UsersOf(const Shown& shown);
  // `change` takes uses away, and answers whether it did.
  template <typename Change>
  void TakeAway(Change change);
  template <typename Matches>
  void CloseIf(Matches matches);

  DevicePaths* const paths_;
  std::map<std::string, Shown> shown_;  // By node.
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_PATH_TABLE_H_
