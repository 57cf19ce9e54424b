#include "fabric-manager/rpc/request_hash.h"

#include <array>
#include <string>

#include "proto/support/in_place.h"

namespace cxlpool::fm {
namespace {

// It is made of the request in protobuf's wire format: fields by ascending number, and last those
// of a later release, which count too. No request has a map, so the same fields always give the
// same bytes.
template <typename Message>
uint64_t HashWhole(const Message& message) {
  std::array<char, 512> buffer;
  const size_t size = message.ByteSizeLong();
  if (size > buffer.size()) return HashBytes(message.SerializeAsString());
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(buffer.data()));
  return HashBytes({buffer.data(), size});
}

// The first release had these defaults and stored hashes with them written out. Defaults that came
// later are left out instead, because requests of the first release do not have their fields.
template <typename Message>
void WriteOutModeAndAccess(Message& request) {
  if (request.mode() == 0) request.set_mode(v1::DEVDAX);
  if (request.access() == 0) request.set_access(v1::READ_WRITE);
  if (request.zone() == v1::MOVABLE) request.clear_zone();
}

}  // namespace

uint64_t PayloadHash(const v1::AllocateRegionRequest& given) {
  InPlace<v1::AllocateRegionRequest> canonical;
  v1::AllocateRegionRequest& request = *canonical;
  request = given;
  WriteOutModeAndAccess(request);
  if (request.tenant().empty()) request.set_tenant("tenants/default");
  if (request.sharing() == 0) request.set_sharing(v1::EXCLUSIVE);
  if (request.max_extents() == 0) request.set_max_extents(1);
  if (request.interleave_ways() == 1) request.clear_interleave_ways();
  if (request.interleave_granularity_bytes() == 256) request.clear_interleave_granularity_bytes();
  return HashWhole(request);
}

uint64_t PayloadHash(const v1::AttachRegionRequest& given) {
  InPlace<v1::AttachRegionRequest> canonical;
  v1::AttachRegionRequest& request = *canonical;
  request = given;
  WriteOutModeAndAccess(request);
  return HashWhole(request);
}

uint64_t PayloadHash(const v1::ResizeRegionRequest& given) {
  InPlace<v1::ResizeRegionRequest> canonical;
  v1::ResizeRegionRequest& request = *canonical;
  request = given;
  if (request.max_extents() == 1) request.clear_max_extents();
  return HashWhole(request);
}

uint64_t PayloadHash(const v1::DetachRegionRequest& request) { return HashWhole(request); }
uint64_t PayloadHash(const v1::ReleaseRegionRequest& request) { return HashWhole(request); }
uint64_t PayloadHash(const v1::RenameRegionRequest& request) { return HashWhole(request); }
uint64_t PayloadHash(const v1::RenewRegionRequest& request) { return HashWhole(request); }

}  // namespace cxlpool::fm
