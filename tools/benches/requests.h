// The requests that benches send, as a Load takes them: serialised, with a kMarker wherever each
// call needs a number of its own.
//
// Pure functions, any thread.
#ifndef CXLPOOL_TOOLS_BENCHES_REQUESTS_H_
#define CXLPOOL_TOOLS_BENCHES_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cxlpool::bench {

inline constexpr char kAllocate[] = "/cxlpool.v1.PoolService/AllocateRegion";
inline constexpr char kBatchAllocate[] = "/cxlpool.v1.PoolService/BatchAllocateRegions";
inline constexpr char kGetCapacity[] = "/cxlpool.v1.PoolService/GetCapacity";
inline constexpr char kEtcdPut[] = "/etcdserverpb.KV/Put";
inline constexpr char kEtcdTxn[] = "/etcdserverpb.KV/Txn";
inline constexpr char kEtcdRange[] = "/etcdserverpb.KV/Range";

// Stands for a number of 12 hexadecimal digits.
inline constexpr char kMarker[] = "@@@@@@@@@@@@";

// One caller's request, with numbers that no other call has.
class NumberedRequest {
 public:
  // `bytes`: with markers. `caller`: less than 4096.
  NumberedRequest(std::string bytes, uint64_t caller);

  // Valid until the next call.
  const std::string& Next();

 private:
  std::string bytes_;
  std::vector<size_t> marks_;
  uint64_t next_;
};

// Of one granule, without a host. `seed` differs for each load on one manager.
std::string AllocateRequest(uint64_t seed);
std::string BatchAllocateRequest(uint64_t seed, int batch);

// One put, and a transaction of `batch` puts, each with a key of its own.
std::string EtcdPutRequest(absl::string_view value);
std::string EtcdTxnRequest(absl::string_view value, int batch);
// A transaction of one put.
std::string EtcdTxnOfOne(absl::string_view value);
// The first key, and how many there are, which etcd counts for every range.
std::string EtcdCountRequest();

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_REQUESTS_H_
