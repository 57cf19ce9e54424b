#include "fabric-manager/service/record_codec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cxlpool/store/v1/record.pb.h"
#include "proto/support/refusal.h"
#include "test/rigs/full_records_fixture.h"

namespace cxlpool::fm {
namespace {

namespace pb = cxlpool::store::v1;

Item RoundTrip(const Item& item) {
  auto decoded = DecodeRecord(KeyOf(item), EncodeItem(item));
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  return std::get<Item>(*std::move(decoded));
}

TEST(RecordCodecTest, RegionsKeepEveryField) {
  const auto region = FullRegion();
  EXPECT_EQ(*std::get<RegionPtr>(RoundTrip(RegionPtr(region))), *region);
  region->attachments[0].segments[0].numa_node.reset();
  EXPECT_EQ(*std::get<RegionPtr>(RoundTrip(RegionPtr(region))), *region);
}

TEST(RecordCodecTest, TombstonesKeepEveryField) {
  const auto region = FullRegion();
  const Item back = RoundTrip(Tombstone{region, absl::FromUnixMicros(42)});
  EXPECT_EQ(*std::get<Tombstone>(back).region, *region);
  EXPECT_EQ(std::get<Tombstone>(back).gone_time, absl::FromUnixMicros(42));
}

TEST(RecordCodecTest, HostsAndDevicesKeepEveryDurableField) {
  Host host = FullHost();
  EXPECT_EQ(std::get<Host>(RoundTrip(host)), host);
  host.tenants.clear();  // Of a release that did not know tenants of hosts.
  EXPECT_EQ(std::get<Host>(RoundTrip(host)).tenants, std::vector<std::string>{"default"});
  Device device = FullDevice();
  EXPECT_EQ(std::get<Device>(RoundTrip(device)), device);
  device.reachable = true;
  EXPECT_FALSE(std::get<Device>(RoundTrip(device)).reachable);
}

TEST(RecordCodecTest, TenantsRevocationsAndBindingsKeepEveryField) {
  EXPECT_EQ(std::get<Tenant>(RoundTrip(FullTenant())), FullTenant());
  EXPECT_EQ(std::get<Revocation>(RoundTrip(FullRevocation())), FullRevocation());
  RoleBinding binding = FullRoleBinding();
  EXPECT_EQ(std::get<RoleBinding>(RoundTrip(binding)), binding);
  binding.end = absl::InfiniteFuture();
  EXPECT_EQ(std::get<RoleBinding>(RoundTrip(binding)), binding);
  pb::Record record;
  record.mutable_role_binding()->set_identity("spiffe://site/ci");
  for (const uint32_t role : {0u, 4u}) {
    record.mutable_role_binding()->set_role(role);
    EXPECT_EQ(ReasonOf(DecodeRecord(9, record.SerializeAsString()).status()), "BAD_RECORD");
  }
}

TEST(RecordCodecTest, TopologyEntriesKeepEveryField) {
  const TopologyTables tables = FullTables();
  Key key = 9;
  const auto expect_same = [&](auto what) {
    const TopologyEntry entry{++key, std::move(what)};
    EXPECT_EQ(std::get<TopologyEntry>(RoundTrip(entry)), entry) << NameOf(entry);
  };
  expect_same(tables.devices.front());
  expect_same(tables.hosts.front());
  HostEntry host = tables.hosts.front();
  host.agent_uid.reset();
  expect_same(host);
  expect_same(tables.switches.front());
  expect_same(tables.links.front());
  expect_same(TopologyImport{"/etc/cxlpool/fm.toml"});
  pb::Record record;
  record.mutable_topology_entry();
  EXPECT_EQ(ReasonOf(DecodeRecord(9, record.SerializeAsString()).status()), "BAD_RECORD");
  record.mutable_topology_entry()->mutable_host();
  EXPECT_EQ(ReasonOf(DecodeRecord(9, record.SerializeAsString()).status()), "BAD_RECORD");
}

TEST(RecordCodecTest, ThePoolsOwnRecord) {
  const std::string value = EncodePool({1, 4242, "records were lost"});
  const auto decoded = DecodeRecord(kPoolKey, value);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<PoolMeta>(*decoded).next_id, 4242u);
  EXPECT_EQ(std::get<PoolMeta>(*decoded).hold_reason, "records were lost");
  EXPECT_EQ(ReasonOf(DecodeRecord(kPoolKey + 1, value).status()), "BAD_RECORD");
  EXPECT_EQ(ReasonOf(DecodeRecord(kPoolKey, EncodePool({2, 4242})).status()), "BAD_RECORD");
}

TEST(RecordCodecTest, AuditRowsAndTheirBoundsKeepEveryField) {
  const AuditBounds bounds{{3, std::string(32, 'd')}, {7, std::string(32, 'h')}};
  auto decoded = DecodeRecord(kPoolKey, EncodePool({1, 4242, "", bounds}));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<PoolMeta>(*decoded).audit, bounds);

  const AuditEntry empty{.time = absl::FromUnixSeconds(1'700'000'000), .who = "", .method = ""};
  const std::vector<AuditEntry> entries = {FullAuditEntry(), FullAuditEntry(), empty, empty,
                                           FullAuditEntry()};
  const auto row = std::make_shared<AuditRow>(
      AuditRow{.key = 20, .head = bounds.head, .bytes = EncodeEntries(entries)});
  const Item back = RoundTrip(AuditRowPtr(row));
  EXPECT_EQ(std::get<AuditRowPtr>(back)->key, row->key);
  EXPECT_EQ(std::get<AuditRowPtr>(back)->head, row->head);
  EXPECT_EQ(std::get<AuditRowPtr>(back)->bytes, row->bytes);
  const auto read = DecodeEntries(*row);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, entries);

  AuditRow broken = *row;
  broken.bytes = "\xff";
  EXPECT_EQ(ReasonOf(DecodeEntries(broken).status()), "BAD_RECORD");
  broken.head.hash.pop_back();
  const std::string value = EncodeItem(std::make_shared<const AuditRow>(broken));
  EXPECT_EQ(ReasonOf(DecodeRecord(20, value).status()), "BAD_RECORD");
}

TEST(RecordCodecTest, LongTextsOfAnEntryAreCut) {
  AuditEntry entry = FullAuditEntry();
  entry.reason = std::string(kMaxAuditText - 1, 'x') + "\xc3\xa9";
  const auto read = DecodeEntries(AuditRow{.key = 20, .head = {}, .bytes = EncodeEntries({entry})});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->front().reason, std::string(kMaxAuditText - 1, 'x'));
}

TEST(RecordCodecTest, WhatAHostSaidInOtherEncodingsStaysReadable) {
  const auto region = FullRegion();
  region->attachments[0].settled().reason = "caf\xe9";
  EXPECT_EQ(std::get<RegionPtr>(RoundTrip(RegionPtr(region)))->attachments[0].settled().reason,
            "caf?");
}

TEST(RecordCodecTest, CharactersOfEveryLanguageStayAsTheyAre) {
  const auto region = FullRegion();
  const auto back = [&](const std::string& reason) {
    region->state_reason = reason;
    return std::get<RegionPtr>(RoundTrip(RegionPtr(region)))->state_reason;
  };
  for (const char* text : {"caf\xc3\xa9", "\xe3\x83\xa1\xe3\x83\xa2\xe3\x83\xaa full",
                           "\xf0\x9f\x92\xbe burned", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_EQ(back(text), text);
  }
  // A character cut in half, one that is longer than it need be, a surrogate, beyond the last.
  EXPECT_EQ(back("caf\xc3\xa9 \xe3\x83"), "caf\xc3\xa9 ??");
  EXPECT_EQ(back("\xc0\xaf"), "??");
  EXPECT_EQ(back("\xe0\x80\xaf"), "???");
  EXPECT_EQ(back("\xed\xa0\x80"), "???");
  EXPECT_EQ(back("\xf4\x90\x80\x80"), "????");
  EXPECT_EQ(back("\xf8\x88\x80\x80\x80"), "?????");
  EXPECT_EQ(back("\xc3x"), "?x");
}

TEST(RecordCodecTest, AClockThatIsOffMakesNoUnreadableRow) {
  const auto region = FullRegion();
  region->create_time = absl::InfinitePast();
  EXPECT_EQ(std::get<RegionPtr>(RoundTrip(RegionPtr(region)))->create_time, absl::UnixEpoch());
  region->create_time = absl::InfiniteFuture();
  RoundTrip(RegionPtr(region));
}

// `spoil` makes a sound record unsound.
template <typename Spoil>
absl::Status Decode(Spoil spoil) {
  pb::Record record;
  EXPECT_TRUE(record.ParseFromString(EncodeItem(RegionPtr(FullRegion()))));
  spoil(record);
  return DecodeRecord(77, record.SerializeAsString()).status();
}

TEST(RecordCodecTest, RefusesValuesOfALaterRelease) {
  const auto expect_bad = [](absl::Status status, const char* field) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << field;
    EXPECT_EQ(ReasonOf(status), "BAD_RECORD") << field;
    EXPECT_NE(status.message().find(field), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("77"), absl::string_view::npos) << status;
  };
  for (const uint32_t value : {0u, 9u, 256u + 1u, UINT32_MAX}) {
    expect_bad(Decode([&](auto& r) { r.mutable_region()->set_state(value); }), "state");
    expect_bad(Decode([&](auto& r) { r.mutable_region()->set_sharing(value); }), "sharing");
    const auto attachment = [](pb::Record& r) {
      return r.mutable_region()->mutable_attachments(0);
    };
    expect_bad(Decode([&](auto& r) { attachment(r)->set_state(value); }), "attachment state");
    expect_bad(Decode([&](auto& r) { attachment(r)->set_mode(value); }), "mode");
    expect_bad(Decode([&](auto& r) { attachment(r)->set_access(value); }), "access");
  }
}

// Adds a field of a later release to the message of that number of those that `message` consists
// of, itself first; `number` counts down. False: there are not so many.
bool AddUnknown(google::protobuf::Message& message, int& number) {
  using google::protobuf::FieldDescriptor;
  const auto* reflection = message.GetReflection();
  if (number-- == 0) {
    reflection->MutableUnknownFields(&message)->AddVarint(900, 1);
    return true;
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int size = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      auto* const inner = field->is_repeated()
                              ? reflection->MutableRepeatedMessage(&message, field, i)
                              : reflection->MutableMessage(&message, field);
      if (AddUnknown(*inner, number)) return true;
    }
  }
  return false;
}

// It would be written back without them: an older release that is installed again, or that stands
// by while a newer one leads, is not to lose what they say.
TEST(RecordCodecTest, RefusesFieldsOfALaterRelease) {
  const TopologyTables tables = FullTables();
  const AuditHead head{7, std::string(32, 'h')};
  const auto row = std::make_shared<const AuditRow>(
      AuditRow{.key = 77, .head = head, .bytes = EncodeEntries({FullAuditEntry()})});
  const std::vector<std::pair<std::string, int>> records = {
      // With how many messages they consist of.
      {EncodeItem(RegionPtr(FullRegion())), 12},
      {EncodeItem(Tombstone{FullRegion(), absl::FromUnixMicros(42)}), 13},
      {EncodeItem(FullHost()), 2},
      {EncodeItem(FullDevice()), 2},
      {EncodeItem(FullTenant()), 2},
      {EncodeItem(FullRevocation()), 2},
      {EncodeItem(FullRoleBinding()), 2},
      {EncodeItem(TopologyEntry{77, tables.devices.front()}), 3},
      {EncodeItem(TopologyEntry{77, tables.hosts.front()}), 3},
      {EncodeItem(TopologyEntry{77, tables.switches.front()}), 3},
      {EncodeItem(TopologyEntry{77, tables.links.front()}), 3},
      {EncodeItem(AuditRowPtr(row)), 3},
      {EncodePool({1, 4242, "", {head, head}}), 4},
  };
  for (const auto& [value, messages] : records) {
    int found = 0;
    for (;; ++found) {
      pb::Record record;
      ASSERT_TRUE(record.ParseFromString(value));
      const Key key = record.has_pool() ? kPoolKey : 77;
      ASSERT_TRUE(DecodeRecord(key, value).ok());
      EXPECT_FALSE(IsOfLaterRelease(record));
      int number = found;
      if (!AddUnknown(record, number)) break;
      EXPECT_TRUE(IsOfLaterRelease(record)) << found << " of " << record.ShortDebugString();
      const absl::Status status = DecodeRecord(key, record.SerializeAsString()).status();
      EXPECT_EQ(ReasonOf(status), "BAD_RECORD") << found << " of " << record.ShortDebugString();
      EXPECT_NE(status.message().find("a field that"), absl::string_view::npos) << status;
    }
    EXPECT_EQ(found, messages) << "a message that is not given a value here is not tried";
  }
}

// What merely parses is no record of a later release: it is damage, and fsck's to repair.
TEST(RecordCodecTest, AKindOfALaterReleaseIsAMessageUnderOneOfTheNextNumbers) {
  const auto is_later = [](int number, const std::string& bytes) {
    pb::Record record;
    record.GetReflection()->MutableUnknownFields(&record)->AddLengthDelimited(number, bytes);
    EXPECT_EQ(ReasonOf(DecodeRecord(77, record.SerializeAsString()).status()), "BAD_RECORD");
    return IsOfLaterRelease(record);
  };
  pb::HostRecord message;
  message.set_id("host-a");
  EXPECT_TRUE(is_later(11, message.SerializeAsString()));
  EXPECT_FALSE(is_later(11, ""));
  EXPECT_FALSE(is_later(11, "\xff\xff no message"));
  EXPECT_FALSE(is_later(900, message.SerializeAsString()));
  pb::Record number;
  number.GetReflection()->MutableUnknownFields(&number)->AddVarint(11, 1);
  EXPECT_FALSE(IsOfLaterRelease(number));
  EXPECT_FALSE(IsOfLaterRelease(pb::Record()));
}

TEST(RecordCodecTest, RefusesWhatIsNotSound) {
  const auto bad = [](absl::Status status) { return ReasonOf(status) == "BAD_RECORD"; };
  EXPECT_TRUE(bad(Decode([](auto& r) { r.mutable_region()->set_tag("short"); })));
  EXPECT_TRUE(bad(Decode([](auto& r) { r.mutable_region()->clear_id(); })));
  EXPECT_TRUE(bad(Decode([](auto& r) { r.mutable_region()->set_create_time_unix_us(-1); })));
  EXPECT_TRUE(
      bad(Decode([](auto& r) { r.mutable_region()->mutable_requests(0)->set_request_id("x"); })));
  EXPECT_TRUE(bad(Decode([](auto& r) {
    r.mutable_region()->mutable_attachments(0)->mutable_segments(0)->set_extent_index(2);
  })));
  EXPECT_TRUE(bad(Decode([](auto& r) { r.clear_region(); })));
  EXPECT_TRUE(bad(DecodeRecord(3, "").status()));
  EXPECT_TRUE(bad(DecodeRecord(3, "\xff\xff\xff").status()));
}

TEST(RecordCodecTest, NeverCrashesOnSpoiltBytes) {
  const google::protobuf::LogSilencer quiet;
  std::mt19937_64 random(7);
  const std::string sound = EncodeItem(RegionPtr(FullRegion()));
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string spoilt = sound.substr(0, random() % (sound.size() + 1));
    for (int flips = 0; flips < 3 && !spoilt.empty(); ++flips) {
      spoilt[random() % spoilt.size()] = static_cast<char>(random());
    }
    refused += !DecodeRecord(77, spoilt).ok();
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace cxlpool::fm
