// The agent's certificate, key and authorities, as its configuration names them. The daemon, its
// --check-config and `cxlpool-agent check` ask here, so that each says what the others would.
#ifndef CXLPOOL_HOST_AGENT_CREDENTIALS_H_
#define CXLPOOL_HOST_AGENT_CREDENTIALS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "host-agent/config.h"
#include "proto/support/tls.h"

namespace cxlpool::agent {

// Null without [tls]. Errors as LoadTls, behind the file, line and key of the configuration: the
// certificate has to be this host's.
absl::StatusOr<std::shared_ptr<TlsSource>> LoadTlsOf(const AgentConfig& config);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_CREDENTIALS_H_
