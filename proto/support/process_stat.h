// When a process started, in clock ticks after boot: with its pid that names one process for as
// long as the boot lasts (proc(5)).
#ifndef CXLPOOL_PROTO_SUPPORT_PROCESS_STAT_H_
#define CXLPOOL_PROTO_SUPPORT_PROCESS_STAT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool {

// Field 22 of the text of /proc/PID/stat. The command's name in it may hold spaces and brackets.
absl::StatusOr<uint64_t> ParseStartTicks(absl::string_view stat);

// When the process that has this id now started. 0: there is none.
uint64_t StartTicksOf(uint32_t pid);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_PROCESS_STAT_H_
