// The file of `region allocate --batch`: a request a line, as JSON, in the API's words or in those
// of the command line's options. Empty lines, and those that begin with "#", are nothing.
#ifndef CXLPOOL_TOOLS_CLI_BATCH_FILE_H_
#define CXLPOOL_TOOLS_CLI_BATCH_FILE_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::cli {

// Any bytes. INVALID_ARGUMENT/BAD_BATCH_FILE names `file` and the line. Request ids are as they
// stand there.
absl::StatusOr<std::vector<v1::AllocateRegionRequest>> ReadBatchFile(std::istream& in,
                                                                     const std::string& file);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_BATCH_FILE_H_
