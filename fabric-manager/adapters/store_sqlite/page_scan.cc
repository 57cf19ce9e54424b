#include "fabric-manager/adapters/store_sqlite/page_scan.h"

#include <algorithm>
#include <optional>
#include <set>

#include "fabric-manager/adapters/store_sqlite/schema.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kUsable = kPageBytes;
constexpr size_t kFileHeaderBytes = 100;  // Before the tree's part of page 1.
constexpr size_t kLeafHeaderBytes = 8;
constexpr char kTableLeaf = 0x0d;
constexpr size_t kMaxPayloadBytes = 64 << 20;

uint64_t BigEndian(absl::string_view bytes) {
  uint64_t word = 0;
  for (const char c : bytes) word = word << 8 | static_cast<unsigned char>(c);
  return word;
}

// Takes SQLite's variable-length integer off the front of `in`: up to eight bytes of seven bits
// each, whose top bit says that more follow, and then one of eight bits. Nothing: `in` ends before
// it does, and is left as it was.
std::optional<uint64_t> TakeVarint(absl::string_view& in) {
  uint64_t word = 0;
  for (size_t i = 0; i < 9 && i < in.size(); ++i) {
    const auto byte = static_cast<unsigned char>(in[i]);
    if (i == 8) {
      in.remove_prefix(9);
      return word << 8 | byte;
    }
    word = word << 7 | (byte & 0x7f);
    if ((byte & 0x80) == 0) {
      in.remove_prefix(i + 1);
      return word;
    }
  }
  return std::nullopt;
}

// How many bytes a value of that serial type takes.
size_t ValueSize(uint64_t type) {
  constexpr size_t kIntegers[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
  return type < 12 ? kIntegers[type] : (type - 12) / 2;
}

// `bytes` are as many as ValueSize says. Floating point, which no table of ours has, and the types
// that SQLite reserves are kOther.
ScannedValue ValueOf(uint64_t type, absl::string_view bytes) {
  ScannedValue value;
  if (type == 0) {
    value.kind = ScannedValue::Kind::kNull;
  } else if (type <= 6) {
    value.kind = ScannedValue::Kind::kInteger;
    // Two's complement: the first byte has the sign.
    const bool negative = (bytes[0] & 0x80) != 0;
    const uint64_t word = BigEndian(bytes);
    const size_t bits = 8 * bytes.size();
    value.integer =
        static_cast<int64_t>(negative && bits < 64 ? word | ~uint64_t{0} << bits : word);
  } else if (type == 8 || type == 9) {
    value.kind = ScannedValue::Kind::kInteger;
    value.integer = type == 9 ? 1 : 0;
  } else if (type >= 12) {
    value.kind = ScannedValue::Kind::kBytes;
    value.bytes = bytes;
  }
  return value;
}

// A header with the types of all values, then the values. Empty: they do not fit together, so this
// is no row.
std::vector<ScannedValue> ValuesOf(absl::string_view payload) {
  absl::string_view header = payload;
  const std::optional<uint64_t> header_bytes = TakeVarint(header);
  const size_t taken = payload.size() - header.size();
  if (!header_bytes.has_value() || *header_bytes < taken || *header_bytes > payload.size()) {
    return {};
  }
  header = payload.substr(taken, *header_bytes - taken);
  absl::string_view body = payload.substr(*header_bytes);
  std::vector<ScannedValue> values;
  while (!header.empty()) {
    const std::optional<uint64_t> type = TakeVarint(header);
    if (!type.has_value() || ValueSize(*type) > body.size()) return {};
    values.push_back(ValueOf(*type, body.substr(0, ValueSize(*type))));
    body.remove_prefix(ValueSize(*type));
  }
  return values;
}

class Scanner {
 public:
  Scanner(absl::string_view image, const std::function<void(const ScannedRow&)>& each)
      : image_(image), each_(each) {}

  void Run() {
    FindFreePages();
    for (uint64_t page = 1; page <= image_.size() / kPageBytes; ++page) {
      if (!free_.contains(page)) ReadLeaf(page);
    }
  }

 private:
  absl::string_view Page(uint64_t number) const {
    if (number == 0 || number > image_.size() / kPageBytes) return {};
    return image_.substr((number - 1) * kPageBytes, kPageBytes);
  }

  // A chain of trunks, each with the numbers of more free pages. Damage may make it go round, or
  // lead out of the file: there it ends.
  void FindFreePages() {
    if (image_.size() < kFileHeaderBytes) return;
    uint64_t trunk = BigEndian(image_.substr(32, 4));
    for (absl::string_view page = Page(trunk); !page.empty(); page = Page(trunk)) {
      if (!free_.insert(trunk).second) return;
      const uint64_t count = std::min<uint64_t>(BigEndian(page.substr(4, 4)), kUsable / 4 - 2);
      for (uint64_t i = 0; i < count; ++i) free_.insert(BigEndian(page.substr(8 + 4 * i, 4)));
      trunk = BigEndian(page.substr(0, 4));
    }
  }

  // Nothing in the page is relied on: a pointer that leads out of it, or into its header, is
  // skipped.
  void ReadLeaf(uint64_t number) {
    const absl::string_view page = Page(number);
    const size_t start = number == 1 ? kFileHeaderBytes : 0;
    if (page[start] != kTableLeaf) return;
    const uint64_t cells = BigEndian(page.substr(start + 3, 2));
    const size_t pointers = start + kLeafHeaderBytes;
    for (uint64_t i = 0; i < cells && pointers + 2 * i + 2 <= page.size(); ++i) {
      const uint64_t at = BigEndian(page.substr(pointers + 2 * i, 2));
      if (at > pointers && at < page.size()) ReadCell(page.substr(at));
    }
  }

  // Brings a row only where all of it is there.
  void ReadCell(absl::string_view cell) {
    const std::optional<uint64_t> size = TakeVarint(cell);
    const std::optional<uint64_t> id = size.has_value() ? TakeVarint(cell) : std::nullopt;
    if (!id.has_value() || *size == 0 || *size > kMaxPayloadBytes) return;
    std::string payload = PayloadOf(cell, *size);
    if (payload.size() != *size) return;
    ScannedRow row{*id, ValuesOf(payload)};
    if (!row.values.empty()) each_(row);
  }

  // What is on the leaf, and what the overflow pages have. Shorter than `size`: it is broken. How
  // much of a large payload is on the leaf is X, M and K of the format ("B-tree Pages"). Each page
  // brings a byte at least, so a chain that goes round ends too.
  std::string PayloadOf(absl::string_view cell, uint64_t size) const {
    constexpr size_t kMostHere = kUsable - 35;
    constexpr size_t kLeastHere = (kUsable - 12) * 32 / 255 - 23;
    size_t here = size;
    if (size > kMostHere) {
      here = kLeastHere + (size - kLeastHere) % (kUsable - 4);
      if (here > kMostHere) here = kLeastHere;
    }
    if (cell.size() < here) return "";
    std::string payload(cell.substr(0, here));
    if (here == size) return payload;
    if (cell.size() < here + 4) return "";
    uint64_t next = BigEndian(cell.substr(here, 4));
    while (payload.size() < size) {
      const absl::string_view page = Page(next);
      if (page.empty()) return "";
      const size_t part = std::min<size_t>(size - payload.size(), kUsable - 4);
      payload.append(page.data() + 4, part);
      next = BigEndian(page.substr(0, 4));
    }
    return payload;
  }

  const absl::string_view image_;
  const std::function<void(const ScannedRow&)>& each_;
  std::set<uint64_t> free_;
};

}  // namespace

void ScanPages(absl::string_view image, const std::function<void(const ScannedRow&)>& each) {
  Scanner(image, each).Run();
}

}  // namespace cxlpool::fm
