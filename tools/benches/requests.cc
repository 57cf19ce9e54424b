#include "tools/benches/requests.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "etcd/v3/kv.pb.h"
#include "tools/benches/servers.h"

namespace cxlpool::bench {
namespace {

constexpr size_t kDigits = sizeof(kMarker) - 1;
constexpr int kCallerShift = 36;  // Of 48 bits: 12 for the caller, the rest count.

v1::AllocateRegionRequest OneRequest(uint64_t seed) {
  v1::AllocateRegionRequest request;
  // In the form of a UUID; its last part is the call's own.
  request.set_request_id(absl::StrFormat("%08x-0000-4000-8000-%s", seed & 0xffffffff, kMarker));
  request.set_size_bytes(kGranuleBytes);
  return request;
}

etcdserverpb::PutRequest OnePut(absl::string_view value) {
  etcdserverpb::PutRequest put;
  put.set_key(absl::StrCat("records/", kMarker));
  put.set_value(value.data(), value.size());
  return put;
}

}  // namespace

NumberedRequest::NumberedRequest(std::string bytes, uint64_t caller)
    : bytes_(std::move(bytes)), next_(caller << kCallerShift) {
  for (size_t at = bytes_.find(kMarker); at != std::string::npos;
       at = bytes_.find(kMarker, at + kDigits)) {
    marks_.push_back(at);
  }
}

const std::string& NumberedRequest::Next() {
  for (size_t mark : marks_) {
    uint64_t rest = next_++;
    for (size_t digit = kDigits; digit-- > 0; rest >>= 4) {
      bytes_[mark + digit] = "0123456789abcdef"[rest & 15];
    }
  }
  return bytes_;
}

std::string AllocateRequest(uint64_t seed) { return OneRequest(seed).SerializeAsString(); }

std::string BatchAllocateRequest(uint64_t seed, int batch) {
  v1::BatchAllocateRegionsRequest request;
  for (int i = 0; i < batch; ++i) *request.add_requests() = OneRequest(seed);
  return request.SerializeAsString();
}

std::string EtcdPutRequest(absl::string_view value) { return OnePut(value).SerializeAsString(); }

std::string EtcdTxnRequest(absl::string_view value, int batch) {
  etcdserverpb::TxnRequest txn;
  for (int i = 0; i < batch; ++i) *txn.add_success()->mutable_request_put() = OnePut(value);
  return txn.SerializeAsString();
}

std::string EtcdTxnOfOne(absl::string_view value) {
  etcdserverpb::TxnRequest txn;
  *txn.add_success()->mutable_request_put() = OnePut(value);
  return txn.SerializeAsString();
}

std::string EtcdCountRequest() {
  etcdserverpb::RangeRequest range;
  range.set_key("records/");
  range.set_range_end("records0");
  range.set_limit(1);
  range.set_keys_only(true);
  return range.SerializeAsString();
}

}  // namespace cxlpool::bench
