// Where the agent is, as ConnectOptions and the environment say.
//
// Pure functions of their arguments and of CXLPOOL_SOCKET.
#ifndef CXLPOOL_LIBPOOL_SRC_CONNECT_OPTIONS_H_
#define CXLPOOL_LIBPOOL_SRC_CONNECT_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "cxlpool/client.h"

namespace cxlpool::libpool {

std::string SocketPath(const ConnectOptions& options);

// INVALID_ARGUMENT/BAD_ARGUMENT: a timeout that is none.
absl::Status CheckTimeout(const ConnectOptions& options);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_CONNECT_OPTIONS_H_
