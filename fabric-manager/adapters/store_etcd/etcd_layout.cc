#include "fabric-manager/adapters/store_etcd/etcd_layout.h"

#include <lz4.h>

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fabric-manager/ports/pack.h"
#include "proto/support/check.h"
#include "proto/support/sha256.h"

namespace cxlpool::fm {
namespace {

// Of fixed width, so that texts are in order of the numbers.
std::string Digits(uint64_t number) { return absl::StrCat(absl::Hex(number, absl::kZeroPad16)); }

std::optional<uint64_t> NumberIn(absl::string_view digits) {
  uint64_t number = 0;
  if (digits.size() != 16 || !absl::SimpleHexAtoi(digits, &number)) return std::nullopt;
  return number;
}

// Takes `count` bytes off the front of `bytes`; false: there are not so many.
bool Take(absl::string_view& bytes, size_t count, absl::string_view& taken) {
  if (bytes.size() < count) return false;
  taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return true;
}

// The inverse of AppendWord.
bool TakeWord(absl::string_view& bytes, uint64_t& word) {
  absl::string_view taken;
  if (!Take(bytes, sizeof(word), taken)) return false;
  word = LoadWord(taken.data());
  return true;
}

}  // namespace

std::string ToText(const EtcdHead& head) {
  return absl::StrCat(head.epoch, " ", head.revision, " ", head.digest, " ", head.owner);
}

// Exactly four words: a head of a later release, which may have more, is not taken for one of this.
std::optional<EtcdHead> ParseHead(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  EtcdHead head;
  if (words.size() != 4 || !absl::SimpleAtoi(words[0], &head.epoch) ||
      !absl::SimpleAtoi(words[1], &head.revision)) {
    return std::nullopt;
  }
  head.digest = words[2];
  head.owner = words[3];
  return head;
}

bool IsLaterHead(absl::string_view text) {
  std::vector<std::string> words = absl::StrSplit(text, ' ');
  if (words.size() <= 4) return false;
  words.resize(4);
  return ParseHead(absl::StrJoin(words, " ")).has_value();
}

std::string ToText(const EtcdFolded& folded) {
  return absl::StrCat(folded.revision, " ", folded.digest, " ", folded.pack_bytes, " ",
                      folded.epoch);
}

std::optional<EtcdFolded> ParseFolded(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  EtcdFolded folded;
  if (words.size() != 4 || !absl::SimpleAtoi(words[0], &folded.revision) ||
      !absl::SimpleAtoi(words[2], &folded.pack_bytes) ||
      !absl::SimpleAtoi(words[3], &folded.epoch)) {
    return std::nullopt;
  }
  folded.digest = words[1];
  return folded;
}

std::string NextDigest(absl::string_view digest, absl::string_view change) {
  return absl::BytesToHexString(Sha256({digest, change}));
}

std::string EtcdKeys::Log(uint64_t revision, uint64_t part) const {
  return absl::StrCat(prefix_, "log/", Digits(revision), "/", Digits(part));
}

std::string EtcdKeys::Pack(uint64_t first) const {
  return absl::StrCat(prefix_, "p/", Digits(first));
}

// Any of its pieces: what stands behind the number is left alone.
std::optional<uint64_t> EtcdKeys::RevisionOfLog(absl::string_view key) const {
  if (!absl::ConsumePrefix(&key, prefix_) || !absl::ConsumePrefix(&key, "log/")) {
    return std::nullopt;
  }
  return NumberIn(key.substr(0, 16));
}

std::optional<uint64_t> EtcdKeys::FirstOfPack(absl::string_view key) const {
  if (!absl::ConsumePrefix(&key, prefix_) || !absl::ConsumePrefix(&key, "p/")) return std::nullopt;
  return NumberIn(key);
}

std::string Compress(absl::string_view bytes) {
  const auto size = static_cast<int>(bytes.size());
  std::string compressed;
  AppendWord(compressed, bytes.size());
  const size_t head = compressed.size();
  compressed.resize(head + static_cast<size_t>(LZ4_compressBound(size)));
  const int written = LZ4_compress_default(bytes.data(), compressed.data() + head, size,
                                           static_cast<int>(compressed.size() - head));
  CXLPOOL_CHECK(written > 0, "LZ4 refused ", size, " bytes");
  compressed.resize(head + static_cast<size_t>(written));
  return compressed;
}

bool Expand(absl::string_view compressed, std::string& bytes) {
  uint64_t size = 0;
  // No byte of a block stands for more than 255: what a length that was changed costs is bounded.
  if (!TakeWord(compressed, size) || size > compressed.size() * 255) return false;
  if (size > LZ4_MAX_INPUT_SIZE) return false;
  bytes.resize(size);
  return LZ4_decompress_safe(compressed.data(), bytes.data(), static_cast<int>(compressed.size()),
                             static_cast<int>(size)) == static_cast<int>(size);
}

// Counts before what they count, and a checksum of each row, so that a piece that is missing, cut
// or changed is noticed before any of it is used.
std::string EncodeChange(const StoreBatch& batch) {
  std::string bytes;
  AppendWord(bytes, batch.puts.size());
  for (const Row& row : batch.puts) {
    AppendWord(bytes, row.key);
    AppendWord(bytes, row.value.size());
    AppendWord(bytes, RecordCrc(row.key, row.value));
    bytes += row.value;
  }
  AppendWord(bytes, batch.erases.size());
  for (const uint64_t key : batch.erases) AppendWord(bytes, key);
  return Compress(bytes);
}

// Rows are in the order in which they were put: of two of one key the last counts. Bytes that are
// left over are an error, too.
bool DecodeChange(absl::string_view compressed, StoreBatch& batch) {
  std::string expanded;
  if (!Expand(compressed, expanded)) return false;
  absl::string_view bytes = expanded;
  uint64_t puts = 0;
  if (!TakeWord(bytes, puts)) return false;
  for (uint64_t i = 0; i < puts; ++i) {
    Row row;
    uint64_t length = 0, crc = 0;
    absl::string_view value;
    if (!TakeWord(bytes, row.key) || !TakeWord(bytes, length) || !TakeWord(bytes, crc) ||
        !Take(bytes, length, value) || RecordCrc(row.key, value) != crc) {
      return false;
    }
    row.value = std::string(value);
    batch.puts.push_back(std::move(row));
  }
  uint64_t erases = 0;
  if (!TakeWord(bytes, erases)) return false;
  for (uint64_t i = 0; i < erases; ++i) {
    uint64_t key = 0;
    if (!TakeWord(bytes, key)) return false;
    batch.erases.push_back(key);
  }
  return bytes.empty();
}

}  // namespace cxlpool::fm
