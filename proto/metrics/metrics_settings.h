// Where a program's configuration says that its metrics can be read: [metrics].
#ifndef CXLPOOL_PROTO_METRICS_METRICS_SETTINGS_H_
#define CXLPOOL_PROTO_METRICS_METRICS_SETTINGS_H_

#include "proto/support/address.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::metrics {

// Of metrics.listen. A loopback address is served without TLS, every other with the program's own
// certificates.
struct MetricsSettings {
  Address listen;  // Port 0: nobody can read them.
  bool on() const { return listen.port != 0; }
  bool tls() const { return !listen.is_local(); }
};

// Reads [metrics] of `toml`. A mistake is the reader's, which Finish answers: among them an address
// that needs TLS where the configuration has none (`has_tls`).
MetricsSettings ReadMetricsSettings(TomlReader& toml, bool has_tls);

}  // namespace cxlpool::metrics

#endif  // CXLPOOL_PROTO_METRICS_METRICS_SETTINGS_H_
