// What clients ask: the bytes as each of the requests whose fields are checked by hand.

#include <string>

#include "fabric-manager/rpc/convert_request.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

template <typename Request>
void Read(const std::string& bytes) {
  Request request;
  if (!request.ParseFromString(bytes)) return;
  static const auto* const caller = new fm::Caller(fm::Caller::Admin("cxlpool://operator/alice"));
  if constexpr (requires { fm::FromProto(request, *caller); }) {
    (void)fm::FromProto(request, *caller);
  } else {
    (void)fm::FromProto(request);
  }
}

// The first byte says which of them.
CXLPOOL_FUZZ(requests) {
  if (bytes.empty()) return;
  const std::string rest = bytes.substr(1);
  switch (static_cast<unsigned char>(bytes[0]) % 12) {
    case 0:
      return Read<v1::AllocateRegionRequest>(rest);
    case 1:
      return Read<v1::AttachRegionRequest>(rest);
    case 2:
      return Read<v1::DetachRegionRequest>(rest);
    case 3:
      return Read<v1::ReleaseRegionRequest>(rest);
    case 4:
      return Read<v1::ResizeRegionRequest>(rest);
    case 5:
      return Read<v1::RenameRegionRequest>(rest);
    case 6:
      return Read<v1::RenewRegionRequest>(rest);
    case 7:
      return Read<v1::EnrolHostRequest>(rest);
    case 8:
      return Read<v1::Tenant>(rest);
    case 9:
      return Read<v1::TopologyTables>(rest);
    case 10:
      return Read<v1::SetRoleBindingRequest>(rest);
    default:
      return Read<v1::RevokeCertificateRequest>(rest);
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
