#include "fabric-manager/adapters/store_etcd/etcd_backup.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

EtcdBackup::EtcdBackup(const EtcdStoreOptions& options, std::unique_ptr<EtcdClient> client)
    : options_(options), records_(options, std::move(client)) {}

EtcdBackup::~EtcdBackup() {
  records_.Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::unique_ptr<EtcdBackup>> EtcdBackup::Start(const EtcdStoreOptions& options,
                                                              std::string path, uint64_t revision,
                                                              std::function<void()> on_read,
                                                              DoneWith<StoreBackup> done) {
  auto client = EtcdClient::Make(options.etcd);
  if (!client.ok()) return client.status();
  std::unique_ptr<EtcdBackup> backup(new EtcdBackup(options, *std::move(client)));
  try {
    backup->thread_ = std::thread([backup = backup.get(), path = std::move(path), revision,
                                   on_read = std::move(on_read), done = std::move(done)]() mutable {
      pthread_setname_np(pthread_self(), "etcd-backup");
      auto made = backup->Make(path, revision, on_read);
      backup->is_done_ = true;  // Before the answer: the next one may be asked for at once.
      std::move(done)(std::move(made));
    });
  } catch (const std::system_error& error) {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_THREAD",
                  absl::StrCat("cannot start the backup's thread: ", error.what()),
                  "raise the limit of tasks");
  }
  return backup;
}

absl::StatusOr<StoreBackup> EtcdBackup::Make(const std::string& path, uint64_t revision,
                                             const std::function<void()>& on_read) {
  absl::StatusOr<StoreImage> image = records_.ReadSince(revision);
  on_read();
  if (!image.ok()) return image.status();
  StoreBackup backup{.revision = image->revision};
  const absl::StatusOr<uint64_t> size = options_.write_backup(path, *std::move(image));
  if (!size.ok()) return size.status();
  backup.size_bytes = *size;
  return backup;
}

}  // namespace cxlpool::fm
