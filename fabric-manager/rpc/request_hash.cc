#include "fabric-manager/rpc/request_hash.h"

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <array>
#include <string>

namespace cxlpool::fm {
namespace {

// Hashes fields as protobuf would write them, without writing them. Fields go in by ascending
// number, and last the unknown ones.
class WireHash {
 public:
  // An enum, an unsigned number or a bool; 0 is not written.
  WireHash& Number(uint64_t field, uint64_t value) {
    return value == 0 ? *this : Present(field, value);
  }
  // A number that is written where it is given, 0 as well.
  WireHash& Present(uint64_t field, uint64_t value) {
    Varint(field << 3);
    Varint(value);
    return *this;
  }
  WireHash& Enum(uint64_t field, int value) {
    return Number(field, static_cast<uint64_t>(int64_t{value}));
  }
  WireHash& Text(uint64_t field, absl::string_view text) {
    if (!text.empty()) Block(field, text);
    return *this;
  }
  // A submessage or an element of a list: written also where it is empty.
  WireHash& Block(uint64_t field, absl::string_view bytes) {
    Varint(field << 3 | 2);
    Varint(bytes.size());
    hash_ = HashBytes(bytes, hash_);
    return *this;
  }
  // Fields of a later release: they count too.
  uint64_t Finish(const google::protobuf::Message& message) {
    const auto& unknown = message.GetReflection()->GetUnknownFields(message);
    if (unknown.empty()) return hash_;
    std::string bytes;
    unknown.SerializeToString(&bytes);
    return HashBytes(bytes, hash_);
  }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) Byte(static_cast<uint8_t>(value | 0x80));
    Byte(static_cast<uint8_t>(value));
  }
  void Byte(uint8_t byte) {
    const char c = static_cast<char>(byte);
    hash_ = HashBytes({&c, 1}, hash_);
  }

  uint64_t hash_ = kHashBasis;
};

// Of a request that has no defaults.
template <typename Message>
uint64_t HashWhole(const Message& message) {
  std::array<char, 512> buffer;
  const size_t size = message.ByteSizeLong();
  if (size > buffer.size()) return HashBytes(message.SerializeAsString());
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(buffer.data()));
  return HashBytes({buffer.data(), size});
}

// `value`, or `otherwise` where it is left out.
int Default(int value, int otherwise) { return value == 0 ? otherwise : value; }
// The inverse, for defaults that came after the first release: its requests do not have them.
uint64_t Without(uint64_t value, uint64_t otherwise) { return value == otherwise ? 0 : value; }

}  // namespace

uint64_t PayloadHash(const v1::AllocateRegionRequest& request) {
  WireHash hash;
  hash.Text(1, request.request_id())
      .Text(2, request.region_id())
      .Text(3, request.tenant().empty() ? absl::string_view("tenants/default")
                                        : absl::string_view(request.tenant()))
      .Number(4, request.size_bytes())
      .Enum(5, Default(request.sharing(), v1::EXCLUSIVE))
      .Text(6, request.host())
      .Enum(7, Default(request.mode(), v1::DEVDAX))
      .Enum(8, Default(request.access(), v1::READ_WRITE))
      .Number(9, request.max_extents() == 0 ? 1 : request.max_extents())
      .Text(10, request.device())
      .Number(11, request.validate_only() ? 1 : 0)
      .Enum(12, request.policy())
      .Number(13, Without(request.interleave_ways(), 1))
      .Number(14, Without(request.interleave_granularity_bytes(), 256));
  for (const std::string& region : request.isolate_from()) hash.Block(15, region);
  if (request.has_expected_lifetime()) {
    hash.Block(16, request.expected_lifetime().SerializeAsString());
  }
  if (request.has_ttl()) hash.Block(17, request.ttl().SerializeAsString());
  hash.Enum(18, request.zone() == v1::MOVABLE ? 0 : request.zone());
  if (request.has_owner()) hash.Block(19, request.owner().SerializeAsString());
  if (request.has_maker_uid()) hash.Present(20, request.maker_uid());
  if (request.has_open_to()) hash.Block(21, request.open_to().SerializeAsString());
  return hash.Finish(request);
}

uint64_t PayloadHash(const v1::AttachRegionRequest& request) {
  return WireHash()
      .Text(1, request.request_id())
      .Text(2, request.name())
      .Text(3, request.host())
      .Enum(4, Default(request.mode(), v1::DEVDAX))
      .Enum(5, Default(request.access(), v1::READ_WRITE))
      .Number(6, request.validate_only() ? 1 : 0)
      .Text(7, request.etag())
      .Enum(8, request.zone() == v1::MOVABLE ? 0 : request.zone())
      .Finish(request);
}

uint64_t PayloadHash(const v1::ResizeRegionRequest& request) {
  return WireHash()
      .Text(1, request.request_id())
      .Text(2, request.name())
      .Number(3, request.size_bytes())
      .Number(4, Without(request.max_extents(), 1))
      .Text(5, request.etag())
      .Number(6, request.validate_only() ? 1 : 0)
      .Finish(request);
}

uint64_t PayloadHash(const v1::DetachRegionRequest& request) { return HashWhole(request); }
uint64_t PayloadHash(const v1::ReleaseRegionRequest& request) { return HashWhole(request); }
uint64_t PayloadHash(const v1::RenameRegionRequest& request) { return HashWhole(request); }
uint64_t PayloadHash(const v1::RenewRegionRequest& request) { return HashWhole(request); }

}  // namespace cxlpool::fm
