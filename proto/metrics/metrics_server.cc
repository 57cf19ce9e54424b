#include "proto/metrics/metrics_server.h"

#include <utility>

#include "proto/support/log.h"
#include "proto/support/peer_identity.h"

namespace cxlpool::metrics {

absl::StatusOr<std::unique_ptr<MetricsListener>> ServeMetrics(
    const MetricsSettings& settings, std::shared_ptr<TlsSource> tls,
    std::function<std::string()> text, std::function<bool(const CertificateFacts&)> believed) {
  if (!settings.on()) return nullptr;
  MetricsListener::Options options{
      .host = settings.listen.host, .port = settings.listen.port, .text = std::move(text)};
  if (settings.tls()) {
    options.tls = [tls = std::move(tls)] {
      const auto material = tls->current();
      return TlsFacts{.ca = material->ca, .cert = material->cert, .key = material->key};
    };
    options.may_read = [believed = std::move(believed)](const CertificateFacts& facts) {
      return facts.uris.size() == 1 && ParseIdentity(facts.uris[0]).role == Role::kOperator &&
             (believed == nullptr || believed(facts));
    };
  }
  auto listener = MetricsListener::Start(std::move(options));
  if (listener.ok()) {
    LogInfo("metrics", "served on ", settings.listen.host, ":", settings.listen.port,
            settings.tls() ? "" : ", without TLS");
  }
  return listener;
}

}  // namespace cxlpool::metrics
