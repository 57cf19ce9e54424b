// What is wrong or waits, as text for people. Pure.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_FINDINGS_H_
#define CXLPOOL_TOOLS_CLI_RENDER_FINDINGS_H_

#include <string>

#include "absl/time/time.h"
#include "cxlpool/v1/inventory_service.pb.h"

namespace cxlpool::cli {

//   WRONG  regions/kv RELEASE_BLOCKED for 3m12s
//          host host-a cannot let go of it (HOLDERS: 1 process); it is held by pid 812 (python3) of
//          user 1000 waits for hosts/host-a run: cxlpool region holders kv
//               on host-a: end those processes
// An empty line between two of them. Ends with a newline.
std::string FindingsText(const v1::ExplainResponse& explained, absl::Time now);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_FINDINGS_H_
