#include "fabric-manager/fsck/examine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/store/v1/record.pb.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/service/record_codec.h"

namespace cxlpool::fm {
namespace {

namespace pb = store::v1;

constexpr uint64_t kGranule = 256 << 20;
constexpr uint32_t kAllocated = 2, kQuarantined = 6;

class ExamineTest : public ::testing::Test {
 protected:
  ExamineTest() { Reset(); }

  // A pool without Regions.
  void Reset() {
    records_.clear();
    records_[1].mutable_pool()->set_schema_version(1);
    records_[1].mutable_pool()->set_next_id(4112);
    AddDevice(16, "cmm-0");
    AddDevice(17, "cmm-1");
    for (const uint64_t key : {18, 19}) {
      pb::HostRecord& host = *records_[key].mutable_host();
      host.set_id(absl::StrCat("host-", key == 18 ? "a" : "b"));
      host.set_identity(absl::StrCat("cxlpool://host/", host.id()));
    }
  }

  void AddDevice(uint64_t key, const std::string& id) {
    pb::DeviceRecord& device = *records_[key].mutable_device();
    device.set_id(id);
    device.set_serial(absl::StrCat("serial-", id));
    device.set_capacity_bytes(64 * kGranule);
    device.set_granule_bytes(kGranule);
  }

  static std::string Bytes16(uint64_t seed) {
    std::string bytes(16, 'u');
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(seed >> (8 * i));
    return bytes;
  }

  // Under key, key + 1, ... are its numbers. Extents are (device, granule, granules).
  pb::RegionRecord& AddRegion(
      uint64_t key, const std::string& id,
      const std::vector<std::tuple<std::string, uint64_t, uint64_t>>& extents) {
    pb::RegionRecord& region = *records_[key].mutable_region();
    region.set_tag(Bytes16(key));
    region.set_id(id);
    region.set_tenant("default");
    region.set_generation(key + 1);
    region.set_sharing(1);
    region.set_state(kAllocated);
    region.set_interleave_ways(1);
    region.set_revision(key);
    region.set_create_time_unix_us(1'700'000'000'000'000);
    for (const auto& [device, begin, length] : extents) {
      pb::ExtentRecord& extent = *region.add_extents();
      extent.set_device(device);
      extent.set_dpa_bytes(begin * kGranule);
      extent.set_length_bytes(length * kGranule);
      region.set_requested_bytes(region.requested_bytes() + length * kGranule);
    }
    pb::RequestRecord& request = *region.add_requests();
    request.set_principal("cxlpool://operator/admin");
    request.set_method("AllocateRegion");
    request.set_request_id(Bytes16(key));
    return region;
  }

  static void Attach(pb::RegionRecord& region, const std::string& host, uint32_t slot,
                     uint64_t generation) {
    pb::AttachmentRecord& attachment = *region.add_attachments();
    attachment.set_host(host);
    attachment.set_mode(1);
    attachment.set_access(1);
    attachment.set_state(3);
    attachment.set_generation(generation);
    for (int i = 0; i < region.extents_size(); ++i) {
      pb::SegmentRecord& segment = *attachment.add_segments();
      segment.set_extent_index(static_cast<uint32_t>(i));
      segment.set_slot(slot + static_cast<uint32_t>(i));
      segment.set_host_bridge("ACPI0016:00");
      segment.set_serial(kSerialBase + generation + 1 + static_cast<uint64_t>(i));
    }
  }

  // Rows 1 to `rows` of the audit trail, under keys 1000 and so on.
  void AddAuditTrail(uint64_t rows) {
    AuditHead head;
    for (uint64_t i = 1; i <= rows; ++i) {
      const std::string bytes =
          EncodeEntries({{.time = absl::FromUnixSeconds(5), .who = "w", .method = "m"}});
      head = NextHead(head, bytes);
      pb::AuditRowRecord& row = *records_[1000 + i].mutable_audit_row();
      row.mutable_head()->set_number(head.number);
      row.mutable_head()->set_hash(head.hash);
      row.set_entries(bytes);
    }
    records_[1].mutable_pool()->mutable_audit_head()->set_number(head.number);
    records_[1].mutable_pool()->mutable_audit_head()->set_hash(head.hash);
  }

  std::vector<Row> Rows() const {
    std::vector<Row> rows;
    for (const auto& [key, record] : records_) rows.push_back({key, record.SerializeAsString()});
    return rows;
  }

  static ExamineOptions Options(bool lost = false) {
    return {.records_lost = lost,
            .now = absl::FromUnixSeconds(1'700'000'001),
            .make_tag = [n = uint64_t{1} << 40]() mutable { return Bytes16(++n); }};
  }

  static Examination Check(const std::vector<Row>& rows, bool lost = false) {
    return Examine(rows, Options(lost));
  }

  // What the repair leaves is sound, and the manager's own model takes it.
  static std::map<uint64_t, pb::Record> ExpectRepaired(const Examination& done) {
    const Examination again = Check(done.rows);
    for (const FsckFinding& finding : again.findings) {
      ADD_FAILURE() << "after the repair: " << finding.key << ": " << finding.what;
    }
    std::map<uint64_t, pb::Record> records;
    Change devices, others;
    for (const Row& row : done.rows) {
      EXPECT_TRUE(records[row.key].ParseFromString(row.value));
      auto decoded = DecodeRecord(row.key, row.value);
      EXPECT_TRUE(decoded.ok()) << decoded.status();
      if (!decoded.ok() || !std::holds_alternative<Item>(*decoded)) continue;
      Item& item = std::get<Item>(*decoded);
      if (std::holds_alternative<AuditRowPtr>(item)) continue;  // No part of the pool.
      (std::holds_alternative<Device>(item) ? devices : others).push_back(std::move(item));
    }
    PoolState state;
    EXPECT_TRUE(state.Apply(devices).ok());
    const auto applied = state.Apply(others);
    EXPECT_TRUE(applied.ok()) << applied.status();
    EXPECT_TRUE(state.CheckInvariants().ok()) << state.CheckInvariants();
    return records;
  }

  static bool Says(const Examination& done, uint64_t key, absl::string_view text) {
    return std::any_of(done.findings.begin(), done.findings.end(), [&](const FsckFinding& finding) {
      return finding.key == key && absl::StrContains(finding.what, text);
    });
  }

  std::map<uint64_t, pb::Record> records_;
};

TEST_F(ExamineTest, SoundPoolHasNoFindingsAndStaysByteForByte) {
  Attach(AddRegion(40, "kv", {{"cmm-0", 0, 2}, {"cmm-1", 0, 1}}), "host-a", 17, 42);
  AddRegion(60, "idle", {{"cmm-0", 2, 2}});
  const std::vector<Row> rows = Rows();
  const Examination done = Check(rows);
  EXPECT_TRUE(done.findings.empty()) << done.findings[0].what;
  ASSERT_EQ(done.rows.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(done.rows[i].key, rows[i].key);
    EXPECT_EQ(done.rows[i].value, rows[i].value);
  }
}

TEST_F(ExamineTest, AnAuditTrailThatIsWholeHasNoFindings) {
  AddAuditTrail(9);
  const Examination done = Check(Rows());
  EXPECT_TRUE(done.findings.empty()) << done.findings[0].what;
  EXPECT_EQ(done.rows.size(), records_.size());
}

TEST_F(ExamineTest, AnAuditTrailThatWasAlteredIsFoundAndSetAside) {
  const auto expect_found = [&](const std::string& what, const std::function<void()>& alter) {
    Reset();
    AddAuditTrail(9);
    const size_t others = records_.size() - 9;
    alter();
    const Examination done = Check(Rows());
    EXPECT_TRUE(Says(done, 0, what)) << what;
    const auto after = ExpectRepaired(done);
    EXPECT_EQ(after.size(), others + 1) << "the repair is in the trail";
    EXPECT_EQ(done.removed.size(), records_.size() - others) << "kept word for word";
    // The next row goes on behind it, not under a number that was given already.
    EXPECT_EQ(after.at(1).pool().audit_head().number(), 10u);
    EXPECT_EQ(after.at(1).pool().audit_dropped().number(), 9u);
  };
  expect_found("row 5 was altered", [&] {
    records_[1005].mutable_audit_row()->set_entries(
        EncodeEntries({{.time = absl::FromUnixSeconds(6), .who = "nobody", .method = ""}}));
  });
  expect_found("row 5 is missing", [&] { records_.erase(1005); });
  expect_found("rows 5 and 6 are out of order", [&] { std::swap(records_[1005], records_[1006]); });
  expect_found("the trail was cut: rows 8 to 9 are missing", [&] {
    records_.erase(1008);
    records_.erase(1009);
  });
  expect_found("the pool's record knows of no row behind 0",
               [&] { records_[1].mutable_pool()->clear_audit_head(); });
}

// Whoever can write the file can write a trail that is whole: an anchor shows that it is another.
TEST_F(ExamineTest, AnAnchorFindsATrailThatWasWrittenAnew) {
  AddAuditTrail(9);
  const AuditHead end{9, records_[1].pool().audit_head().hash()};
  ExamineOptions options = Options();
  options.anchor = end;
  EXPECT_FALSE(Examine(Rows(), options).anchor.has_value());
  const auto expect_missed = [&](const std::string& what) {
    const Examination done = Examine(Rows(), options);
    ASSERT_TRUE(done.anchor.has_value()) << what;
    EXPECT_TRUE(absl::StrContains(done.anchor->what, what)) << done.anchor->what;
    EXPECT_TRUE(done.findings.empty()) << "it may be an anchor of another pool";
  };
  options.anchor->hash[0] ^= 1;
  expect_missed("row 9 is another than the anchor's");
  options.anchor->number = 10;
  expect_missed("the anchor is row 10");
  options.anchor = AuditHead{3, end.hash};
  *records_[1].mutable_pool()->mutable_audit_dropped() = records_[1005].audit_row().head();
  for (uint64_t key = 1001; key <= 1005; ++key) records_.erase(key);
  expect_missed("use a later anchor");
}

TEST_F(ExamineTest, ARepairIsAnEntryOfTheTrail) {
  AddAuditTrail(9);
  AddRegion(40, "kv", {{"cmm-0", 0, 4}});
  AddRegion(60, "web", {{"cmm-0", 2, 4}});
  const Examination done = Check(Rows());
  const auto after = ExpectRepaired(done);
  const pb::AuditRowRecord& row = after.rbegin()->second.audit_row();
  EXPECT_EQ(row.head().number(), 10u);
  EXPECT_EQ(after.at(1).pool().audit_head().hash(), row.head().hash());
  EXPECT_GT(after.at(1).pool().next_id(), after.rbegin()->first);
  const auto entries = DecodeEntries({.key = 0, .head = {}, .bytes = row.entries()});
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ(entries->front().who, "fsck");
  EXPECT_EQ(entries->front().more, done.findings.size() - 1);
  EXPECT_EQ(entries->front().reason, done.findings.front().what);
}

TEST_F(ExamineTest, NewStoreIsSound) { EXPECT_TRUE(Check({}).findings.empty()); }

TEST_F(ExamineTest, OverlapQuarantinesBothAndHoldsEachByteOnce) {
  Attach(AddRegion(40, "kv", {{"cmm-0", 0, 4}}), "host-a", 17, 42);
  Attach(AddRegion(60, "web", {{"cmm-0", 2, 4}, {"cmm-1", 0, 1}}), "host-b", 17, 62);
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 40, "bytes 536870912 to 1073741824 of cmm-0 belong to record 60 as well"));
  EXPECT_TRUE(Says(done, 60, "bytes 536870912 to 1073741824 of cmm-0 belong to record 40 as well"));
  auto after = ExpectRepaired(done);
  const pb::RegionRecord& kv = after[40].region();
  EXPECT_EQ(kv.state(), kQuarantined);
  EXPECT_EQ(kv.attachments_size(), 1);
  EXPECT_EQ(kv.extents(0).length_bytes(), 4 * kGranule);
  const pb::RegionRecord& web = after[60].region();
  EXPECT_EQ(web.state(), kQuarantined);
  EXPECT_EQ(web.id(), "web");
  EXPECT_EQ(web.tag(), Bytes16(60));
  EXPECT_EQ(web.attachments_size(), 0);
  ASSERT_EQ(web.extents_size(), 2);
  EXPECT_EQ(web.extents(0).dpa_bytes(), 4 * kGranule);
  EXPECT_EQ(web.extents(0).length_bytes(), 2 * kGranule);
  EXPECT_THAT(web.state_reason(), ::testing::HasSubstr("record 40"));
  ASSERT_EQ(done.removed.size(), 1u);
  EXPECT_EQ(done.removed[0].value, records_[60].SerializeAsString()) << "as it was";
}

TEST_F(ExamineTest, LostBytesStayMarkedWhoeverHoldsThem) {
  AddRegion(100, "first", {{"cmm-0", 0, 4}});
  pb::RegionRecord& second = AddRegion(200, "second", {{"cmm-0", 2, 4}, {"cmm-1", 0, 2}});
  second.mutable_extents(0)->set_bad_reason("POISON on device cmm-0");
  pb::RegionRecord& lost = AddRegion(300, "lost", {{"cmm-1", 8, 2}, {"cmm-1", 16, 2}});
  lost.mutable_extents(1)->set_bad_reason("POISON on device cmm-1");
  lost.clear_tag();  // The manager cannot read it.
  const auto records = ExpectRepaired(Check(Rows()));
  EXPECT_EQ(records.at(100).region().extents(0).bad_reason(), "POISON on device cmm-0");
  ASSERT_EQ(records.at(200).region().extents_size(), 2);
  EXPECT_EQ(records.at(200).region().extents(0).bad_reason(), "POISON on device cmm-0");
  EXPECT_EQ(records.at(200).region().extents(1).bad_reason(), "");
  size_t held = 0;
  for (const auto& [key, record] : records) {
    if (!absl::StartsWith(record.region().id(), "fsck-hold-")) continue;
    for (const pb::ExtentRecord& extent : record.region().extents()) {
      const bool bad = extent.dpa_bytes() == 16 * kGranule;
      EXPECT_EQ(extent.bad_reason(), bad ? "POISON on device cmm-1" : "");
      ++held;
    }
  }
  EXPECT_EQ(held, 2u);
}

TEST_F(ExamineTest, RegionWithoutAByteOfItsOwnIsSetAside) {
  AddRegion(40, "kv", {{"cmm-0", 0, 4}});
  AddRegion(60, "web", {{"cmm-0", 1, 2}});
  const Examination done = Check(Rows());
  auto after = ExpectRepaired(done);
  EXPECT_EQ(after[40].region().state(), kQuarantined);
  EXPECT_FALSE(after.contains(60));
  EXPECT_EQ(done.removed[0].key, 60u);
}

TEST_F(ExamineTest, WhatIsUniqueInThePoolIsFoundTwice) {
  struct Case {
    const char* text;
    std::function<void(pb::RegionRecord&)> change;
  };
  const Case cases[] = {
      {"name \"kv\"", [](auto& r) { r.set_id("kv"); }},
      {"tag ", [](auto& r) { r.set_tag(Bytes16(40)); }},
      {"generation 41", [](auto& r) { r.set_generation(41); }},
      {"generation 42", [](auto& r) { r.mutable_attachments(0)->set_generation(42); }},
      {"serial ",
       [](auto& r) {
         r.mutable_attachments(0)->mutable_segments(0)->set_serial(kSerialBase + 43);
       }},
      {"slot 17 of host host-a",
       [](auto& r) {
         r.mutable_attachments(0)->set_host("host-a");
         r.mutable_attachments(0)->mutable_segments(0)->set_slot(17);
       }},
      {"request ", [](auto& r) { r.mutable_requests(0)->set_request_id(Bytes16(40)); }},
  };
  for (const Case& c : cases) {
    records_.erase(60);
    records_.erase(40);
    Attach(AddRegion(40, "kv", {{"cmm-0", 0, 1}}), "host-a", 17, 42);
    pb::RegionRecord& web = AddRegion(60, "web", {{"cmm-0", 1, 1}});
    Attach(web, "host-b", 37, 62);
    c.change(web);
    const Examination done = Check(Rows());
    EXPECT_EQ(done.findings.size(), 2u) << c.text;
    EXPECT_TRUE(Says(done, 40, c.text)) << c.text;
    EXPECT_TRUE(Says(done, 60, c.text)) << c.text;
    auto after = ExpectRepaired(done);
    EXPECT_EQ(after[40].region().state(), kQuarantined) << c.text;
    EXPECT_EQ(after[60].region().state(), kQuarantined) << c.text;
    EXPECT_EQ(after[60].region().extents_size(), 1) << c.text;
  }
}

TEST_F(ExamineTest, ExtentsOutsideTheirDeviceAreFound) {
  AddRegion(40, "kv", {{"cmm-0", 62, 4}, {"cmm-1", 3, 1}});
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 40, "not inside the device"));
  auto after = ExpectRepaired(done);
  ASSERT_EQ(after[40].region().extents_size(), 2);
  EXPECT_EQ(after[40].region().extents(0).length_bytes(), 2 * kGranule);
}

TEST_F(ExamineTest, LostDeviceIsMadeAgainSoThatItIsNotTakenForEmpty) {
  AddRegion(40, "kv", {{"cmm-1", 3, 2}});
  records_.erase(17);
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 4113, "device cmm-1, of which there is no record"));
  auto after = ExpectRepaired(done);
  EXPECT_EQ(after[4113].device().id(), "cmm-1");
  EXPECT_GE(after[4113].device().capacity_bytes(), 5 * kGranule);
  EXPECT_EQ(after[40].region().state(), kAllocated);
}

TEST_F(ExamineTest, LostDeviceHasAGranuleThatSuitsItsRegions) {
  constexpr uint64_t kSmall = kGranule / 4;
  pb::RegionRecord& region = AddRegion(40, "kv", {{"cmm-1", 0, 1}});
  region.mutable_extents(0)->set_dpa_bytes(6 * kSmall);
  region.mutable_extents(0)->set_length_bytes(3 * kSmall);
  AddRegion(60, "kw", {{"cmm-1", 8, 1}}).mutable_extents(0)->set_length_bytes(4096);  // Damaged.
  records_.erase(17);
  auto after = ExpectRepaired(Check(Rows()));
  EXPECT_EQ(after[4113].device().granule_bytes(), kSmall);
  EXPECT_EQ(after[40].region().state(), kAllocated);
  EXPECT_FALSE(after.contains(60));
}

// It would come in as a new one, with the bytes of every Region on it free.
TEST_F(ExamineTest, DeviceThatTheManagerWouldNotLoadIsNotTakenForEmpty) {
  AddRegion(40, "kv", {{"cmm-1", 3, 2}});
  records_[17].mutable_device()->clear_granule_bytes();
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 17, "the manager would not load it"));
  auto after = ExpectRepaired(done);
  EXPECT_FALSE(after.contains(17));
  EXPECT_EQ(after[4113].device().id(), "cmm-1");
  EXPECT_EQ(after[40].region().state(), kAllocated) << "its bytes are known";
  EXPECT_NE(after[1].pool().hold_reason(), "") << "it may have failed, or be another's by now";
}

TEST_F(ExamineTest, RecordThatCannotBeReadIsSetAsideAndItsBytesAreHeld) {
  AddRegion(40, "kv", {{"cmm-0", 0, 4}}).set_state(99);
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 40, "state is 99"));
  auto after = ExpectRepaired(done);
  EXPECT_FALSE(after.contains(40));
  ASSERT_TRUE(after.contains(4113));
  EXPECT_EQ(after[4113].region().id(), "fsck-hold-4113");
  EXPECT_EQ(after[4113].region().state(), kQuarantined);
  EXPECT_EQ(after[4113].region().extents(0).length_bytes(), 4 * kGranule);
  EXPECT_GT(after[1].pool().next_id(), 4113u);
}

TEST_F(ExamineTest, RecordOfUnknownBytesHoldsAllThatIsFree) {
  AddRegion(40, "kv", {{"cmm-0", 1, 4}});
  std::vector<Row> rows = Rows();
  rows.push_back({60, "\xff\xff no record"});
  const Examination done = Check(rows);
  EXPECT_TRUE(Says(done, 60, "does not parse"));
  auto after = ExpectRepaired(done);
  uint64_t held = 0;
  for (const auto& [key, record] : after) {
    for (const auto& extent : record.region().extents()) held += extent.length_bytes();
  }
  EXPECT_EQ(held, 128 * kGranule);
  EXPECT_EQ(after[40].region().state(), kAllocated) << "it is not in doubt";
}

// A later release may have written them. None of them ever had a byte.
TEST_F(ExamineTest, RecordsThatHaveNoBytesHoldNoneWhereTheyAreNotUnderstood) {
  AddRegion(40, "kv", {{"cmm-0", 1, 4}});
  records_[60].mutable_role_binding()->set_identity("cxlpool://operator/alice");
  records_[60].mutable_role_binding()->set_role(99);
  records_[61].mutable_revocation()->set_subject("cxlpool://operator/bob");
  records_[61].mutable_revocation()->set_time_unix_us(-1);
  records_[62].mutable_topology_entry();
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 60, "role is 99"));
  EXPECT_TRUE(Says(done, 61, "time"));
  EXPECT_TRUE(Says(done, 62, "of a kind"));
  EXPECT_TRUE(Says(done, 0, "no role is bound"));
  EXPECT_EQ(done.findings.size(), 4u);
  EXPECT_TRUE(absl::StrContains(done.findings[0].repair, "cxlpool access list"));
  auto after = ExpectRepaired(done);
  for (const uint64_t key : {60, 61, 62}) EXPECT_FALSE(after.contains(key)) << key;
  EXPECT_EQ(after[1].pool().hold_reason(), "");
  uint64_t held = 0;
  for (const auto& [key, record] : after) {
    for (const auto& extent : record.region().extents()) held += extent.length_bytes();
  }
  EXPECT_EQ(held, 4 * kGranule) << "the Region's alone";
}

// In a pool without roles every operator is an admin.
TEST_F(ExamineTest, APoolThatMayHaveLostItsRolesMakesNobodyAnAdmin) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'001);
  const auto role_of = [&](const Examination& done, const std::string& name) {
    RoleBindings bindings;
    for (const auto& [key, record] : ExpectRepaired(done)) {
      if (!record.has_role_binding()) continue;
      const auto decoded = DecodeRecord(key, record.SerializeAsString());
      const auto& binding = std::get<RoleBinding>(std::get<Item>(*decoded));
      bindings[binding.identity] = binding;
    }
    return RoleOf(bindings, absl::StrCat("cxlpool://operator/", name), Proof::kOperatorCertificate,
                  now);
  };
  EXPECT_EQ(role_of(Check(Rows()), "bob"), Granted{PoolRole::kAdmin}) << "none was ever bound";
  EXPECT_EQ(role_of(Check(Rows(), /*lost=*/true), "bob"), std::nullopt);
  std::vector<Row> rows = Rows();
  rows.push_back({60, "\xff\xff no record"});
  EXPECT_EQ(role_of(Check(rows), "bob"), std::nullopt);
  records_[60].mutable_role_binding()->set_identity("cxlpool://operator/alice");
  records_[60].mutable_role_binding()->set_role(99);
  EXPECT_EQ(role_of(Check(Rows()), "bob"), std::nullopt);
  // Where another role is left nothing is added.
  records_[61].mutable_role_binding()->set_identity("cxlpool://operator/carol");
  records_[61].mutable_role_binding()->set_role(3);
  const Examination done = Check(Rows());
  EXPECT_EQ(done.findings.size(), 1u);
  EXPECT_EQ(role_of(done, "carol"), Granted{PoolRole::kAdmin});
  EXPECT_EQ(role_of(done, "bob"), std::nullopt);
}

// Of a device that places its LDs itself there is one LD to hold: all that is left.
TEST_F(ExamineTest, RecordOfUnknownBytesHoldsWhatIsFreeOfLds) {
  records_[16].mutable_device()->set_max_lds(3);
  AddRegion(40, "kv", {{"cmm-0", 64, 4}});  // LD 1.
  std::vector<Row> rows = Rows();
  rows.push_back({60, "\xff\xff no record"});
  auto after = ExpectRepaired(Check(rows));
  std::vector<std::pair<uint64_t, uint64_t>> held;
  for (const auto& [key, record] : after) {
    for (const auto& extent : record.region().extents()) {
      if (extent.device() == "cmm-0") held.emplace_back(extent.dpa_bytes(), extent.length_bytes());
    }
  }
  std::sort(held.begin(), held.end());
  EXPECT_EQ(held, (std::vector<std::pair<uint64_t, uint64_t>>{{0, 60 * kGranule},
                                                              {64 * kGranule, 4 * kGranule}}));
}

TEST_F(ExamineTest, LostRecordsHoldAllThatIsFreeAndSkipTheirIds) {
  AddRegion(40, "kv", {{"cmm-0", 1, 4}});
  const Examination done = Check(Rows(), /*lost=*/true);
  EXPECT_FALSE(done.findings.empty());
  auto after = ExpectRepaired(done);
  EXPECT_GT(after[1].pool().next_id(), 1'000'000u);
}

TEST_F(ExamineTest, IdsThatWouldBeGivenOutAgainAreFound) {
  AddRegion(40, "kv", {{"cmm-0", 0, 1}});
  records_[1].mutable_pool()->set_next_id(41);
  Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 1, "ids from 41 on would be given out again; 41 is in use"));
  EXPECT_GT(ExpectRepaired(done)[1].pool().next_id(), 41u);
  records_.erase(1);
  done = Check(Rows());
  EXPECT_TRUE(Says(done, 1, "the record of the pool is missing"));
  EXPECT_GT(ExpectRepaired(done)[1].pool().next_id(), 41u);
}

// After a restore the fabric shows what the pool has given out since.
TEST_F(ExamineTest, TheIdsOfAStrayAreNoneThatThePoolHasGivenOut) {
  pb::RegionRecord& stray = AddRegion(40, "stray-1", {{"cmm-0", 0, 1}});
  stray.set_state(kQuarantined);
  Attach(stray, "host-a", 20, 9'000'000);
  EXPECT_FALSE(Check(Rows()).findings.empty());
  stray.mutable_attachments(0)->set_held(true);
  EXPECT_TRUE(Check(Rows()).findings.empty());
  Attach(AddRegion(60, "kv", {{"cmm-0", 4, 1}}), "host-b", 20, 65);
  EXPECT_TRUE(Check(Rows()).findings.empty());
  // Of hardware that has serial numbers of its own.
  records_[60].mutable_region()->mutable_attachments(0)->mutable_segments(0)->set_serial(
      0xfc12'3456'789a'bcde);
  EXPECT_TRUE(Check(Rows()).findings.empty());
}

TEST_F(ExamineTest, BrokenSharingIsQuarantined) {
  pb::RegionRecord& kv = AddRegion(40, "kv", {{"cmm-0", 0, 1}});
  Attach(kv, "host-a", 17, 42);
  Attach(kv, "host-b", 17, 46);
  EXPECT_TRUE(Says(Check(Rows()), 40, "EXCLUSIVE and has 2 hosts"));
  kv.set_sharing(2);
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 40, "SINGLE_WRITER and 2 hosts may write"));
  EXPECT_EQ(ExpectRepaired(done)[40].region().state(), kQuarantined);
  kv.mutable_attachments(0)->set_detaching(true);
  EXPECT_TRUE(Check(Rows()).findings.empty());
}

TEST_F(ExamineTest, WhatTheManagerWouldNotLoadIsSetAside) {
  AddRegion(40, "kv", {{"cmm-0", 0, 1}});
  records_[40].mutable_region()->mutable_extents(0)->set_length_bytes(kGranule + 4096);
  const Examination done = Check(Rows());
  EXPECT_TRUE(Says(done, 40, "the manager would not load it"));
  auto after = ExpectRepaired(done);
  EXPECT_EQ(after[4113].region().extents(0).length_bytes(), 2 * kGranule) << "in whole granules";
}

// Whatever is done to the records, the repair leaves a sound pool, and every byte that a readable
// Region had is still held by somebody.
TEST_F(ExamineTest, AnEntryOfTheTopologyGoesWithTheLinksThatNameIt) {
  const auto link = [&](uint64_t key, const std::string& a, const std::string& b) {
    pb::LinkEntryRecord& record = *records_[key].mutable_topology_entry()->mutable_link();
    record.set_a(a);
    record.set_b(b);
  };
  records_[70].mutable_topology_entry()->set_imported_from("fm.toml");
  link(71, "host-a", "sw0");  // Written again after what it joins, under the key that it has.
  records_[72].mutable_topology_entry()->mutable_switch_()->set_id("sw0");
  records_[73].mutable_topology_entry()->mutable_host()->set_id("host-a");
  records_[74].mutable_topology_entry()->mutable_device()->set_id("cmm-0");
  link(75, "sw0", "cmm-0");
  EXPECT_TRUE(Check(Rows()).findings.empty());
  std::vector<Row> rows = Rows();
  for (Row& row : rows) {
    if (row.key == 74) row.value = "damaged";
  }
  const Examination done = Check(rows);
  EXPECT_TRUE(Says(done, 75, "cmm-0")) << "a link to nowhere";
  const auto after = ExpectRepaired(done);
  EXPECT_TRUE(after.contains(71));
  EXPECT_FALSE(after.contains(74));
  EXPECT_FALSE(after.contains(75));
}

TEST_F(ExamineTest, RandomDamageIsRepairedAndFreesNoByte) {
  std::minstd_rand random(3);
  int repaired = 0;
  for (int round = 0; round < 1000 && !HasFailure(); ++round) {
    Reset();
    for (uint64_t i = 0; i < 6; ++i) {
      pb::RegionRecord& region =
          AddRegion(100 + 20 * i, absl::StrCat("r", i),
                    {{"cmm-0", 4 * i, 1 + random() % 4}, {"cmm-1", 4 * i, 1 + random() % 4}});
      if (i % 2 == 0) Attach(region, i % 4 == 0 ? "host-a" : "host-b", 20 + 4 * i, 105 + 20 * i);
    }
    for (unsigned damages = 1 + random() % 3; damages > 0; --damages) {
      pb::RegionRecord& region = *records_[100 + 20 * (random() % 6)].mutable_region();
      const pb::RegionRecord& other = records_[100 + 20 * (random() % 6)].region();
      if (region.extents_size() == 0) continue;
      pb::ExtentRecord& extent = *region.mutable_extents(0);
      switch (random() % 10) {
        case 0:
          extent.set_dpa_bytes(random() % 70 * kGranule);
          break;
        case 1:
          extent.set_length_bytes(random() % 70 * kGranule);
          break;
        case 2:
          extent.set_dpa_bytes(extent.dpa_bytes() + 4096);
          break;
        case 3:
          extent.set_device(random() % 2 == 0 ? "cmm-1" : "cmm-7");
          break;
        case 4:
          region.set_tag(other.tag());
          break;
        case 5:
          region.set_id(other.id());
          break;
        case 6:
          region.set_state(random() % 9);
          break;
        case 7:
          *region.mutable_requests() = other.requests();
          break;
        case 8:
          *region.mutable_attachments() = other.attachments();
          break;
        default:
          records_.erase(random() % 2 == 0 ? 17 : 18);
          break;
      }
    }
    const std::vector<Row> before = Rows();
    const Examination done = Check(before);
    SCOPED_TRACE(absl::StrCat("round ", round));
    const auto after = ExpectRepaired(done);
    if (!done.findings.empty()) ++repaired;
    for (const auto& [key, record] : records_) {
      for (const pb::ExtentRecord& extent : record.region().extents()) {
        if (!extent.device().starts_with("cmm-")) continue;
        for (uint64_t at = extent.dpa_bytes();
             at < std::min(extent.dpa_bytes() + extent.length_bytes(), 64 * kGranule);
             at += kGranule) {
          const bool held = std::any_of(after.begin(), after.end(), [&](const auto& kept) {
            const auto& extents = kept.second.region().extents();
            return std::any_of(extents.begin(), extents.end(), [&](const pb::ExtentRecord& other) {
              return other.device() == extent.device() && other.dpa_bytes() <= at &&
                     at < other.dpa_bytes() + other.length_bytes();
            });
          });
          EXPECT_TRUE(held) << extent.device() << " byte " << at << " of record " << key;
        }
      }
    }
  }
  EXPECT_GT(repaired, 300);
}

}  // namespace
}  // namespace cxlpool::fm
