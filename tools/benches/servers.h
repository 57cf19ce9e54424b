// The servers that figures set side by side, each a process of its own on a loopback port.
#ifndef CXLPOOL_TOOLS_BENCHES_SERVERS_H_
#define CXLPOOL_TOOLS_BENCHES_SERVERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/benches/child.h"

namespace cxlpool::bench {

struct Server {
  Child child;
  std::string address;  // 127.0.0.1:PORT, no TLS.
  std::string log;      // Its output, for people.
};

// What the pool is made of: more than any slice of a run allocates. Nothing is bound, so no byte
// of it is ever made.
inline constexpr int kDevices = 4;
inline constexpr uint64_t kDeviceBytes = uint64_t{8} << 40;
inline constexpr uint64_t kGranuleBytes = uint64_t{1} << 20;

// cxlpool-fm on the emulated fabric, its store (SQLite) and everything else below `directory`,
// which is made where it is missing. Started again with the same directory, it goes on with the
// same store. `program`: its path.
absl::StatusOr<Server> StartManager(const std::string& program, const std::string& directory);

// The same, its store on etcd: several, with different names and the same directory, are managers
// of one pool. `prefix`: of the pool's keys.
absl::StatusOr<Server> StartManagerOnEtcd(const std::string& program, const std::string& directory,
                                          const std::string& name,
                                          const std::vector<std::string>& endpoints,
                                          const std::string& prefix);

// Its database, below the directory that it was started with.
std::string StoreFile(const std::string& directory);

// The echo, which answers with the bytes of `answer_file`.
absl::StatusOr<Server> StartEcho(const std::string& program, const std::string& directory,
                                 const std::string& answer_file);

// A cluster of one etcd, as durable as it is by default, its data below `directory`. Started again
// with the same directory, it goes on with them.
absl::StatusOr<Server> StartEtcd(const std::string& program, const std::string& directory);

// The status with the end of a server's log.
absl::Status WithLog(const absl::Status& status, const std::string& log);

// Whatever lies there; what cannot be removed stays.
void RemoveDirectory(const std::string& directory);

// FAILED_PRECONDITION: what lies in `directory` lies in memory, so nothing there is ever durable.
absl::Status CheckOnDisk(const std::string& directory);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_SERVERS_H_
