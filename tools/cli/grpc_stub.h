// The manager over gRPC. The only part of the command that knows gRPC.
#ifndef CXLPOOL_TOOLS_CLI_GRPC_STUB_H_
#define CXLPOOL_TOOLS_CLI_GRPC_STUB_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/cli/manager_stub.h"
#include "tools/cli/settings.h"

namespace cxlpool::cli {

// Checks the TLS files (or that the addresses may go without) and makes a channel to each manager;
// dials with the first call. `warnings`: remarks about certificates that end soon. Errors as
// LoadTls (proto/support/tls.h), ReadTokenFile, ParseAddressList and CheckInsecureAddress
// (address.h).
absl::StatusOr<std::unique_ptr<ManagerStub>> MakeGrpcStub(
    const ConnectionSettings& settings, std::vector<std::string>* warnings = nullptr);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_GRPC_STUB_H_
