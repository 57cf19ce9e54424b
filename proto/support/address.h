// Addresses as configurations and the command line give them: "HOST:PORT", "[IPV6]:PORT" or
// "unix:PATH".
#ifndef CXLPOOL_PROTO_SUPPORT_ADDRESS_H_
#define CXLPOOL_PROTO_SUPPORT_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool {

struct Address {
  std::string path;  // Of a Unix socket; empty: it is host and port.
  std::string host;  // Without brackets.
  int port = 0;

  bool is_unix() const { return !path.empty(); }
  // A Unix socket, an IP address of this machine's loopback, or "localhost".
  bool is_local() const;
};

// INVALID_ARGUMENT/BAD_ADDRESS, with what is wrong: no port, a port that is not 1 to 65535, a bare
// IPv6 address, a socket path that is not absolute or too long, a name that can be none.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// Where the managers of one pool are: one address, or several with commas between them, blanks
// around them left out. INVALID_ARGUMENT/BAD_ADDRESS: one is none, stands twice or is missing
// beside a comma, or there are more than kMaxAddresses.
inline constexpr size_t kMaxAddresses = 16;
absl::StatusOr<std::vector<std::string>> ParseAddressList(absl::string_view text);

// OK if `address` may be used without TLS: it is local. Port 0 will do: tests listen so.
// FAILED_PRECONDITION/INSECURE_ADDRESS otherwise.
absl::Status CheckInsecureAddress(const std::string& address);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_ADDRESS_H_
