// forge-trail FILE: alters a row of the audit trail in a pool's database whose manager is stopped,
// as somebody does who can write to the database and makes all of its sums right: nothing but the
// chain of hashes shows it.

#include <iostream>
#include <memory>
#include <variant>

#include "absl/status/status.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/service/record_codec.h"
#include "test/contract/store_client.h"

namespace cxlpool::fm {
namespace {

// Says that somebody else made the changes of the first row.
absl::Status Forge(const char* file) {
  SqliteStoreOptions options;
  options.path = file;
  auto store = MakeSqliteStore(options);
  if (!store.ok()) return store.status();
  StoreClient client(*std::move(store));
  const auto image = client.Open();
  if (!image.ok()) return image.status();
  for (const Row& row : image->rows) {
    const auto record = DecodeRecord(row.key, row.value);
    if (!record.ok()) return record.status();
    const auto* item = std::get_if<Item>(&*record);
    const auto* audit = item == nullptr ? nullptr : std::get_if<AuditRowPtr>(item);
    if (audit == nullptr) continue;
    auto entries = DecodeEntries(**audit);
    if (!entries.ok()) return entries.status();
    for (AuditEntry& entry : *entries) entry.who = "cxlpool://operator/somebody-else";
    AuditRow forged = **audit;
    forged.bytes = EncodeEntries(*entries);
    return client.CommitNext({{row.key, EncodeItem(std::make_shared<const AuditRow>(forged))}});
  }
  return absl::NotFoundError("it has no audit trail");
}

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " FILE\n";
    return 2;
  }
  const absl::Status forged = cxlpool::fm::Forge(argv[1]);
  if (!forged.ok()) std::cerr << argv[0] << ": " << forged.message() << "\n";
  return forged.ok() ? 0 : 1;
}
