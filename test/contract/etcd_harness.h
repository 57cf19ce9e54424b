// A Store on etcd, wherever its members are, for the contract of every Store. A backup is put back
// as docs/replicated.md says: copied under another prefix.
#ifndef CXLPOOL_TEST_CONTRACT_ETCD_HARNESS_H_
#define CXLPOOL_TEST_CONTRACT_ETCD_HARNESS_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "fabric-manager/adapters/store_etcd/etcd_client.h"
#include "fabric-manager/adapters/store_etcd/etcd_folder.h"
#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/adapters/store_etcd/etcd_reader.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/adapters/store_sqlite/new_database.h"
#include "fabric-manager/store_copy.h"
#include "test/contract/store_contract.h"

namespace cxlpool::fm {

class EtcdStoreHarness : public StoreHarness {
 public:
  explicit EtcdStoreHarness(EtcdStoreOptions options) : options_(std::move(options)) {
    options_.max_bytes = uint64_t{256} << 20;
#ifdef CXLPOOL_SANITIZED
    options_.limits.max_batch_bytes /= 4;  // To fold the largest commit takes minutes there.
#endif
    options_.write_backup = WriteNewDatabase;
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cxlpool-backup-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~EtcdStoreHarness() override { std::filesystem::remove_all(directory_); }

  EtcdStoreOptions& options() { return options_; }

  std::unique_ptr<Store> Make() override {
    auto store = MakeEtcdStore(options_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::unique_ptr<Store> MakeSmall(uint64_t bytes) override {
    options_.max_bytes = bytes;
    return Make();
  }

  std::string BackupPath() override { return directory_ + "/backup.db"; }
  void Restore(const std::string& path) override {
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      EXPECT_EQ(entry.path().string(), path) << "left behind";
    }
    options_.prefix += "restored/";
    const auto copied = CopyStore({path, std::nullopt}, {"", options_});
    EXPECT_TRUE(copied.ok()) << copied.status();
  }

 private:
  EtcdStoreOptions options_;
  std::string directory_;
};

// The next step of folding of whoever has the store when this is made: the oldest change of its
// log.
class OwnersFold {
 public:
  explicit OwnersFold(const EtcdStoreOptions& options)
      : folder_(options, *EtcdClient::Make(options.etcd)) {
    const EtcdKeys keys(options.prefix);
    const auto client = *EtcdClient::Make(options.etcd);
    const EtcdReader reader(options.etcd, *client);
    const EtcdFolded folded = *ParseFolded(*reader.ValueOf(keys.Folded()));
    oldest_.revision = folded.revision + 1;
    oldest_.bytes = *reader.ValueOf(keys.Log(oldest_.revision));
    oldest_.digest = NextDigest(folded.digest, oldest_.bytes);
    folder_.Begin(folded, {});
  }

  absl::Status Run() { return folder_.Fold({oldest_}).status(); }

 private:
  EtcdFolder folder_;
  EtcdChange oldest_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_CONTRACT_ETCD_HARNESS_H_
