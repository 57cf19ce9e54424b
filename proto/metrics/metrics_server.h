// A program's metrics, served as its configuration says, with its own certificates.
#ifndef CXLPOOL_PROTO_METRICS_METRICS_SERVER_H_
#define CXLPOOL_PROTO_METRICS_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/metrics/metrics_listener.h"
#include "proto/metrics/metrics_settings.h"
#include "proto/support/certificate.h"
#include "proto/support/tls.h"

namespace cxlpool::metrics {

// Null where the settings are off. With TLS operators read, by a certificate that `believed` does
// not refuse; nobody else, since metrics name every host and tenant. Errors as of
// MetricsListener::Start.
absl::StatusOr<std::unique_ptr<MetricsListener>> ServeMetrics(
    const MetricsSettings& settings, std::shared_ptr<TlsSource> tls,
    std::function<std::string()> text,
    std::function<bool(const CertificateFacts&)> believed = nullptr);

}  // namespace cxlpool::metrics

#endif  // CXLPOOL_PROTO_METRICS_METRICS_SERVER_H_
