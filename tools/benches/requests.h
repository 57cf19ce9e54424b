// The requests that benches send, as a Load takes them: serialised, with a kMarker wherever each
// call needs a number of its own.
//
// Pure functions, any thread.
#ifndef CXLPOOL_TOOLS_BENCHES_REQUESTS_H_
#define CXLPOOL_TOOLS_BENCHES_REQUESTS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace cxlpool::bench {

inline constexpr char kAllocate[] = "/cxlpool.v1.PoolService/AllocateRegion";
inline constexpr char kBatchAllocate[] = "/cxlpool.v1.PoolService/BatchAllocateRegions";
inline constexpr char kEtcdPut[] = "/etcdserverpb.KV/Put";
inline constexpr char kEtcdTxn[] = "/etcdserverpb.KV/Txn";
inline constexpr char kEtcdRange[] = "/etcdserverpb.KV/Range";

// Of one granule, without a host. `seed` differs for each load on one manager.
std::string AllocateRequest(uint64_t seed);
std::string BatchAllocateRequest(uint64_t seed, int batch);

// One put, and a transaction of `batch` puts, each with a key of its own.
std::string EtcdPutRequest(absl::string_view value);
std::string EtcdTxnRequest(absl::string_view value, int batch);
// How many keys there are.
std::string EtcdCountRequest();

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_REQUESTS_H_
