#include "fabric-manager/adapters/store_etcd/etcd_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_etcd/etcd_txn.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using etcdserverpb::KeyValue;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;

}  // namespace

EtcdReader::EtcdReader(const EtcdOptions& options, EtcdClient& client)
    : has_tls_(!options.ca.empty()), client_(client) {}

// gRPC does not say reliably that a handshake has failed: the certificates are named in any case.
absl::Status EtcdReader::NoAnswer(const absl::Status& why) const {
  return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                absl::StrCat("etcd does not answer: ", why.message()),
                !has_tls_
                    ? "see that most of its members run, and that they can be reached from here"
                    : "see that most of its members run, that store.ca is the authority of their "
                      "certificates, and that they accept the one in store.cert");
}

absl::StatusOr<RangeResponse> EtcdReader::Read(const RangeRequest& request, bool may_shrink) const {
  const absl::Duration deadline = clock_.Elapsed() + kPatience;
  while (true) {
    if (cancelled_) return EtcdClosing();
    auto answer = client_.Range(request);
    if (answer.ok() || absl::IsInvalidArgument(answer.status())) return answer;
    // The revision is older than etcd remembers.
    if (absl::IsOutOfRange(answer.status())) return answer;
    // The answer is too large; or etcd has too much to do, which a smaller page is no worse for.
    if (absl::IsResourceExhausted(answer.status()) && request.limit() > 1) return answer;
    if (absl::IsDeadlineExceeded(answer.status()) && may_shrink && request.limit() > 1) {
      return answer;
    }
    if (clock_.Elapsed() > deadline) return NoAnswer(answer.status());
    absl::SleepFor(kEtcdPause);
  }
}

absl::StatusOr<RangeResponse> EtcdReader::ReadOne(const std::string& key, int64_t revision) const {
  RangeRequest request;
  request.set_key(key);
  request.set_revision(revision);
  return Read(request);
}

absl::StatusOr<std::string> EtcdReader::ValueOf(const std::string& key) const {
  const auto read = ReadOne(key);
  if (!read.ok()) return read.status();
  return read->kvs().empty() ? std::string() : read->kvs(0).value();
}

absl::Status EtcdReader::ReadAll(std::string from, const std::string& end, int64_t revision,
                                 int limit,
                                 const std::function<absl::Status(const KeyValue&)>& each) const {
  for (int most = limit;;) {
    RangeRequest request;
    request.set_key(from);
    request.set_range_end(end);
    request.set_limit(limit);
    request.set_revision(revision);
    const auto page = Read(request, /*may_shrink=*/true);
    if (absl::IsResourceExhausted(page.status()) || absl::IsDeadlineExceeded(page.status())) {
      limit = std::max(limit / 8, 1);
      // What took too long may have been too much, or etcd may have had no leader for a moment.
      if (absl::IsResourceExhausted(page.status())) most = limit;
      continue;
    }
    if (!page.ok()) return page.status();
    limit = std::min(2 * limit, most);
    for (const KeyValue& row : page->kvs()) {
      if (absl::Status status = each(row); !status.ok()) return status;
    }
    if (!page->more()) return absl::OkStatus();
    from = page->kvs().rbegin()->key() + '\0';
  }
}

}  // namespace cxlpool::fm
