// What tells two payloads under one request_id apart: a number made of every field of the request.
//
// The same for the same call, whether its defaults are written out or not. It is stored, so it is
// the same in every release for the same fields: FNV-1a, 64 bits, over the canonical request in
// protobuf's wire format. Pure; any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_REQUEST_HASH_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_REQUEST_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::fm {

inline constexpr uint64_t kHashBasis = 0xcbf29ce484222325;

inline uint64_t HashBytes(absl::string_view bytes, uint64_t hash = kHashBasis) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

uint64_t PayloadHash(const v1::AllocateRegionRequest& request);
uint64_t PayloadHash(const v1::AttachRegionRequest& request);
uint64_t PayloadHash(const v1::DetachRegionRequest& request);
uint64_t PayloadHash(const v1::ReleaseRegionRequest& request);
uint64_t PayloadHash(const v1::ResizeRegionRequest& request);
uint64_t PayloadHash(const v1::RenameRegionRequest& request);
uint64_t PayloadHash(const v1::RenewRegionRequest& request);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_REQUEST_HASH_H_
