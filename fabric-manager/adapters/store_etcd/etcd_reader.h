// Reads of etcd that are tried again until they are answered.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_READER_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_READER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "etcd/v3/kv.pb.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "proto/support/loop.h"

namespace cxlpool::fm {

// One thread, except Cancel. A read that is not answered within kPatience is UNAVAILABLE/STORE_IO;
// one of a revision that etcd has forgotten is OUT_OF_RANGE.
class EtcdReader {
 public:
  // For how long an answer is waited for.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  // The client outlives it.
  EtcdReader(const EtcdOptions& options, EtcdClient& client);

  // Any thread. A read waits no longer than the call that is under way: CANCELLED.
  void Cancel() { cancelled_ = true; }
  bool is_cancelled() const { return cancelled_; }

  // `may_shrink`: a page that takes too long is the caller's to make smaller (DEADLINE_EXCEEDED),
  // as one that is too large is in any case (RESOURCE_EXHAUSTED).
  absl::StatusOr<etcdserverpb::RangeResponse> Read(const etcdserverpb::RangeRequest& request,
                                                   bool may_shrink = false) const;
  // One key. 0: as of now.
  absl::StatusOr<etcdserverpb::RangeResponse> ReadOne(const std::string& key,
                                                      int64_t revision = 0) const;
  // Empty: it is not there.
  absl::StatusOr<std::string> ValueOf(const std::string& key) const;
  // Every key from `from` up to `end`, as of one revision, in pages of `limit`.
  absl::Status ReadAll(
      std::string from, const std::string& end, int64_t revision, int limit,
      const std::function<absl::Status(const etcdserverpb::KeyValue&)>& each) const;

  absl::Status NoAnswer(const absl::Status& why) const;

 private:
  const bool has_tls_;
  EtcdClient& client_;
  const SystemClock clock_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_READER_H_
