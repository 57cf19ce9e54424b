#include "test/contract/store_contract.h"

#include <filesystem>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"

namespace cxlpool::fm {
namespace {

class MemoryHarness : public StoreHarness {
 public:
  std::unique_ptr<Store> Make() override { return std::make_unique<MemoryStore>(disk_); }
  std::unique_ptr<Store> MakeSmall(uint64_t bytes) override {
    disk_ = std::make_shared<MemoryDisk>(bytes);
    return Make();
  }
  std::string BackupPath() override { return ""; }
  void Restore(const std::string&) override {}

 private:
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
};

class SqliteHarness : public StoreHarness {
 public:
  SqliteHarness() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cxlpool-store-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~SqliteHarness() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Store> Make() override { return MakeSmall(uint64_t{1} << 30); }
  std::unique_ptr<Store> MakeSmall(uint64_t bytes) override {
    SqliteStoreOptions options;
    options.path = directory_ + "/state/pool.db";
    options.max_size_bytes = bytes;
    auto store = MakeSqliteStore(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::string BackupPath() override { return directory_ + "/backup.db"; }
  void Restore(const std::string& path) override {
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::rename(path, directory_ + "/state/pool.db");
    std::filesystem::remove(directory_ + "/state/pool.db-head");  // Of the store that is replaced.
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << "left behind";
      EXPECT_NE(entry.path().extension(), ".db-wal");
    }
  }

 private:
  std::string directory_;
};

std::string NameOf(const ::testing::TestParamInfo<StoreContractParam>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreContractTest,
    ::testing::Values(
        StoreContractParam{"Memory", [] { return std::make_unique<MemoryHarness>(); }},
        StoreContractParam{"Sqlite", [] { return std::make_unique<SqliteHarness>(); }}),
    NameOf);

}  // namespace
}  // namespace cxlpool::fm
