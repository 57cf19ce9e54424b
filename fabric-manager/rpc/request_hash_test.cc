#include "fabric-manager/rpc/request_hash.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

namespace cxlpool::fm {
namespace {

constexpr char kTag[] = "0f8fad5b-d9cb-469f-a165-70867728950e";

// Written out, so that the wire format alone decides.
v1::AllocateRegionRequest Canonical(v1::AllocateRegionRequest request) {
  if (request.mode() == 0) request.set_mode(v1::DEVDAX);
  if (request.access() == 0) request.set_access(v1::READ_WRITE);
  if (request.sharing() == 0) request.set_sharing(v1::EXCLUSIVE);
  if (request.max_extents() == 0) request.set_max_extents(1);
  if (request.tenant().empty()) request.set_tenant("tenants/default");
  if (request.interleave_ways() == 1) request.set_interleave_ways(0);
  if (request.interleave_granularity_bytes() == 256) request.set_interleave_granularity_bytes(0);
  if (request.zone() == v1::MOVABLE) request.clear_zone();
  return request;
}
v1::AttachRegionRequest Canonical(v1::AttachRegionRequest request) {
  if (request.mode() == 0) request.set_mode(v1::DEVDAX);
  if (request.access() == 0) request.set_access(v1::READ_WRITE);
  if (request.zone() == v1::MOVABLE) request.clear_zone();
  return request;
}
v1::ResizeRegionRequest Canonical(v1::ResizeRegionRequest request) {
  if (request.max_extents() == 1) request.set_max_extents(0);
  return request;
}
template <typename Message>
const Message& Canonical(const Message& message) {
  return message;
}

// Sets a random half of the fields, whatever there are: a field that the hash forgets is found.
void Fill(google::protobuf::Message& message, std::mt19937_64& random) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* reflection = message.GetReflection();
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const Field* field = type->field(i);
    if (random() % 2 == 0) continue;
    const uint64_t number = random() % 3 == 0 ? random() % 3 : random() >> (random() % 60);
    switch (field->cpp_type()) {
      case Field::CPPTYPE_STRING: {
        const std::string text(random() % 200, static_cast<char>('a' + random() % 26));
        if (field->is_repeated()) {
          for (uint64_t n = random() % 3; n > 0; --n) reflection->AddString(&message, field, text);
        } else {
          reflection->SetString(&message, field, text);
        }
        break;
      }
      case Field::CPPTYPE_ENUM:
        reflection->SetEnumValue(&message, field, static_cast<int>(random() % 9) - 2);
        break;
      case Field::CPPTYPE_BOOL:
        reflection->SetBool(&message, field, random() % 2 == 0);
        break;
      case Field::CPPTYPE_UINT32:
        if (field->is_repeated()) {
          reflection->AddUInt32(&message, field, static_cast<uint32_t>(number));
        } else {
          reflection->SetUInt32(&message, field, static_cast<uint32_t>(number));
        }
        break;
      case Field::CPPTYPE_INT32:
        reflection->SetInt32(&message, field, static_cast<int32_t>(number));
        break;
      case Field::CPPTYPE_UINT64:
        reflection->SetUInt64(&message, field, number);
        break;
      case Field::CPPTYPE_INT64:
        reflection->SetInt64(&message, field, static_cast<int64_t>(number));
        break;
      case Field::CPPTYPE_MESSAGE:
        Fill(*reflection->MutableMessage(&message, field), random);
        break;
      default:
        FAIL() << "teach this test the type of " << field->full_name();
    }
  }
  if (random() % 4 == 0) {
    reflection->MutableUnknownFields(&message)->AddVarint(900, random());
  }
}

template <typename Message>
void ExpectAsTheWireFormat() {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    Message message;
    Fill(message, random);
    const Message canonical = Canonical(message);
    ASSERT_EQ(PayloadHash(message), HashBytes(canonical.SerializeAsString()))
        << "round " << round << ": " << message.ShortDebugString();
    ASSERT_EQ(PayloadHash(canonical), PayloadHash(message));
  }
}

TEST(RequestHashTest, EveryFieldCountsAsInTheWireFormat) {
  ExpectAsTheWireFormat<v1::AllocateRegionRequest>();
  ExpectAsTheWireFormat<v1::AttachRegionRequest>();
  ExpectAsTheWireFormat<v1::DetachRegionRequest>();
  ExpectAsTheWireFormat<v1::ReleaseRegionRequest>();
  ExpectAsTheWireFormat<v1::ResizeRegionRequest>();
  ExpectAsTheWireFormat<v1::RenameRegionRequest>();
  ExpectAsTheWireFormat<v1::RenewRegionRequest>();
}

// Stores of the first release hold these: a retry over the upgrade must find them.
TEST(RequestHashTest, IsWhatTheFirstReleaseStored) {
  v1::AllocateRegionRequest allocate;
  allocate.set_request_id(kTag);
  allocate.set_size_bytes(512u << 20);
  EXPECT_EQ(PayloadHash(allocate), 0xd34c4306e550c049);
  allocate.set_region_id("kv");
  allocate.set_tenant("tenants/ml");
  allocate.set_sharing(v1::SINGLE_WRITER);
  allocate.set_host("hosts/host-a");
  allocate.set_mode(v1::DEVDAX);
  allocate.set_access(v1::READ_ONLY);
  allocate.set_max_extents(4);
  allocate.set_device("devices/cmm-1");
  allocate.set_validate_only(true);
  EXPECT_EQ(PayloadHash(allocate), 0xb18d922c8948364f);

  v1::AttachRegionRequest attach;
  attach.set_request_id(kTag);
  attach.set_name("regions/kv");
  attach.set_host("hosts/host-a");
  EXPECT_EQ(PayloadHash(attach), 0x19f28266c3e18342);

  v1::DetachRegionRequest detach;
  detach.set_request_id(kTag);
  detach.set_name("regions/kv");
  detach.set_host("hosts/host-a");
  EXPECT_EQ(PayloadHash(detach), 0xe2d5267f931402e2);

  v1::ReleaseRegionRequest release;
  release.set_request_id(kTag);
  release.set_name("regions/kv");
  release.set_detach_all(true);
  release.set_etag("e1");
  EXPECT_EQ(PayloadHash(release), 0xfb4400e1b627286d);
}

TEST(RequestHashTest, DefaultsWrittenOutChangeNothing) {
  v1::AllocateRegionRequest bare;
  bare.set_request_id(kTag);
  bare.set_size_bytes(1);
  v1::AllocateRegionRequest full = bare;
  full.set_tenant("tenants/default");
  full.set_sharing(v1::EXCLUSIVE);
  full.set_mode(v1::DEVDAX);
  full.set_access(v1::READ_WRITE);
  full.set_max_extents(1);
  full.set_interleave_ways(1);
  full.set_interleave_granularity_bytes(256);
  EXPECT_EQ(PayloadHash(bare), PayloadHash(full));
  full.set_policy(v1::SPREAD);
  EXPECT_NE(PayloadHash(bare), PayloadHash(full));
}

}  // namespace
}  // namespace cxlpool::fm
