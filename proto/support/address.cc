#include "proto/support/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

constexpr size_t kMaxSocketPath = 107;  // sockaddr_un, with the NUL.
constexpr size_t kMaxHostName = 253;    // RFC 1035.
constexpr char kForms[] = "write HOST:PORT with a port from 1 to 65535, [IPV6]:PORT, or unix:/PATH";

absl::Status Bad(absl::string_view text, absl::string_view what) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
                absl::StrCat("\"", text, "\" is no address: ", what), kForms);
}

bool IsIpv6(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Underscores are in no host name of the standard, and in many that are in use.
bool IsHostName(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxHostName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
                  c == '_';
         });
}

absl::StatusOr<Address> ParseUnix(absl::string_view text, absl::string_view path) {
  if (!absl::StartsWith(path, "/")) return Bad(text, "the path of its socket is not absolute");
  if (path.size() > kMaxSocketPath) {
    return Bad(text, absl::StrCat("the path of a socket has at most ", kMaxSocketPath, " bytes"));
  }
  Address address;
  address.path = std::string(path);
  return address;
}

// With a port of `least` to 65535. The last colon is the port's: an IPv6 address has others, so it
// has to be in brackets.
absl::StatusOr<Address> ParseHostAndPort(absl::string_view text, int least) {
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  if (colon == absl::string_view::npos || (bracket != absl::string_view::npos && bracket > colon)) {
    return Bad(text, "it has no port");
  }
  Address address;
  address.host = std::string(text.substr(0, colon));
  const bool bracketed =
      address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (bracketed ? !IsIpv6(address.host) : !IsHostName(address.host)) {
    return Bad(text, !bracketed && absl::StrContains(address.host, ':')
                         ? "an IPv6 address stands in brackets, and its port behind them"
                         : "what stands before the port is neither a host name nor an IP address");
  }
  const absl::string_view port = text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(port, &address.port) || address.port < least ||
      address.port > 65535) {
    return Bad(text, port.empty() ? "it has no port"
                                  : absl::StrCat("its port \"", port, "\" is not 1 to 65535"));
  }
  return address;
}

}  // namespace

// Any 127.x.x.x and ::1. Of names only "localhost": others would have to be looked up.
bool Address::is_local() const {
  if (is_unix()) return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  absl::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:")) return ParseUnix(text, path);
  return ParseHostAndPort(text, 1);
}

// One address is a list of one, and its error then says what is wrong with it, not with the list.
absl::StatusOr<std::vector<std::string>> ParseAddressList(absl::string_view text) {
  constexpr char kList[] = "write them as in fm-1:7600,fm-2:7600, each once";
  const auto wrong = [&](absl::string_view what) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
                  absl::StrCat("\"", text, "\" is no list of addresses: ", what), kList);
  };
  std::vector<std::string> addresses;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    std::string address(absl::StripAsciiWhitespace(part));
    if (address.empty() && absl::StrContains(text, ',')) {
      return wrong("there is none beside a comma");
    }
    if (const auto parsed = ParseAddress(address); !parsed.ok()) return parsed.status();
    if (std::find(addresses.begin(), addresses.end(), address) != addresses.end()) {
      return wrong(absl::StrCat(address, " stands twice"));
    }
    addresses.push_back(std::move(address));
  }
  if (addresses.size() > kMaxAddresses) {
    return wrong(
        absl::StrCat("it has ", addresses.size(), ", and at most ", kMaxAddresses, " are taken"));
  }
  return addresses;
}

// Port 0 is fine here: it lets the kernel choose one.
absl::Status CheckInsecureAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:") && address.size() > 5) return absl::OkStatus();
  const absl::StatusOr<Address> parsed = ParseHostAndPort(address, 0);
  if (parsed.ok() && parsed->is_local()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "INSECURE_ADDRESS",
                absl::StrCat("\"", address,
                             "\" may not be used without TLS: it is neither unix:PATH nor a "
                             "loopback address with a port"),
                "configure tls, or use unix:PATH or 127.0.0.1:PORT");
}

}  // namespace cxlpool
