// Rows of a store, which a disk may have changed and another release may have written.

#include <string>
#include <variant>

#include "fabric-manager/service/record_codec.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

constexpr fm::Key kKey = 17;

// The row as this release writes it; nothing where it cannot be read.
std::string Rewritten(fm::Key key, const std::string& row) {
  const auto record = fm::DecodeRecord(key, row);
  if (!record.ok()) return "";
  if (const auto* meta = std::get_if<fm::PoolMeta>(&*record)) return fm::EncodePool(*meta);
  const fm::Item& item = std::get<fm::Item>(*record);
  if (const auto* row = std::get_if<fm::AuditRowPtr>(&item)) (void)fm::DecodeEntries(**row);
  return fm::EncodeItem(item);
}

// What was read is what is written: read and written again it stays.
CXLPOOL_FUZZ(records) {
  for (const fm::Key key : {fm::kPoolKey, kKey}) {
    const std::string once = Rewritten(key, bytes);
    if (!once.empty()) Require(Rewritten(key, once) == once);
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
