// Calls of etcd's key-value API, one at a time, to whichever member answers; by connections that no
// other client has.
//
// A call that failed may have been carried out: only the answer of a transaction says what is so.
// After a failure the next call goes to the next member. gRPC's own retries are off.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_CLIENT_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "etcd/v3/kv.pb.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"

namespace cxlpool::fm {

// One thread, but for answered.
class EtcdClient {
 public:
  // INVALID_ARGUMENT/BAD_CONFIG: no endpoint. FAILED_PRECONDITION/TLS_FILE: a file cannot be read.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Make(EtcdOptions options);
  ~EtcdClient();

  // A status that is not OK is etcd's own or gRPC's, with its code.
  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request);
  absl::Status Compact(int64_t revision);

  // How many of these calls etcd has answered.
  uint64_t answered() const;

  // Asks each member whether it takes part, by a read of `key`, and does not wait for the answers:
  // `meters`, which outlives this, is told of each on a thread of gRPC's, of one that does not
  // answer after some seconds. A member that is cut off from the others does not take part.
  void AskMembers(const std::string& key, EtcdMeters* meters);

 private:
  class Members;
  explicit EtcdClient(std::unique_ptr<Members> members);

  const std::unique_ptr<Members> members_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_ETCD_ETCD_CLIENT_H_
