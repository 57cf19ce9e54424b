// What a daemon does with its certificates while it runs: reads them again on a signal (SIGHUP),
// and warns of their end in its log, once a day.
#ifndef CXLPOOL_PROTO_SUPPORT_CERTIFICATE_KEEPER_H_
#define CXLPOOL_PROTO_SUPPORT_CERTIFICATE_KEEPER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/support/tls.h"

namespace cxlpool {

// Not thread-safe: the thread that waits for signals has it.
class CertificateKeeper {
 public:
  // `source` may be null: no TLS. Log lines come under `subject`; `now` is for tests. `others`: of
  // files that are read once, at the start; it warns of their end, too.
  CertificateKeeper(std::string subject, std::shared_ptr<TlsSource> source,
                    std::function<absl::Time()> now = absl::Now,
                    std::vector<CertificateEnd> others = {});

  // Reads the files again, and logs what came of it. False: they will not do, and what
  // was in use stays in use.
  bool Reload();

  // Logs what ends soon or has ended, unless it did so within a day. Call it at least every hour.
  void Warn();

 private:
  const std::string subject_;
  const std::shared_ptr<TlsSource> source_;
  const std::function<absl::Time()> now_;
  const std::vector<CertificateEnd> others_;
  absl::Time warned_ = absl::InfinitePast();
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_CERTIFICATE_KEEPER_H_
