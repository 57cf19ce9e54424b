// Backups of a store on etcd, put back as docs/replicated.md says: copied under another prefix.
#ifndef CXLPOOL_TEST_CONTRACT_ETCD_BACKUPS_H_
#define CXLPOOL_TEST_CONTRACT_ETCD_BACKUPS_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/store_copy.h"

namespace cxlpool::fm {

class EtcdBackups {
 public:
  EtcdBackups() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cxlpool-backup-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~EtcdBackups() { std::filesystem::remove_all(directory_); }

  std::string BackupPath() const { return directory_ + "/backup.db"; }

  // `options` are then of the place that has it.
  void Restore(const std::string& path, EtcdStoreOptions& options) {
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      EXPECT_EQ(entry.path().string(), path) << "left behind";
    }
    options.prefix += "restored/";
    const auto copied = CopyStore({path, std::nullopt}, {"", options});
    EXPECT_TRUE(copied.ok()) << copied.status();
  }

 private:
  std::string directory_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_CONTRACT_ETCD_BACKUPS_H_
