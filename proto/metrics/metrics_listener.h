// Where a program lets Prometheus read its metrics: GET /metrics over HTTP/1.1, and nothing else.
//
// The listener is the program's own, apart from gRPC's: one thread, at most kMaxConnections at
// once, one request a connection, each with a deadline for its head and one for its answer. One
// more ends the one that has longest not sent its request; where all are being answered, it is
// closed at once. So whoever says nothing keeps nobody out, and whoever reads slowly costs a place
// among four.
//
// Without TLS only on a loopback address: every user of this machine may read there. With TLS
// the client shows a certificate of the pool's authority, and the program says whose may read.
#ifndef CXLPOOL_PROTO_METRICS_METRICS_LISTENER_H_
#define CXLPOOL_PROTO_METRICS_METRICS_LISTENER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/certificate.h"

namespace cxlpool::metrics {

// What TLS is done with: PEM.
struct TlsFacts {
  std::string ca, cert, key;
};

class MetricsListener {
 public:
  static constexpr int kMaxConnections = 4;
  static constexpr int kMaxHeadBytes = 4096;

  struct Options {
    std::string host;  // An IP address, or "localhost".
    int port = 0;      // 0: the kernel chooses.
    // The metrics, made for each request on the listener's thread.
    std::function<std::string()> text;
    // What a handshake that begins now uses; null: no TLS.
    std::function<TlsFacts()> tls = nullptr;
    // Whether the owner of this certificate may read. Not asked without TLS.
    std::function<bool(const CertificateFacts&)> may_read = nullptr;
    absl::Duration read_time = absl::Seconds(2);    // For the handshake and the request's head.
    absl::Duration write_time = absl::Seconds(10);  // For the answer.
  };

  // Listens, and answers from then on. UNAVAILABLE/CANNOT_LISTEN names the address.
  static absl::StatusOr<std::unique_ptr<MetricsListener>> Start(Options options);

  // Ends what is under way.
  virtual ~MetricsListener() = default;

  virtual int port() const = 0;
};

}  // namespace cxlpool::metrics

#endif  // CXLPOOL_PROTO_METRICS_METRICS_LISTENER_H_
