// Several records in one row of a store, so that the cost of a row is shared: for every Store whose
// rows cost more than their bytes.
//
//   pack   := entry*                    in ascending order of key, at most one a key
//   entry  := key u64 · length u32 · crc u32 · value        little-endian; crc: RecordCrc
//
// A row of the table `packs` holds the records from its own id `first` up to, and without, the next
// row's. kPackBytes makes a pack as large as fits on one database page, so that changing one record
// writes one page, as a row of its own would. A record that is larger has a pack to itself.
//
// Pure functions.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_PACK_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_PACK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cxlpool::fm {

// What SQLite keeps of a row on its leaf: 4096 - 35 bytes, less the row's own header.
inline constexpr size_t kPackBytes = 4040;
inline constexpr size_t kEntryHeaderBytes = 16;

// `crc` is that of the bytes before; 0 at the start. ISA-L computes it where it was built in, ten
// times faster than zlib, to the same result.
uint32_t Crc32(uint32_t crc, absl::string_view bytes);

// Eight bytes, little-endian: how stores write numbers that they check themselves.
void AppendWord(std::string& out, uint64_t word);

// The checksum of one record: CRC-32 (ISO 3309, zlib's) of its key, 8 bytes little-endian, and its
// value. So a value under another's key is caught as a flipped bit is.
uint32_t RecordCrc(uint64_t key, absl::string_view value);

struct Entry {
  uint64_t key = 0;
  uint32_t crc = 0;  // As stored; ReadPack does not look whether it fits.
  absl::string_view value;
};

// Calls `each(entry)` for every entry of `pack`. False: its framing is broken from there on.
template <typename Each>
bool ReadPack(absl::string_view pack, Each each);

// One record's new value, or its end.
struct Edit {
  uint64_t key = 0;
  const std::string* value = nullptr;  // Null: erase.
};

// What changed in the sums over all records.
struct PackSums {
  int64_t records = 0;
  uint64_t crc_sum = 0;  // Mod 2^64.
};

struct Pack {
  uint64_t first = 0;  // Of the row.
  std::string body;
};

// `old` with `edits` (ascending, one a key) applied, as the packs that take its place: the first
// one keeps the row id `first`, which is at most the first key. `at_end`: no row comes after, so
// packs are filled, for keys ascend; otherwise a pack that has grown too large is halved. Empty: no
// record is left. Adds what changed to `sums`. False: the framing of `old` is broken. `pack_bytes`:
// how large a pack of more than one record may be.
bool EditPack(uint64_t first, absl::string_view old, const Edit* begin, const Edit* end,
              bool at_end, PackSums& sums, std::vector<Pack>& out, size_t pack_bytes = kPackBytes);

// Implementation.

uint64_t LoadWord(const char* from);
uint32_t LoadHalf(const char* from);

template <typename Each>
bool ReadPack(absl::string_view pack, Each each) {
  while (!pack.empty()) {
    if (pack.size() < kEntryHeaderBytes) return false;
    Entry entry{LoadWord(pack.data()), LoadHalf(pack.data() + 12), {}};
    const uint32_t length = LoadHalf(pack.data() + 8);
    if (pack.size() - kEntryHeaderBytes < length) return false;
    entry.value = pack.substr(kEntryHeaderBytes, length);
    pack.remove_prefix(kEntryHeaderBytes + length);
    each(entry);
  }
  return true;
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_PACK_H_
