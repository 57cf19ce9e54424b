// What etcd answers with: heads, pieces of the log and packs, which another release, or another
// program with the right to write there, may have left.

#include <cstddef>
#include <string>
#include <vector>

#include "fabric-manager/adapters/store_etcd/etcd_layout.h"
#include "fabric-manager/ports/pack.h"
#include "fabric-manager/ports/store.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

// What was read is what is written: written and read again it is the same.
void ReadChange(const std::string& compressed) {
  fm::StoreBatch batch;
  if (!fm::DecodeChange(compressed, batch)) return;
  const std::string once = fm::EncodeChange(batch);
  fm::StoreBatch again;
  Require(fm::DecodeChange(once, again));
  Require(fm::EncodeChange(again) == once);
}

// No entry is larger than the pack; one that is cut is noticed.
void ReadPackOfRows(const std::string& pack) {
  size_t read_bytes = 0;
  const bool whole = fm::ReadPack(pack, [&](const fm::Entry& entry) {
    read_bytes += fm::kEntryHeaderBytes + entry.value.size();
  });
  Require(read_bytes <= pack.size() && whole == (read_bytes == pack.size()));
  const std::string value = "new";
  const fm::Edit edit = {.key = 17, .value = &value};
  fm::PackSums sums;
  std::vector<fm::Pack> packs;
  Require(fm::EditPack(0, pack, &edit, &edit + 1, /*at_end=*/false, sums, packs) == whole);
}

// As they are; and as what is read once it is expanded, since few bytes are an LZ4 block.
CXLPOOL_FUZZ(etcd_rows) {
  if (const auto head = fm::ParseHead(bytes); head.has_value()) {
    Require(fm::ParseHead(fm::ToText(*head)) == head);
  }
  if (const auto folded = fm::ParseFolded(bytes); folded.has_value()) {
    const auto again = fm::ParseFolded(fm::ToText(*folded));
    Require(again.has_value() && fm::ToText(*again) == fm::ToText(*folded));
  }
  const fm::EtcdKeys keys("pool/");
  (void)keys.RevisionOfLog(bytes);
  if (const auto first = keys.FirstOfPack(bytes); first.has_value()) {
    Require(keys.FirstOfPack(keys.Pack(*first)) == first);
  }
  ReadChange(bytes);
  ReadChange(fm::Compress(bytes));
  ReadPackOfRows(bytes);
  std::string expanded;
  if (fm::Expand(bytes, expanded)) ReadPackOfRows(expanded);
  Require(fm::Expand(fm::Compress(bytes), expanded) && expanded == bytes);
}

}  // namespace
}  // namespace cxlpool::fuzz
