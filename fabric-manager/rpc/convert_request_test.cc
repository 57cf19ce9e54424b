#include "fabric-manager/rpc/convert_request.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/request_hash.h"
#include "fabric-manager/topology_file.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/rigs/each_field_fixture.h"
#include "test/rigs/full_records_fixture.h"

namespace cxlpool::fm {
namespace {

constexpr char kId[] = "0f8fad5b-d9cb-469f-a165-70867728950e";
const Caller kWho = Caller::Admin("cxlpool://operator/alice");

v1::AllocateRegionRequest Allocate() {
  v1::AllocateRegionRequest request;
  request.set_request_id(kId);
  request.set_size_bytes(1 << 30);
  return request;
}

TEST(ConvertRequestTest, WhatIsLeftOutIsTheDefault) {
  const auto spec = FromProto(Allocate(), kWho);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->request.id.principal.str(), kWho.identity());
  EXPECT_EQ(spec->request.id.method.str(), "AllocateRegion");
  EXPECT_EQ(FormatUuid(spec->request.id.id.bytes()), kId);
  EXPECT_EQ(spec->request.payload_hash, PayloadHash(Allocate()));
  EXPECT_EQ(spec->size_bytes, uint64_t{1} << 30);
  EXPECT_EQ(spec->region_id, "");
  EXPECT_EQ(spec->tenant, "default");
  EXPECT_EQ(spec->sharing, Sharing::kExclusive);
  EXPECT_EQ(spec->host, "");
  EXPECT_EQ(spec->mode, Mode::kDevdax);
  EXPECT_EQ(spec->access, Access::kReadWrite);
  EXPECT_EQ(spec->max_extents, 1u);
  EXPECT_EQ(spec->policy, std::nullopt);
  EXPECT_EQ(spec->interleave_ways, 0u);
  EXPECT_EQ(spec->interleave_granularity_bytes, 0u);
  EXPECT_TRUE(spec->isolate_from.empty());
  EXPECT_EQ(spec->expected_lifetime, absl::InfiniteDuration());
  EXPECT_EQ(spec->ttl, absl::InfiniteDuration());
  EXPECT_EQ(spec->owner, std::nullopt);
  EXPECT_EQ(spec->maker_uid, std::nullopt);
  EXPECT_TRUE(spec->open_to.nobody());
  EXPECT_EQ(spec->caller, kWho) << "a request says nothing of who sends it";
}

TEST(ConvertRequestTest, EveryFieldOfTheTopologyArrives) {
  TopologyTables tables = FullTables();
  tables.hosts.push_back(
      {.id = "host-8", .slots = {1}});  // Whose agent runs as the manager's user.
  const auto back = FromProto(ToProto(tables));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, tables);
  const DeviceEntry defaults = FromProto("cmm-0", v1::DeviceSettings());
  EXPECT_EQ(defaults.serial, "cmm-0");
  EXPECT_EQ(defaults.granule_bytes, 256u << 20);
  v1::TopologyTables unnamed;
  unnamed.add_hosts()->set_name("host-a");
  EXPECT_EQ(ReasonOf(FromProto(unnamed).status()), "BAD_NAME");
}

TEST(ConvertRequestTest, EveryFieldOfAllocateArrives) {
  v1::AllocateRegionRequest request = Allocate();
  request.set_region_id("kv");
  request.set_tenant("tenants/ml");
  request.set_sharing(v1::MULTI_WRITER);
  request.set_host("hosts/host-a");
  request.set_mode(v1::SYSTEM_RAM);
  request.set_access(v1::READ_ONLY);
  request.set_max_extents(16);
  request.set_device("devices/cmm-1");
  request.set_policy(v1::BANDWIDTH);
  request.set_interleave_ways(8);
  request.set_interleave_granularity_bytes(16384);
  request.mutable_expected_lifetime()->set_nanos(1);
  request.mutable_ttl()->set_seconds(10);
  request.mutable_owner()->set_uid(1000);
  request.mutable_owner()->set_pid(4711);
  request.mutable_owner()->set_start_ticks(99);
  request.mutable_owner()->set_incarnation("boot-1");
  request.set_maker_uid(1000);
  request.mutable_open_to()->add_uids(7);
  request.mutable_open_to()->add_gids(8);
  request.mutable_open_to()->set_everybody(true);
  const auto spec = FromProto(request, kWho);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->region_id, "kv");
  EXPECT_EQ(spec->tenant, "ml");
  EXPECT_EQ(spec->sharing, Sharing::kMultiWriter);
  EXPECT_EQ(spec->host, "host-a");
  EXPECT_EQ(spec->mode, Mode::kSystemRam);
  EXPECT_EQ(spec->access, Access::kReadOnly);
  EXPECT_EQ(spec->max_extents, 16u);
  EXPECT_EQ(spec->device, "cmm-1");
  EXPECT_EQ(spec->policy, Policy::kBandwidth);
  EXPECT_EQ(spec->interleave_ways, 8u);
  EXPECT_EQ(spec->interleave_granularity_bytes, 16384u);
  EXPECT_EQ(spec->expected_lifetime, absl::Seconds(1));
  EXPECT_EQ(spec->ttl, absl::Seconds(10));
  EXPECT_EQ(spec->owner,
            (Owner{.uid = 1000, .pid = 4711, .start_ticks = 99, .incarnation = "boot-1"}));
  EXPECT_EQ(spec->maker_uid, 1000u);
  EXPECT_EQ(spec->open_to, (OpenTo{.uids = {7}, .gids = {8}, .everybody = true}));

  v1::AllocateRegionRequest apart = Allocate();
  apart.set_policy(v1::ISOLATE);
  apart.add_isolate_from("regions/a");
  apart.add_isolate_from(absl::StrCat("regions/", kId));
  EXPECT_EQ(FromProto(apart, kWho)->isolate_from, (std::vector<std::string>{"a", kId}));
}

TEST(ConvertRequestTest, AnOwnerIsWholeOrRefused) {
  using Edit = std::function<void(v1::AllocateRegionRequest&)>;
  const std::vector<std::pair<Edit, std::string>> cases = {
      {[](auto& r) { r.mutable_owner()->clear_pid(); }, "pid is 0"},
      {[](auto& r) { r.mutable_owner()->clear_start_ticks(); }, "start_ticks is 0"},
      {[](auto& r) { r.mutable_owner()->clear_incarnation(); }, "incarnation is empty"},
      {[](auto& r) { r.mutable_owner()->set_incarnation(std::string(65, 'b')); }, "too long"},
      {[](auto& r) { r.clear_host(); }, "no host is"},
  };
  for (const auto& [edit, what] : cases) {
    SCOPED_TRACE(what);
    v1::AllocateRegionRequest request = Allocate();
    request.set_host("hosts/host-a");
    request.mutable_owner()->set_pid(4711);
    request.mutable_owner()->set_start_ticks(99);
    request.mutable_owner()->set_incarnation("boot-1");
    EXPECT_TRUE(FromProto(request, kWho).ok());
    edit(request);
    const absl::Status status = FromProto(request, kWho).status();
    EXPECT_EQ(ReasonOf(status), "BAD_OWNER");
    EXPECT_TRUE(absl::StrContains(status.message(), what)) << status;
  }
}

TEST(ConvertRequestTest, ABadFieldOfAllocateIsNamed) {
  using Edit = std::function<void(v1::AllocateRegionRequest&)>;
  const std::vector<std::tuple<Edit, std::string, std::string>> cases = {
      {[](auto& r) { r.set_request_id("1"); }, "BAD_REQUEST_ID", "request_id"},
      {[](auto& r) { r.clear_request_id(); }, "BAD_REQUEST_ID", "request_id"},
      {[](auto& r) { r.set_region_id("KV"); }, "BAD_NAME", "KV"},
      {[](auto& r) { r.set_tenant("ml"); }, "BAD_NAME", "write it as tenants/NAME"},
      {[](auto& r) { r.set_tenant("tenants/"); }, "BAD_NAME", "not well formed"},
      {[](auto& r) { r.set_host("devices/a"); }, "BAD_NAME", "is not in hosts"},
      {[](auto& r) { r.set_host("hostsxa"); }, "BAD_NAME", "is not in hosts"},
      {[](auto& r) { r.set_device("devices/a_b"); }, "BAD_NAME", "not well formed"},
      {[](auto& r) { r.set_sharing(static_cast<v1::Sharing>(4)); }, "BAD_ENUM", "sharing"},
      {[](auto& r) { r.set_mode(static_cast<v1::AttachmentMode>(-1)); }, "BAD_ENUM", "mode"},
      {[](auto& r) { r.set_access(static_cast<v1::Access>(9)); }, "BAD_ENUM", "access"},
      {[](auto& r) { r.set_zone(static_cast<v1::MemoryZone>(3)); }, "BAD_ENUM", "zone"},
      {[](auto& r) { r.set_zone(v1::KERNEL); }, "ZONE_NEEDS_SYSTEM_RAM", "the mode is DEVDAX"},
      {[](auto& r) { r.set_policy(static_cast<v1::PlacementPolicy>(6)); }, "BAD_ENUM", "policy"},
      {[](auto& r) { r.set_max_extents(17); }, "BAD_MAX_EXTENTS", "17"},
      {[](auto& r) { r.set_interleave_ways(3); }, "BAD_INTERLEAVE", "interleave_ways is 3"},
      {[](auto& r) { r.set_interleave_ways(32); }, "BAD_INTERLEAVE", "interleave_ways is 32"},
      {[](auto& r) {
         r.set_policy(v1::BANDWIDTH);
         r.set_interleave_ways(1);
       },
       "BAD_INTERLEAVE", "use 2, 4, 8 or 16"},
      {[](auto& r) {
         r.set_policy(v1::PACK);
         r.set_interleave_ways(2);
       },
       "BAD_INTERLEAVE", "the policy is PACK"},
      {[](auto& r) { r.set_interleave_granularity_bytes(128); }, "BAD_INTERLEAVE", "128"},
      {[](auto& r) { r.set_interleave_granularity_bytes(300); }, "BAD_INTERLEAVE", "300"},
      {[](auto& r) { r.set_interleave_granularity_bytes(32768); }, "BAD_INTERLEAVE", "32768"},
      {[](auto& r) {
         for (int i = 0; i < 65; ++i) r.add_isolate_from("regions/a");
       },
       "BAD_ISOLATE_FROM", "names 65 Regions"},
      {[](auto& r) {
         r.set_policy(v1::SPREAD);
         r.add_isolate_from("regions/a");
       },
       "BAD_ISOLATE_FROM", "the policy is SPREAD"},
      {[](auto& r) { r.add_isolate_from("a"); }, "BAD_NAME", "write it as regions/NAME"},
      {[](auto& r) { r.set_maker_uid(7); }, "BAD_MAKER", "no host is"},
      {[](auto& r) {
         r.set_host("hosts/host-a");
         r.set_maker_uid(UINT32_MAX);
       },
       "BAD_MAKER", "it is no user id"},
      {[](auto& r) {
         r.set_host("hosts/host-a");
         r.set_maker_uid(7);
         r.mutable_owner()->set_pid(1);
         r.mutable_owner()->set_start_ticks(1);
         r.mutable_owner()->set_incarnation("boot-1");
       },
       "BAD_MAKER", "another user's process"},
      {[](auto& r) {
         for (int i = 0; i < 65; ++i) r.mutable_open_to()->add_uids(i);
       },
       "BAD_OPEN_TO", "has 65 ids"},
      {[](auto& r) { r.mutable_open_to()->add_gids(UINT32_MAX); }, "BAD_OPEN_TO", "is no id"},
      {[](auto& r) { r.mutable_expected_lifetime(); }, "BAD_LIFETIME", "expected_lifetime"},
      {[](auto& r) { r.mutable_expected_lifetime()->set_seconds(-1); }, "BAD_LIFETIME",
       "expected_lifetime"},
      {[](auto& r) { r.mutable_ttl(); }, "BAD_TTL", "field ttl is 0"},
      {[](auto& r) { r.mutable_ttl()->set_seconds(9); }, "BAD_TTL", "field ttl is 9s"},
      {[](auto& r) { r.mutable_ttl()->set_seconds(11 * 366 * 86400); }, "BAD_TTL",
       "10 seconds to 10 years"},
      {[](auto& r) { r.mutable_ttl()->set_seconds(INT64_MAX); }, "BAD_TTL", "no"},
      {[](auto& r) {
         r.mutable_ttl()->set_seconds(20);
         r.mutable_ttl()->set_nanos(-1);
       },
       "BAD_TTL", "not a duration"},
  };
  for (const auto& [edit, reason, text] : cases) {
    v1::AllocateRegionRequest request = Allocate();
    edit(request);
    const absl::Status status = FromProto(request, kWho).status();
    EXPECT_EQ(ReasonOf(status), reason) << request.ShortDebugString() << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
}

TEST(ConvertRequestTest, TheOtherRequests) {
  v1::ReleaseRegionRequest release;
  release.set_request_id(kId);
  release.set_name("regions/kv");
  release.set_force(true);
  EXPECT_EQ(ReasonOf(FromProto(release, kWho).status()), "REASON_REQUIRED");
  release.set_reason(std::string(513, 'x'));
  EXPECT_EQ(ReasonOf(FromProto(release, kWho).status()), "BAD_REASON");
  release.set_reason("the host burned");
  release.set_etag("e");
  auto released = FromProto(release, kWho);
  ASSERT_TRUE(released.ok());
  EXPECT_TRUE(released->force);
  EXPECT_FALSE(released->fence);
  const uint64_t hash = released->request.payload_hash;
  EXPECT_EQ(released->reason, "the host burned");
  EXPECT_EQ(released->etag, "e");
  release.set_fence(true);
  released = FromProto(release, kWho);
  ASSERT_TRUE(released.ok());
  EXPECT_TRUE(released->fence);
  EXPECT_NE(released->request.payload_hash, hash) << "another call by the same request_id";
  EXPECT_EQ(released->tenant, "");
  EXPECT_EQ(released->maker_uid, std::nullopt);
  release.set_tenant("tenants/ml");
  release.set_maker_uid(0);
  EXPECT_EQ(FromProto(release, kWho)->tenant, "ml");
  EXPECT_EQ(FromProto(release, kWho)->maker_uid, 0u);
  release.set_name("kv");
  EXPECT_EQ(ReasonOf(FromProto(release, kWho).status()), "BAD_NAME");
  release.set_name("");
  EXPECT_EQ(ReasonOf(FromProto(release, kWho).status()), "BAD_NAME");

  v1::ResizeRegionRequest resize;
  resize.set_request_id(kId);
  resize.set_name("regions/kv");
  EXPECT_EQ(ReasonOf(FromProto(resize, kWho).status()), "BAD_SIZE");
  resize.set_size_bytes(7);
  EXPECT_EQ(FromProto(resize, kWho)->size_bytes, 7u);
  EXPECT_EQ(FromProto(resize, kWho)->max_extents, 1u);

  v1::RenameRegionRequest rename;
  rename.set_request_id(kId);
  rename.set_name(absl::StrCat("regions/", kId));
  EXPECT_EQ(ReasonOf(FromProto(rename, kWho).status()), "BAD_NAME");
  rename.set_new_region_id("regions/kv2");
  EXPECT_EQ(ReasonOf(FromProto(rename, kWho).status()), "BAD_NAME");
  rename.set_new_region_id("kv2");
  EXPECT_EQ(FromProto(rename, kWho)->region_id, kId);
  EXPECT_EQ(FromProto(rename, kWho)->new_region_id, "kv2");

  v1::RenewRegionRequest renew;
  renew.set_request_id(kId);
  renew.set_name("regions/kv");
  EXPECT_EQ(FromProto(renew, kWho)->ttl, std::nullopt);
  renew.mutable_ttl()->set_seconds(60);
  EXPECT_EQ(FromProto(renew, kWho)->ttl, absl::Minutes(1));
  renew.mutable_ttl()->set_seconds(1);
  EXPECT_EQ(ReasonOf(FromProto(renew, kWho).status()), "BAD_TTL");

  v1::AttachRegionRequest attach;
  attach.set_request_id(kId);
  attach.set_name("regions/kv");
  EXPECT_EQ(ReasonOf(FromProto(attach, kWho).status()), "BAD_NAME");
  attach.set_host("hosts/host-a");
  attach.set_etag("e");
  EXPECT_EQ(FromProto(attach, kWho)->etag, "e");

  v1::DetachRegionRequest detach;
  detach.set_request_id(kId);
  detach.set_name("regions/kv");
  detach.set_host("hosts/host-a");
  detach.set_etag("e");
  EXPECT_EQ(FromProto(detach, kWho)->host, "host-a");
  EXPECT_EQ(FromProto(detach, kWho)->etag, "e");
}

TEST(ConvertRequestTest, EachCallerKeepsItsOwnName) {
  for (const char* identity : {"a", "b", "a"}) {
    const Caller caller = Caller::OfHost("host-a", identity);
    const auto spec = FromProto(Allocate(), caller);
    EXPECT_EQ(spec->request.id.principal.str(), identity);
    EXPECT_EQ(spec->caller, caller);
  }
}

// --- Every field is carried.

// What a spec says, to be compared: but for the hash, which any other request changes. A field that
// is added to a spec does not compile here until it is named.
auto Said(const AllocateSpec& spec) {
  const auto& [request, caller, region_id, tenant, size, sharing, host, mode, zone, access, extents,
               device, policy, ways, granularity, isolate, lifetime, ttl, owner, maker, open_to,
               isolation] = spec;
  return std::tuple(request.id, region_id, tenant, size, sharing, host, mode, zone, access, extents,
                    device, policy, ways, granularity, isolate, lifetime, ttl, owner, maker,
                    open_to, isolation);
}
auto Said(const AttachSpec& spec) {
  const auto& [request, caller, region_id, host, mode, access, etag, zone] = spec;
  return std::tuple(request.id, region_id, host, mode, access, etag, zone);
}
auto Said(const DetachSpec& spec) {
  const auto& [request, caller, region_id, host, etag] = spec;
  return std::tuple(request.id, region_id, host, etag);
}
auto Said(const ReleaseSpec& spec) {
  const auto& [request, caller, region_id, all, etag, force, reason, fence, dry, tenant, maker] =
      spec;
  return std::tuple(request.id, region_id, all, etag, force, reason, fence, dry, tenant, maker);
}
auto Said(const ResizeSpec& spec) {
  const auto& [request, caller, region_id, size, extents, etag] = spec;
  return std::tuple(request.id, region_id, size, extents, etag);
}
auto Said(const RenameSpec& spec) {
  const auto& [request, caller, region_id, new_region_id, etag] = spec;
  return std::tuple(request.id, region_id, new_region_id, etag);
}
auto Said(const RenewSpec& spec) {
  const auto& [request, caller, region_id, ttl, etag] = spec;
  return std::tuple(request.id, region_id, ttl, etag);
}
auto Said(const Revocation& revocation) {
  const auto& [key, subject, reason, principal, time] = revocation;
  return std::tuple(subject, reason, principal);
}

auto Said(const RoleBinding& binding) {
  const auto& [key, identity, token_hash, role, tenants, end, reason, principal, time] = binding;
  return std::tuple(identity, token_hash, role, tenants, end, reason, principal);
}

using Names = std::vector<std::string>;

// `full` has every field but `not_set`. Each that it has, taken out by itself, must make a
// difference to the spec, or a refusal; but for `not_here`, which others than FromProto read.
template <typename Request>
void ExpectEveryFieldIsCarried(const Request& full, const Names& not_set, const Names& not_here) {
  using Spec = typename decltype(FromProto(full, kWho))::value_type;
  EXPECT_EQ(FieldsNotSet(full), not_set) << full.GetTypeName() << ": set it, and carry it on";
  const auto carried = [](const Request& request) {
    const absl::StatusOr<Spec> spec = FromProto(request, kWho);
    return spec.ok() ? std::optional(Said(*spec)) : std::nullopt;
  };
  ASSERT_TRUE(carried(full).has_value()) << FromProto(full, kWho).status();
  EXPECT_EQ(FieldsThatAreDropped(full, carried), not_here) << full.GetTypeName();
}

TEST(EveryFieldTest, OfAllocateIsInItsSpec) {
  v1::AllocateRegionRequest full = Allocate();
  full.set_region_id("kv");
  full.set_tenant("tenants/ml");
  full.set_sharing(v1::MULTI_WRITER);
  full.set_host("hosts/host-a");
  full.set_mode(v1::SYSTEM_RAM);
  full.set_zone(v1::KERNEL);
  full.set_access(v1::READ_ONLY);
  full.set_max_extents(16);
  full.set_device("devices/cmm-1");
  full.set_policy(v1::BANDWIDTH);
  full.set_interleave_ways(8);
  full.set_interleave_granularity_bytes(16384);
  full.mutable_expected_lifetime()->set_seconds(3);
  full.mutable_expected_lifetime()->set_nanos(1);
  full.mutable_ttl()->set_seconds(10);
  full.mutable_ttl()->set_nanos(1);
  full.mutable_owner()->set_uid(1000);
  full.mutable_owner()->set_pid(4711);
  full.mutable_owner()->set_start_ticks(99);
  full.mutable_owner()->set_incarnation("boot-1");
  full.set_maker_uid(1000);
  full.mutable_open_to()->add_uids(7);
  full.mutable_open_to()->add_gids(8);
  full.mutable_open_to()->set_everybody(true);
  full.set_isolation(v1::FABRIC);
  full.set_validate_only(true);
  // PoolRpc hands validate_only on by itself: ServerTest.ADryRunChangesNothing.
  ExpectEveryFieldIsCarried(full, {"isolate_from"}, {"validate_only"});

  v1::AllocateRegionRequest apart = Allocate();
  apart.set_policy(v1::ISOLATE);
  apart.add_isolate_from("regions/a");
  EXPECT_EQ(FromProto(apart, kWho)->isolate_from, Names{"a"});
}

template <typename Request>
Request Filled() {
  Request full;
  FillAll(full);
  full.set_request_id(kId);
  full.set_name("regions/kv");
  return full;
}

TEST(EveryFieldTest, OfAttachAndDetachIsInTheirSpecs) {
  auto attach = Filled<v1::AttachRegionRequest>();
  attach.set_host("hosts/host-a");
  attach.set_mode(v1::SYSTEM_RAM);
  ExpectEveryFieldIsCarried(attach, {}, {"validate_only"});
  EXPECT_EQ(FromProto(attach, kWho)->access, Access::kReadOnly);
  EXPECT_EQ(FromProto(attach, kWho)->zone, Zone::kKernel);

  auto detach = Filled<v1::DetachRegionRequest>();
  detach.set_host("hosts/host-a");
  ExpectEveryFieldIsCarried(detach, {}, {});
}

TEST(EveryFieldTest, OfReleaseIsInItsSpec) {
  auto release = Filled<v1::ReleaseRegionRequest>();
  release.set_tenant("tenants/ml");
  ExpectEveryFieldIsCarried(release, {}, {});
  const auto spec = FromProto(release, kWho);
  EXPECT_EQ(spec->reason, release.reason());
  EXPECT_EQ(spec->etag, release.etag());
  EXPECT_EQ(spec->maker_uid, release.maker_uid());
}

TEST(EveryFieldTest, OfResizeRenameAndRenewIsInTheirSpecs) {
  ExpectEveryFieldIsCarried(Filled<v1::ResizeRegionRequest>(), {}, {"validate_only"});
  ExpectEveryFieldIsCarried(Filled<v1::RenameRegionRequest>(), {}, {});
  auto renew = Filled<v1::RenewRegionRequest>();
  renew.mutable_ttl()->set_seconds(10);
  ExpectEveryFieldIsCarried(renew, {}, {});
}

TEST(EveryFieldTest, OfSetBindingIsInTheBinding) {
  v1::SetRoleBindingRequest request;
  FillAll(request);
  v1::RoleBinding& binding = *request.mutable_role_binding();
  binding.set_identity("cxlpool://token/ci");
  binding.set_token_sha256(std::string(32, 'h'));
  binding.set_role(v1::TENANT);
  binding.clear_tenants();
  binding.add_tenants("tenants/ml");
  binding.mutable_end_time()->set_seconds(absl::ToUnixSeconds(absl::Now()) + 60);
  // Who is bound twice is bound: nobody needs request_id. The record says by whom and when.
  ExpectEveryFieldIsCarried(request, {},
                            {"request_id", "role_binding.bound_by",
                             "role_binding.bind_time.seconds", "role_binding.bind_time.nanos"});
  EXPECT_EQ(FromProto(request, kWho)->principal, kWho.identity());

  const auto refusal = [&](const std::string& identity, v1::Role role, int64_t end) {
    binding.set_identity(identity);
    binding.set_role(role);
    binding.mutable_end_time()->set_seconds(end);
    return ReasonOf(FromProto(request, kWho).status());
  };
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  EXPECT_EQ(refusal("spiffe://site/ci", v1::TENANT, now + 60), "BAD_TOKEN_HASH");
  binding.clear_token_sha256();
  EXPECT_EQ(refusal("spiffe://site/ci", v1::SCHEDULER, now + 60), "");
  EXPECT_EQ(refusal("spiffe://site/ci", v1::VIEWER, now + 60), "BAD_TENANTS");
  binding.clear_tenants();
  EXPECT_EQ(refusal("spiffe://site/ci", v1::VIEWER, now + 60), "");
  EXPECT_EQ(refusal("spiffe://site/ci", v1::TENANT, now + 60), "BAD_TENANTS");
  for (const char* bad : {"", "alice", ":", "cxlpool://host/host-a", "cxlpool://manager/fm",
                          "cxlpool://operator/a b", "x:\xff"}) {
    EXPECT_EQ(refusal(bad, v1::VIEWER, now + 60), "BAD_IDENTITY") << bad;
  }
  for (const v1::Role bad : {v1::ROLE_UNSPECIFIED, v1::HOST, static_cast<v1::Role>(8)}) {
    EXPECT_EQ(refusal("spiffe://site/ci", bad, now + 60), "BAD_ROLE") << bad;
  }
  for (const int64_t bad : {now - 1, int64_t{0}, int64_t{-5}, int64_t{253402300800}, INT64_MAX}) {
    EXPECT_EQ(refusal("spiffe://site/ci", v1::VIEWER, bad), "BAD_TIME") << bad;
  }
}

TEST(EveryFieldTest, OfRevokeIsInTheRevocation) {
  v1::RevokeCertificateRequest revoke;
  FillAll(revoke);
  revoke.set_subject("7a01");
  // What is revoked twice is revoked: nobody needs request_id. InventoryRpc asks for allow_own.
  ExpectEveryFieldIsCarried(revoke, {}, {"request_id", "allow_own"});
  EXPECT_EQ(FromProto(revoke, kWho)->principal, kWho.identity());
}

}  // namespace
}  // namespace cxlpool::fm
