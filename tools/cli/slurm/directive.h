// The line of a Slurm job that asks for memory of the pool:
//
//   #CXLPOOL pool=cxl capacity=64GiB [per=job|node] [sharing=SHARING] [mode=MODE]
//
// Slurm reads pool= and capacity= of it by rules of its own, and counts by what it read. So what
// the two would read differently is refused: sizes with a fraction, and KB, MB, ..., which are
// powers of 1000 there and powers of 1024 here.
//
// Pure functions, any thread.
#ifndef CXLPOOL_TOOLS_CLI_SLURM_DIRECTIVE_H_
#define CXLPOOL_TOOLS_CLI_SLURM_DIRECTIVE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cxlpool/v1/resources.pb.h"

namespace cxlpool::cli {

struct MemoryRequest {
  std::string pool;
  uint64_t capacity_bytes = 0;
  bool per_node = false;  // A Region of that size for each node, in place of one for all.
  v1::Sharing sharing = v1::SHARING_UNSPECIFIED;  // As many hosts as the job has nodes.
  v1::AttachmentMode mode = v1::DEVDAX;
};

// What the first lines of a job's script ask for: as Slurm does it looks at the comments before the
// first command, puts lines together that end with a backslash, and adds --bb to them. Nothing: it
// asks for no memory. INVALID_ARGUMENT/BAD_DIRECTIVE names the word.
absl::StatusOr<std::optional<MemoryRequest>> ReadDirective(absl::string_view script);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SLURM_DIRECTIVE_H_
