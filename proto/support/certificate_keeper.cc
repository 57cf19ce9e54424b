#include "proto/support/certificate_keeper.h"

#include <utility>

#include "proto/support/log.h"

namespace cxlpool {
namespace {

constexpr absl::Duration kWarnEvery = absl::Hours(24);

}  // namespace

CertificateKeeper::CertificateKeeper(std::string subject, std::shared_ptr<TlsSource> source,
                                     std::function<absl::Time()> now,
                                     std::vector<CertificateEnd> others)
    : subject_(std::move(subject)),
      source_(std::move(source)),
      now_(std::move(now)),
      others_(std::move(others)) {}

bool CertificateKeeper::Reload() {
  if (source_ == nullptr) {
    LogInfo(subject_, "asked to reload: there is no [tls], so nothing is read again");
    return true;
  }
  if (absl::Status status = source_->Reload(); !status.ok()) {
    LogError(subject_, "asked to reload: ", status.message(),
             "; the certificates in use stay in use");
    return false;
  }
  const std::shared_ptr<const TlsMaterial> material = source_->current();
  LogInfo(subject_, "certificates read again: ", material->cert_file, ", serial ",
          material->leaf.serial, ", ", EndText(material->leaf, now_()));
  warned_ = absl::InfinitePast();
  return true;
}

void CertificateKeeper::Warn() {
  // A clock that was set back must not keep it quiet.
  const absl::Time now = now_();
  if (now >= warned_ && now < warned_ + kWarnEvery) return;
  warned_ = now;
  for (const std::string& warning : ExpiryWarnings(EndsOf(source_.get(), others_), now)) {
    LogWarning(subject_, warning);
  }
}

}  // namespace cxlpool
