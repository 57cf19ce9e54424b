// The file of `region allocate --batch`.

#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "test/fuzz/fuzz_target.h"
#include "tools/cli/batch_file.h"

namespace cxlpool::fuzz {
namespace {

// protobuf reads the JSON: what it makes of it can be sent.
CXLPOOL_FUZZ(batch_file) {
  std::istringstream in(bytes);
  const auto requests = cli::ReadBatchFile(in, "x.jsonl");
  if (!requests.ok()) {
    Require(absl::StrContains(requests.status().message(), "x.jsonl"));
    return;
  }
  for (const v1::AllocateRegionRequest& request : *requests) {
    v1::AllocateRegionRequest again;
    Require(again.ParseFromString(request.SerializeAsString()));
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
