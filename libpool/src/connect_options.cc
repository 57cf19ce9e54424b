#include "libpool/src/connect_options.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "libpool/src/errors.h"

namespace cxlpool::libpool {
namespace {

constexpr char kDefaultSocket[] = "/run/cxlpool/agent.sock";
constexpr char kSocketVariable[] = "CXLPOOL_SOCKET";
constexpr absl::Duration kLongestTimeout = absl::Hours(1);

}  // namespace

std::string SocketPath(const ConnectOptions& options) {
  if (!options.socket_path.empty()) return options.socket_path;
  const char* path = std::getenv(kSocketVariable);
  return path != nullptr && *path != '\0' ? path : kDefaultSocket;
}

absl::Status CheckTimeout(const ConnectOptions& options) {
  if (options.timeout > absl::ZeroDuration() && options.timeout <= kLongestTimeout) {
    return absl::OkStatus();
  }
  return BadArgument(absl::StrCat("timeout is ", absl::FormatDuration(options.timeout)),
                     "give more than 0 and at most an hour");
}

}  // namespace cxlpool::libpool
