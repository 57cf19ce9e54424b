// Which processes have a file open or mapped: the emulated answer to "who holds the DAX device".
#ifndef CXLPOOL_HOST_AGENT_SUPPORT_FILE_HOLDERS_H_
#define CXLPOOL_HOST_AGENT_SUPPORT_FILE_HOLDERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/ports/process_watch.h"

namespace cxlpool::agent {

// Looks through /proc/*/fd and /proc/*/maps for `path`'s device and inode. The calling process is
// left out; at most `limit` are named. Of a process whose main thread has ended the other threads
// are looked at. A process that this user may not look into is not seen.
// No such file: none. UNAVAILABLE: /proc cannot be read.
absl::StatusOr<std::vector<ProcessId>> FindFileHolders(const std::string& path, size_t limit);

// Those that have mapped a byte of [offset, offset + length) of the file.
absl::StatusOr<std::vector<ProcessId>> FindFileMappers(const std::string& path,
                                                       uint64_t offset_bytes, uint64_t length_bytes,
                                                       size_t limit);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SUPPORT_FILE_HOLDERS_H_
