// A pool moves from one store into another, and back.
#include "fabric-manager/store_copy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "etcd/v3/kv.pb.h"
#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/fsck/fsck.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/loop.h"
#include "proto/support/refusal.h"
#include "test/contract/store_client.h"
#include "test/rigs/etcd_cluster.h"
#include "test/rigs/fake_etcd.h"

namespace cxlpool::fm {
namespace {

using Model = StoreRows;

constexpr absl::Duration kTakeover = absl::Milliseconds(500);

class StoreCopyTest : public testing::Test {
 protected:
  StoreCopyTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-copy-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~StoreCopyTest() override { std::filesystem::remove_all(directory_); }

  StorePlace Database(const std::string& name) const {
    return {absl::StrCat(directory_, "/", name), std::nullopt};
  }
  StorePlace Etcd(std::vector<std::string> endpoints, const std::string& prefix = "/pool/") const {
    EtcdStoreOptions options;
    options.etcd.endpoints = std::move(endpoints);
    options.prefix = prefix;
    options.takeover = kTakeover;
    return {"", options};
  }
  static std::unique_ptr<StoreClient> Client(const StorePlace& place) {
    SqliteStoreOptions sqlite;
    sqlite.path = place.database;
    auto store = place.etcd.has_value() ? MakeEtcdStore(*place.etcd) : MakeSqliteStore(sqlite);
    EXPECT_TRUE(store.ok()) << store.status();
    return std::make_unique<StoreClient>(*std::move(store));
  }

  // A pool of `rows` records besides its own, some of them large.
  static Model Make(const StorePlace& place, uint64_t rows) {
    Model model = {{kPoolKey, EncodePool({})}};
    for (uint64_t key = 0; key < rows; ++key) {
      model[16 + 3 * key] = Noise(key % 1000 == 0 ? 900'000 : key % 300, key);
    }
    const auto client = Client(place);
    EXPECT_TRUE(client->Open().ok());
    for (int i = 0; i < 30; ++i) EXPECT_TRUE(client->CommitNext({{16, "before"}}).ok());
    std::vector<Row> all;
    for (const auto& [key, value] : model) all.push_back({key, value});
    EXPECT_TRUE(client->CommitNext(std::move(all)).ok());
    return model;
  }

  struct Found {
    Model rows;
    uint64_t revision = 0;
  };
  static Found Read(const StorePlace& place) {
    Found found;
    const auto image = Client(place)->Open();
    EXPECT_TRUE(image.ok()) << image.status();
    if (!image.ok()) return found;
    return {RowsOf(*image), image->revision};
  }

  // From a database into etcd and back.
  void GoesThereAndBack(const StorePlace& etcd) {
    const Model model = Make(Database("pool.db"), 40'000);
    const uint64_t revision = Read(Database("pool.db")).revision;
    const auto there = CopyStore(Database("pool.db"), etcd);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(there->records, model.size());
    EXPECT_GE(there->revision, revision);
    const Found in_etcd = Read(etcd);
    EXPECT_TRUE(in_etcd.rows == model);
    EXPECT_EQ(in_etcd.revision, there->revision);

    const auto back = CopyStore(etcd, Database("again.db"));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_GE(back->revision, there->revision);
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == "again.db" || name.starts_with("pool.db")) << name << " was left behind";
    }
    const auto report = RunFsck(Database("again.db").database, /*repair=*/false, absl::Now());
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->records, model.size());
    const Found again = Read(Database("again.db"));
    EXPECT_TRUE(again.rows == model);
    EXPECT_EQ(again.revision, back->revision);
  }

  std::string directory_;
};

TEST_F(StoreCopyTest, APoolGoesIntoEtcdAndBack) {
  FakeEtcd etcd(1);
  GoesThereAndBack(Etcd({etcd.endpoint()}));
}

TEST_F(StoreCopyTest, APoolGoesIntoMembersAndBack) {
  if (EtcdCluster::Program().empty()) {
    GTEST_SKIP() << "no etcd here: qemu-cxl/fetch --with etcd brings it";
  }
  EtcdCluster members(3);
  ASSERT_TRUE(members.status().ok()) << members.status();
  GoesThereAndBack(Etcd(members.endpoints()));
}

TEST_F(StoreCopyTest, WhatALaterReleaseHasInEtcdIsNoDamage) {
  FakeEtcd etcd(1);
  const StorePlace place = Etcd({etcd.endpoint()});
  const auto client = EtcdClient::Make(place.etcd->etcd);
  ASSERT_TRUE(client.ok()) << client.status();
  for (const auto& [text, reason] : {std::pair("7 30 ab me more", "STORE_TOO_NEW"),
                                     std::pair("what is this, then?", "STORE_CORRUPT")}) {
    etcdserverpb::TxnRequest txn;
    auto& put = *txn.add_success()->mutable_request_put();
    put.set_key(EtcdKeys(place.etcd->prefix).Head());
    put.set_value(text);
    ASSERT_TRUE((*client)->Txn(txn).ok());
    EXPECT_EQ(ReasonOf(CopyStore(place, Database("copy.db")).status()), reason) << text;
  }
}

// Of a store that has fewer revisions than the copy needs commits, and no record of a pool.
TEST_F(StoreCopyTest, ALargeFirstRevisionIsCopiedToo) {
  FakeEtcd etcd(1);
  Model model;
  {
    const auto client = Client(Database("pool.db"));
    ASSERT_TRUE(client->Open().ok());
    std::vector<Row> rows;
    for (uint64_t key = 2; key < 60; ++key) rows.push_back({key, Noise(1'000'000, 1)});
    for (const Row& row : rows) model[row.key] = row.value;
    ASSERT_TRUE(client->CommitNext(std::move(rows)).ok());
  }
  const auto copied = CopyStore(Database("pool.db"), Etcd({etcd.endpoint()}));
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_TRUE(Read(Etcd({etcd.endpoint()})).rows == model);
}

TEST_F(StoreCopyTest, AStoreThatTakesLessIsFilledInSmallerSteps) {
  FakeEtcd etcd(1);
  Model model = {{kPoolKey, EncodePool({})}};
  for (uint64_t key = 16; key < 1016; ++key) model[key] = Noise(key % 300, key);
  {
    const auto client = Client(Database("pool.db"));
    ASSERT_TRUE(client->Open().ok());
    std::vector<Row> rows;
    for (const auto& [key, value] : model) rows.push_back({key, value});
    ASSERT_TRUE(client->CommitNext(std::move(rows)).ok());
  }
  StorePlace small = Etcd({etcd.endpoint()});
  constexpr StoreLimits kMost{};
  // The least that a store may take (ports/store.h).
  small.etcd->limits = {.max_row_bytes = kMost.max_row_bytes / 1000,
                        .max_batch_rows = kMost.max_batch_rows / 1000,
                        .max_batch_bytes = kMost.max_batch_bytes / 1000};
  const auto copied = CopyStore(Database("pool.db"), small);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->records, model.size());
  EXPECT_TRUE(Read(small).rows == model);
}

TEST_F(StoreCopyTest, ACopyThatWasBrokenOffIsNoPool) {
  FakeEtcd etcd(1);
  Make(Database("pool.db"), 40'000);
  StorePlace small = Etcd({etcd.endpoint()});
  small.etcd->max_bytes = uint64_t{36} << 20;
  const absl::Status broken = CopyStore(Database("pool.db"), small).status();
  EXPECT_EQ(ReasonOf(broken), "STORE_FULL") << broken;

  const auto image = Client(small)->Open();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_GT(image->rows.size(), 1000u);
  PoolMeta meta;
  const absl::Status opened = DecodeAll(image->rows, meta).status();
  EXPECT_EQ(ReasonOf(opened), "COPY_UNFINISHED") << opened;
  // Nor is it copied, or copied over.
  EXPECT_EQ(ReasonOf(CopyStore(small, Database("other.db")).status()), "COPY_UNFINISHED");
  EXPECT_EQ(ReasonOf(CopyStore(Database("pool.db"), small).status()), "COPY_UNFINISHED");
}

TEST_F(StoreCopyTest, NeitherSideMayBeAnothers) {
  FakeEtcd etcd(1);
  StorePlace there = Etcd({etcd.endpoint()});
  there.etcd->address = "fm-a:7600";
  Make(there, 10);
  const auto leader = Client(there);
  ASSERT_TRUE(leader->Open().ok());
  // For as long as the tests of it take.
  Loop loop("beats");
  std::function<void()> beat = [&] {
    leader->store().Beat();
    loop.PostAfter(kTakeover / 5, beat);
  };
  loop.Post(beat);
  const absl::Status from = CopyStore(there, Database("copy.db")).status();
  EXPECT_EQ(ReasonOf(from), "STORE_BUSY") << from;
  EXPECT_NE(from.message().find("fm-a:7600"), std::string::npos) << from;
  EXPECT_FALSE(std::filesystem::exists(Database("copy.db").database));
  Make(Database("pool.db"), 10);
  const absl::Status to = CopyStore(Database("pool.db"), there).status();
  EXPECT_EQ(ReasonOf(to), "STORE_BUSY") << to;
  EXPECT_TRUE(leader->CommitNext({{16, "goes on"}}).ok());
  loop.Stop();

  const auto local = Client(Database("pool.db"));
  ASSERT_TRUE(local->Open().ok());
  const absl::Status locked =
      CopyStore(Database("pool.db"), Etcd({etcd.endpoint()}, "/b/")).status();
  EXPECT_EQ(ReasonOf(locked), "STORE_BUSY") << locked;
}

TEST_F(StoreCopyTest, NothingIsReplaced) {
  FakeEtcd etcd(1);
  const StorePlace there = Etcd({etcd.endpoint()});
  Make(Database("pool.db"), 10);
  EXPECT_EQ(ReasonOf(CopyStore(Database("none.db"), there).status()), "STORE_MISSING");
  EXPECT_EQ(ReasonOf(CopyStore(there, Database("copy.db")).status()), "STORE_MISSING");
  Make(there, 5);
  const absl::Status full = CopyStore(Database("pool.db"), there).status();
  EXPECT_EQ(ReasonOf(full), "STORE_NOT_EMPTY") << full;
  const absl::Status exists = CopyStore(there, Database("pool.db")).status();
  EXPECT_EQ(ReasonOf(exists), "BACKUP_EXISTS") << exists;
}

TEST_F(StoreCopyTest, ASideIsAConfigurationOrADatabase) {
  const auto file = [&](const std::string& store) {
    std::string path = absl::StrCat(directory_, "/fm.toml");
    std::ofstream(path) << "[[listen]]\naddress = \"unix:/run/fm.sock\"\ninsecure = true\n[store]\n"
                        << store << "\n[fabric]\ndriver = \"emulated\"\nroot = \"" << directory_
                        << "\"\n";
    return path;
  };
  const FabricReaders drivers = FabricDrivers();
  auto place = PlaceOf("some/pool.db", drivers);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->database, (std::filesystem::current_path() / "some/pool.db").string());
  place = PlaceOf(file("path = \"/var/lib/pool.db\""), drivers);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->database, "/var/lib/pool.db");
  place = PlaceOf(file("kind = \"etcd\"\nendpoints = [\"127.0.0.1:2379\"]\nadvertise = \"a:7600\""),
                  drivers);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(NameOf(*place), "etcd at 127.0.0.1:2379 under /cxlpool/");
  EXPECT_EQ(ReasonOf(PlaceOf(file("kind = \"memory\""), drivers).status()), "NO_RECORDS");
  EXPECT_EQ(ReasonOf(PlaceOf("/nowhere/fm.toml", drivers).status()), "NO_CONFIG");
}

}  // namespace
}  // namespace cxlpool::fm
