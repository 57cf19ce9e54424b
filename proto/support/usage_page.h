// The page of counters by which a program shows the host agent what it does with its Regions: its
// layout in memory. libpool writes it, the agent reads it; no one is notified of a change, and no
// one waits.
//
// It is a memfd of kUsagePageBytes that cannot shrink. The program maps it and stores into it; the
// agent reads it by pread and never maps it, as the program may do with it what it likes. Each word
// is written by itself, so that a reader may see some of a change, for a moment. Its content is
// the program's claim: for people, and no ground for a decision.
//
// An entry is of one Region, named by its tag, of all that the program has open of it over this
// page. It is free while its tag is 0, and is claimed by writing the tag last. Bytes in bytes, all
// words in the order of the machine. Only plain data and pure functions, any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_USAGE_PAGE_H_
#define CXLPOOL_PROTO_SUPPORT_USAGE_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cxlpool {

inline constexpr size_t kUsagePageBytes = 4096;
inline constexpr size_t kMaxUsageEntries = 64;
inline constexpr uint64_t kUsageMagic = 0x31656761'73756c63;  // "clusage1": the layout's version.

// A Region's tag, which is a UUID as text, in two words; both are 0 where it is no UUID.
struct UsageTag {
  uint64_t high = 0;
  uint64_t low = 0;
  bool is_set() const { return (high | low) != 0; }
  friend bool operator==(const UsageTag&, const UsageTag&) = default;
};

struct UsageEntry {
  UsageTag tag;
  uint64_t mapped_bytes = 0;
  uint64_t live_bytes = 0;   // Of what it allocated: bytes that hold something,
  uint64_t slack_bytes = 0;  // and bytes that wait to.
  uint64_t pins = 0;
};

struct UsagePage {
  uint64_t magic = kUsageMagic;
  uint64_t reserved[7] = {};
  UsageEntry entries[kMaxUsageEntries] = {};
};
static_assert(sizeof(UsageEntry) == 48 && sizeof(UsagePage) <= kUsagePageBytes);

inline UsageTag UsageTagOf(std::string_view uuid) {
  UsageTag tag;
  int digits = 0;
  for (const char c : uuid) {
    if (c == '-') continue;
    const char lower = static_cast<char>(c | 0x20);
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (lower < 'a' || lower > 'f')) return {};
    const auto value = static_cast<uint64_t>(is_digit ? c - '0' : lower - 'a' + 10);
    uint64_t& word = digits++ < 16 ? tag.high : tag.low;
    word = word << 4 | value;
  }
  return digits == 32 ? tag : UsageTag();
}

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_USAGE_PAGE_H_
