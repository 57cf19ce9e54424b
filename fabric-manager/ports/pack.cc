#include "fabric-manager/ports/pack.h"

#ifdef CXLPOOL_ISAL
#include <isa-l/crc.h>
#else
#include <zlib.h>
#endif

#include <algorithm>
#include <cstring>

namespace cxlpool::fm {
namespace {

// Hosts are little-endian: cxl-capable ones all are, and a static_assert says so.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

template <typename T>
T Load(const char* from) {
  T word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

size_t SizeOf(const Entry& entry) { return kEntryHeaderBytes + entry.value.size(); }

void Append(const Entry& entry, std::string& out) {
  char header[kEntryHeaderBytes];
  const auto length = static_cast<uint32_t>(entry.value.size());
  std::memcpy(header, &entry.key, 8);
  std::memcpy(header + 8, &length, 4);
  std::memcpy(header + 12, &entry.crc, 4);
  out.append(header, sizeof(header));
  out.append(entry.value.data(), entry.value.size());
}

// The entries of the old pack and the edits, both in ascending order of key, as one list. An edit
// takes the place of the entry of its key, or stands where one would; what it erases is in neither.
class Merge {
 public:
  Merge(const Edit* begin, const Edit* end, PackSums& sums)
      : next_(begin), end_(end), sums_(sums) {}

  // The old entry leaves the sums where an edit names it, whether that replaces or erases it.
  void Old(const Entry& entry) {
    TakeEditsBelow(entry.key);
    if (next_ == end_ || next_->key != entry.key) {
      Keep(entry);
      return;
    }
    --sums_.records;
    sums_.crc_sum -= entry.crc;
    TakeEdit();
  }

  void Finish() {
    while (next_ != end_) TakeEdit();
  }

  const std::vector<Entry>& entries() const { return entries_; }
  size_t bytes() const { return bytes_; }

 private:
  void TakeEditsBelow(uint64_t key) {
    while (next_ != end_ && next_->key < key) TakeEdit();
  }

  void TakeEdit() {
    const Edit& edit = *next_++;
    if (edit.value == nullptr) return;
    const absl::string_view value(edit.value->data(), edit.value->size());
    const Entry entry{edit.key, RecordCrc(edit.key, value), value};
    ++sums_.records;
    sums_.crc_sum += entry.crc;
    Keep(entry);
  }

  void Keep(const Entry& entry) {
    entries_.push_back(entry);
    bytes_ += SizeOf(entry);
  }

  const Edit* next_;
  const Edit* const end_;
  PackSums& sums_;
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
};

}  // namespace

uint64_t LoadWord(const char* from) { return Load<uint64_t>(from); }
uint32_t LoadHalf(const char* from) { return Load<uint32_t>(from); }

// Where the framing of `old` is broken, `sums` is of no use afterwards, and nothing is in `out`.
bool EditPack(uint64_t first, absl::string_view old, const Edit* begin, const Edit* end,
              bool at_end, PackSums& sums, std::vector<Pack>& out, size_t pack_bytes) {
  Merge merge(begin, end, sums);
  if (!ReadPack(old, [&](const Entry& entry) { merge.Old(entry); })) return false;
  merge.Finish();
  // Halves leave room on both sides; where all comes at the end, nothing will need the room.
  const size_t enough =
      at_end || merge.bytes() <= pack_bytes ? pack_bytes : (merge.bytes() + 1) / 2;
  for (const Entry& entry : merge.entries()) {
    if (out.empty()) {
      out.push_back({first, {}});
      out.back().body.reserve(std::min(merge.bytes(), pack_bytes));
    } else if (out.back().body.size() >= enough ||
               out.back().body.size() + SizeOf(entry) > pack_bytes) {
      out.push_back({entry.key, {}});
      out.back().body.reserve(pack_bytes);
    }
    Append(entry, out.back().body);
  }
  return true;
}

uint32_t Crc32(uint32_t crc, absl::string_view bytes) {
  if (bytes.empty()) return crc;  // zlib takes a null pointer as "start again".
#ifdef CXLPOOL_ISAL
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
#else
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
#endif
}

void AppendWord(std::string& out, uint64_t word) {
  char bytes[8];
  std::memcpy(bytes, &word, sizeof(bytes));
  out.append(bytes, sizeof(bytes));
}

uint32_t RecordCrc(uint64_t key, absl::string_view value) {
  char word[8];
  for (int i = 0; i < 8; ++i) word[i] = static_cast<char>(key >> (8 * i));
  return Crc32(Crc32(0, {word, sizeof(word)}), value);
}

}  // namespace cxlpool::fm
