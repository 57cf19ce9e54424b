#include "host-agent/credentials.h"

#include <string>

namespace cxlpool::agent {

absl::StatusOr<std::shared_ptr<TlsSource>> LoadTlsOf(const AgentConfig& config) {
  if (!config.tls.has_value()) return nullptr;
  const AgentConfig::Tls& tls = *config.tls;
  const TlsFiles files = {.ca = tls.ca, .cert = tls.cert, .key = tls.key};
  auto source = TlsSource::Load(files, CertificateUse::Agent(config.host));
  if (source.ok()) return source;
  return TlsErrorAt(source.status(), files, config.where);
}

}  // namespace cxlpool::agent
