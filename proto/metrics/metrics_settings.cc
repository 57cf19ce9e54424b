#include "proto/metrics/metrics_settings.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace cxlpool::metrics {
namespace {

bool IsIpAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

}  // namespace

MetricsSettings ReadMetricsSettings(TomlReader& toml, bool has_tls) {
  MetricsSettings settings;
  TomlReader table = toml.Table("metrics");
  if (!table.Has("listen")) return settings;
  const std::string text = table.AddressText("listen", false);
  const auto address = ParseAddress(text);
  if (!address.ok()) return settings;  // AddressText has said so.
  if (address->host != "localhost" && !IsIpAddress(address->host)) {
    table.Fail("listen", absl::StrCat("is wrong: \"", text, "\" is no IP address and port"),
               "write 127.0.0.1:PORT, or the address of this machine that Prometheus reads from");
  } else if (!address->is_local() && !has_tls) {
    table.Fail("listen",
               absl::StrCat("is wrong: \"", text,
                            "\" is no loopback address, so it needs TLS, and there is no [tls]"),
               "add [tls] with ca, cert and key, or write 127.0.0.1:PORT");
  } else {
    settings.listen = *address;
  }
  return settings;
}

}  // namespace cxlpool::metrics
