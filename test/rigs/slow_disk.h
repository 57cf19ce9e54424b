// Limits how often one process may write to its disk, as long as this is there.
#ifndef CXLPOOL_TEST_RIGS_SLOW_DISK_H_
#define CXLPOOL_TEST_RIGS_SLOW_DISK_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace cxlpool {

class SlowDisk {
 public:
  // Throttles what `pid` writes to the disk that `directory` lies on, by a control group of the
  // kernel. FAILED_PRECONDITION: the kernel has no such control group, or `directory` is on no
  // disk.
  static absl::StatusOr<std::unique_ptr<SlowDisk>> Make(pid_t pid, const std::string& directory,
                                                        int writes_a_second);
  ~SlowDisk();  // The process writes as before.

  // How often it wrote so far.
  uint64_t writes() const;

 private:
  SlowDisk(pid_t pid, std::string group, std::string before, std::string disk)
      : pid_(pid), group_(std::move(group)), before_(std::move(before)), disk_(std::move(disk)) {}

  const pid_t pid_;
  const std::string group_;   // Its directory.
  const std::string before_;  // Where the process was.
  const std::string disk_;    // MAJOR:MINOR.
};

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_RIGS_SLOW_DISK_H_
