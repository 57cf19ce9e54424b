#include "fabric-manager/service/audit_trail.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/refusal.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

// What a disk has of the trail.
struct StoredTrail {
  PoolMeta pool;
  std::vector<AuditRowPtr> rows;
  std::vector<std::vector<AuditEntry>> entries;  // Of each row.
  std::map<std::string, uint64_t> tenants;       // All records of tenants, with their quota.
};

class AuditTrailTest : public testing::Test {
 protected:
  AuditTrailTest() { Start(); }

  // Ends the manager that is there, and starts another on the same disk.
  void Start() {
    writer.reset();
    store = std::make_unique<MemoryStore>(disk, &executor, absl::Milliseconds(1));
    writer = std::make_unique<Writer>(Writer::Options{.audit = limits}, &executor, &executor,
                                      store.get(), &views, &watch);
    writer->Open({.on_committed = [](const auto&) {}, .on_fatal = [](const absl::Status&) {}},
                 [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
  }

  // Planned with the others of the same group.
  void SetTenant(const std::string& id, uint64_t quota_bytes) {
    writer->Submit(
        Audit{{},
              "cxlpool://operator/alice",
              "SetTenant",
              "asked for",
              "ADMIN",
              {"ipv4:10.0.0.7:5000", Uuid("0123456789abcdef")}},
        [id, quota_bytes](const PoolState& state,
                          PlanContext& context) -> absl::StatusOr<Proposal> {
          const Tenant* known = state.FindTenant(id);
          return Proposal::Of(Tenant{.key = known == nullptr ? context.next_id() : known->key,
                                     .id = id,
                                     .quota_bytes = quota_bytes},
                              nullptr);
        },
        [](const absl::StatusOr<Committed>&) {});
  }
  // As the fence of a host without memory: done, and in no record but the trail.
  void TellOfFence(absl::StatusOr<Committed>* answer) {
    Audit audit{{}, "cxlpool://operator/alice", "FenceHost", "smoke"};
    audit.target = "hosts/host-a";
    writer->Submit(
        std::move(audit), [](const PoolState&, PlanContext&) { return Proposal{}; },
        [answer](absl::StatusOr<Committed> done) { *answer = std::move(done); });
  }
  void Settle() { executor.Advance(absl::Milliseconds(20)); }

  // Takes the disk: the manager that is there may commit nothing any more.
  StoredTrail Read() {
    StoredTrail stored;
    for (const Row& row : disk->TakeOver().rows) {
      auto record = DecodeRecord(row.key, row.value);
      EXPECT_TRUE(record.ok()) << record.status();
      if (const auto* pool = std::get_if<PoolMeta>(&*record)) {
        stored.pool = *pool;
        continue;
      }
      const Item& item = std::get<Item>(*record);
      if (const auto* audit = std::get_if<AuditRowPtr>(&item)) {
        stored.rows.push_back(*audit);
        auto entries = DecodeEntries(**audit);
        EXPECT_TRUE(entries.ok()) << entries.status();
        stored.entries.push_back(*std::move(entries));
      } else if (const auto* tenant = std::get_if<Tenant>(&item)) {
        stored.tenants[tenant->id] = tenant->quota_bytes;
      }
    }
    for (const AuditFlaw& flaw : VerifyChain(stored.pool.audit, stored.rows)) {
      ADD_FAILURE() << flaw.what;
    }
    return stored;
  }

  AuditLimits limits;
  ManualExecutor executor;
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>();
  std::unique_ptr<MemoryStore> store;
  ViewHolder views;
  WatchHub watch;
  std::unique_ptr<Writer> writer;
};

TEST_F(AuditTrailTest, AGroupHasOneRowAndEachChangeAnEntry) {
  SetTenant("first", 1);
  Settle();
  SetTenant("a", 2);
  SetTenant("b", 3);
  writer->Submit(
      Audit{{}, "cxlpool://operator/alice", "SetTenant", ""},
      [](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> {
        return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_TENANT", "there is none", "make it");
      },
      [](const absl::StatusOr<Committed>&) {});
  Settle();
  const StoredTrail stored = Read();
  ASSERT_EQ(stored.entries.size(), 2u);
  EXPECT_EQ(stored.entries[0].size(), 1u);
  ASSERT_EQ(stored.entries[1].size(), 2u);
  const AuditEntry& entry = stored.entries[1][1];
  EXPECT_EQ(entry.who, "cxlpool://operator/alice");
  EXPECT_EQ(entry.method, "SetTenant");
  EXPECT_EQ(entry.reason, "asked for");
  EXPECT_EQ(entry.role, "ADMIN");
  EXPECT_EQ(entry.peer, "ipv4:10.0.0.7:5000");
  EXPECT_EQ(entry.request_id, Uuid("0123456789abcdef"));
  EXPECT_EQ(entry.target, "tenants/b");
  EXPECT_EQ(entry.revision, 3u);
  EXPECT_EQ(stored.pool.audit.head.number, 2u);
}

TEST_F(AuditTrailTest, WhatChangesNothingHasNoRow) {
  writer->Submit(
      Audit{}, [](const PoolState&, PlanContext&) { return Proposal{}; },
      [](const absl::StatusOr<Committed>&) {});
  Settle();
  EXPECT_TRUE(Read().rows.empty());
}

// Otherwise its revision would look like that of a change whose record is missing.
TEST_F(AuditTrailTest, ACommitWithoutAChangeSaysWhatItIsFor) {
  writer->Submit(
      Audit{},
      [](const PoolState&, PlanContext& context) {
        context.next_id();
        return Proposal{};
      },
      [](const absl::StatusOr<Committed>&) {});
  Settle();
  for (const char* action : {"claim-hosts", "try-store"}) {
    writer->Submit(
        Audit{{}, "manager", action, ""},
        [](const PoolState&, PlanContext&) {
          Proposal proposal;
          proposal.commits = true;
          return proposal;
        },
        [](const absl::StatusOr<Committed>&) {});
    Settle();
  }
  SetTenant("a", 1);
  Settle();
  const StoredTrail stored = Read();
  ASSERT_EQ(stored.entries.size(), 4u);
  uint64_t revision = 0;
  for (const char* method : {"reserve-ids", "claim-hosts", "try-store", "SetTenant"}) {
    ASSERT_EQ(stored.entries[revision].size(), 1u) << method;
    const AuditEntry& entry = stored.entries[revision][0];
    EXPECT_EQ(entry.method, method);
    EXPECT_EQ(entry.revision, ++revision) << method;
    EXPECT_TRUE(entry.outcome.empty()) << method;
  }
  EXPECT_EQ(stored.entries[0][0].who, "manager");
}

TEST_F(AuditTrailTest, RefusalsHaveARowAndChangeNothing) {
  writer->Submit(
      Audit{},
      [](const PoolState&, PlanContext&) {
        Proposal proposal;
        proposal.refusals = {{.time = {}, .who = "bob", .method = "x", .outcome = "NO_ROLE"}};
        return proposal;
      },
      [](const absl::StatusOr<Committed>& done) { EXPECT_TRUE(done.ok()) << done.status(); });
  Settle();
  const StoredTrail stored = Read();
  ASSERT_EQ(stored.entries.size(), 1u);
  ASSERT_EQ(stored.entries[0].size(), 1u);
  EXPECT_EQ(stored.entries[0][0].who, "bob");
  EXPECT_EQ(stored.entries[0][0].outcome, "NO_ROLE");
  EXPECT_EQ(stored.entries[0][0].time, executor.Now() - absl::Milliseconds(20));
  EXPECT_TRUE(stored.tenants.empty());
}

TEST_F(AuditTrailTest, ACommitThatFailedLeavesNoEntry) {
  SetTenant("a", 1);
  Settle();
  store->FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                          "no space", "make some")});
  SetTenant("b", 2);
  Settle();
  SetTenant("c", 3);
  Settle();
  const StoredTrail stored = Read();
  ASSERT_EQ(stored.entries.size(), 2u);
  EXPECT_EQ(stored.entries[1][0].target, "tenants/c");
  EXPECT_EQ(stored.tenants.size(), 2u);
}

TEST_F(AuditTrailTest, WhatOnlyTheTrailTellsIsNotAnsweredWithoutIt) {
  store->FailNextCommit({.status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                                          "no space", "make some")});
  absl::StatusOr<Committed> answer = absl::UnknownError("");
  const auto fence = [&] {
    TellOfFence(&answer);
    Settle();
  };
  fence();
  EXPECT_EQ(ReasonOf(answer.status()), "STORE_FULL");
  fence();
  EXPECT_TRUE(answer.ok()) << answer.status();
  const StoredTrail stored = Read();
  ASSERT_EQ(stored.entries.size(), 1u);
  EXPECT_EQ(stored.entries[0][0].target, "hosts/host-a");
}

// Or its commit would have a revision without an entry, and its neighbour's change two of one.
TEST_F(AuditTrailTest, WhatOnlyTheTrailTellsHasARevisionOfItsOwn) {
  absl::StatusOr<Committed> first = absl::UnknownError("");
  absl::StatusOr<Committed> second = absl::UnknownError("");
  SetTenant("a", 1);
  TellOfFence(&first);
  SetTenant("b", 2);
  Settle();
  TellOfFence(&second);
  Settle();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->revision, 2u);
  EXPECT_EQ(second->revision, 4u);
  EXPECT_EQ(disk->revision(), 4u);
  const StoredTrail stored = Read();
  std::vector<std::string> told;
  for (const std::vector<AuditEntry>& row : stored.entries) {
    for (const AuditEntry& entry : row) {
      told.push_back(absl::StrCat(entry.revision, " ", entry.target));
    }
  }
  EXPECT_EQ(told, std::vector<std::string>(
                      {"1 tenants/a", "2 hosts/host-a", "3 tenants/b", "4 hosts/host-a"}));
}

TEST_F(AuditTrailTest, ItGoesOnAfterARestart) {
  for (uint64_t life = 0; life < 4; ++life) {
    SetTenant("a", life);
    Settle();
    Start();
  }
  EXPECT_EQ(Read().rows.size(), 4u);
}

// As after an update from a release that wrote none.
TEST_F(AuditTrailTest, ItBeginsInAPoolThatHasNone) {
  StoreBatch old;
  old.epoch = disk->TakeOver().epoch;
  old.revision = 7;
  old.puts = {{kPoolKey, EncodePool({.next_id = 100})},
              {20, EncodeItem(Tenant{.key = 20, .id = "old"})}};
  ASSERT_TRUE(disk->Apply(old).ok());
  Start();
  SetTenant("a", 1);
  Settle();
  const StoredTrail stored = Read();
  EXPECT_EQ(stored.rows.size(), 1u);
  EXPECT_EQ(stored.tenants.size(), 2u);
}

TEST_F(AuditTrailTest, AnAlteredTrailIsNoReasonNotToStart) {
  SetTenant("a", 1);
  SetTenant("b", 1);
  Settle();
  EXPECT_TRUE(writer->meters().audit_chain_ok);
  EXPECT_EQ(writer->meters().audit_entries.value(), 2u);
  const AuditTrail::Kept kept = writer->trail().Read();
  ASSERT_EQ(kept.rows.size(), 1u);
  AuditRow altered = *kept.rows[0];
  altered.bytes = EncodeEntries({{.time = executor.Now(), .who = "nobody", .method = "x"}});
  StoreBatch batch;
  batch.epoch = disk->TakeOver().epoch;
  batch.base_revision = disk->revision();
  batch.revision = batch.base_revision + 1;
  batch.puts = {{altered.key, EncodeItem(std::make_shared<const AuditRow>(altered))}};
  ASSERT_TRUE(disk->Apply(batch).ok());
  Start();
  EXPECT_FALSE(writer->meters().audit_chain_ok);
  SetTenant("c", 1);
  Settle();
  EXPECT_EQ(writer->trail().Read().bounds.head.number, 2u);
}

TEST_F(AuditTrailTest, OldRowsAreDroppedAndTheChainIsWhole) {
  limits.max_rows = 8;
  Start();
  for (uint64_t i = 1; i <= 30; ++i) {
    SetTenant("a", i);
    Settle();
    if (i == 20) Start();
  }
  StoredTrail stored = Read();
  EXPECT_EQ(stored.rows.size(), 8u);
  EXPECT_EQ(stored.pool.audit.dropped.number, 22u);
  EXPECT_EQ(stored.pool.audit.head.number, 30u);
  // By bytes as well.
  limits = {.max_rows = 1000, .max_bytes = 600};
  Start();
  for (uint64_t i = 1; i <= 30; ++i) {
    SetTenant("a", i);
    Settle();
  }
  stored = Read();
  EXPECT_EQ(stored.pool.audit.head.number, 60u);
  EXPECT_LT(stored.rows.size(), 8u);
  EXPECT_GE(stored.rows.size(), 1u);
}

TEST_F(AuditTrailTest, ARowIsWithinWhatTheStoreTakes) {
  StoreLimits small;
  small.max_row_bytes = 2048;
  disk = std::make_shared<MemoryDisk>(1 << 24, small);
  Start();
  for (int i = 0; i < 100; ++i) SetTenant(absl::StrCat("t-", i), 1);
  Settle();
  const StoredTrail stored = Read();
  EXPECT_EQ(stored.tenants.size(), 100u);
  EXPECT_GT(stored.rows.size(), 1u);
  size_t entries = 0;
  for (const auto& row : stored.entries) entries += row.size();
  EXPECT_EQ(entries, 100u);
}

// One that a call allocated for tenant "ml".
std::shared_ptr<Region> RegionOfMl(const std::string& id) {
  auto region = std::make_shared<Region>();
  region->id = id;
  region->tenant = "ml";
  region->requests = {{{"alice", "AllocateRegion", Uuid("0123456789abcdef")}, 1}};
  return region;
}

TEST(EntriesOfTest, SayWhatWasErasedAndHowManyMore) {
  const Audit audit{absl::FromUnixSeconds(5), "manager", "gone", "why"};
  AuditEntries entries = EntriesOf(audit, {Erased{8}, Erased{9}},
                                   {Tenant{.key = 9, .id = "b"}, Tenant{.key = 8, .id = "a"}}, 17);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].target, "tenants/a");
  EXPECT_EQ(entries[0].more, 1u);
  EXPECT_EQ(entries[0].time, audit.time);
  EXPECT_EQ(entries[0].revision, 17u);
  entries = EntriesOf(audit, {RegionPtr(RegionOfMl("kv"))}, {Erased{1}}, 18);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].target, "regions/kv");
  EXPECT_EQ(entries[0].tenant, "ml");
  EXPECT_EQ(entries[0].more, 0u);
}

// A tenant is told of each of its Regions, and an operator of the host that was fenced.
TEST(EntriesOfTest, NameWhatWasAskedAboutAndEachRegion) {
  Audit audit{absl::FromUnixSeconds(5), "alice", "FenceHost", "it hangs"};
  audit.target = "hosts/host-a";
  Change change = {Tenant{.key = 9, .id = "b"}};
  for (int i = 0; i < 300; ++i) {
    change.push_back(RegionPtr(RegionOfMl(absl::StrCat("kv-", i))));
  }
  const AuditEntries entries = EntriesOf(audit, change, change, 17);
  ASSERT_EQ(entries.size(), kMaxEntriesOfChange);
  EXPECT_EQ(entries[0].target, "hosts/host-a");
  EXPECT_EQ(entries[0].tenant, "");
  EXPECT_EQ(entries[1].target, "regions/kv-0");
  EXPECT_EQ(entries[1].tenant, "ml");
  EXPECT_EQ(entries[1].reason, "it hangs");
  EXPECT_EQ(entries[255].who, "alice");
  EXPECT_EQ(entries[255].method, "FenceHost");
  EXPECT_EQ(entries[0].more, 301u - 255u) << "the tenant, and what is too much";
  EXPECT_EQ(EntriesOf(audit, {}, {}, 17).size(), 1u);
  audit.target.clear();
  EXPECT_TRUE(EntriesOf(audit, {}, {}, 17).empty());
}

// What the manager keeps stands under the default tenant, and its name says on which device it is.
TEST(EntriesOfTest, WhatIsKeptFromEverybodyIsNoTenants) {
  auto kept = std::make_shared<Region>();
  kept->id = "bad-cmm-0-17";
  kept->tenant = kDefaultTenant;
  const Audit audit{absl::FromUnixSeconds(5), "manager", "gone", "why"};
  const Change change = {RegionPtr(RegionOfMl("kv")), RegionPtr(kept)};
  const AuditEntries entries = EntriesOf(audit, change, change, 17);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].tenant, "ml");
  EXPECT_EQ(entries[1].target, "regions/bad-cmm-0-17");
  EXPECT_EQ(entries[1].tenant, "");
}

}  // namespace
}  // namespace cxlpool::fm
