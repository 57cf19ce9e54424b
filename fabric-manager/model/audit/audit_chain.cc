#include "fabric-manager/model/audit/audit_chain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/sha256.h"

namespace cxlpool::fm {
namespace {

// Eight bytes, little-endian.
std::string Word(uint64_t word) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(word >> (8 * i)));
  return out;
}

std::string Missing(uint64_t first, uint64_t last) {
  return first == last ? absl::StrCat("row ", first, " is missing")
                       : absl::StrCat("rows ", first, " to ", last, " are missing");
}

// The rows in order of their numbers. Keys are given in the same order, so a row that lies before
// one of a smaller number has another's place.
std::vector<AuditRowPtr> InOrder(absl::Span<const AuditRowPtr> rows,
                                 std::vector<AuditFlaw>& flaws) {
  for (size_t i = 1; i < rows.size(); ++i) {
    const uint64_t before = rows[i - 1]->head.number;
    const uint64_t number = rows[i]->head.number;
    if (number > before) continue;
    flaws.push_back({number, number == before
                                 ? absl::StrCat("row ", number, " is there twice")
                                 : absl::StrCat("rows ", number, " and ", before,
                                                " are out of order: one has the other's place")});
  }
  std::vector<AuditRowPtr> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const AuditRowPtr& a, const AuditRowPtr& b) {
    return a->head.number < b->head.number;
  });
  return sorted;
}

}  // namespace

std::string ToText(const AuditHead& head) {
  if (head.number == 0) return "";
  return absl::StrCat(head.number, ":", absl::BytesToHexString(head.hash));
}

// The inverse of ToText; digits of either case, since people copy it by hand.
absl::StatusOr<AuditHead> ParseAuditHead(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  AuditHead head;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &head.number) && head.number > 0 &&
      parts[1].size() == 2 * kSha256Bytes &&
      std::all_of(parts[1].begin(), parts[1].end(), absl::ascii_isxdigit)) {
    head.hash = absl::HexStringToBytes(parts[1]);
    return head;
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_ANCHOR",
                absl::StrCat("\"", text, "\" is no anchor"),
                "give ROW:HASH as `cxlpool audit verify` prints it");
}

// The number is hashed along, so that no row can be given another number.
AuditHead NextHead(const AuditHead& before, absl::string_view bytes) {
  const uint64_t number = before.number + 1;
  const absl::string_view hash =
      CXLPOOL_MUTANT("audit-hash-without-previous") ? absl::string_view() : before.hash;
  return {number, Sha256({hash, Word(number), bytes})};
}

// Each row is held against the hash that the row before it has, so that one altered row is named,
// and not all that follow.
std::vector<AuditFlaw> VerifyChain(const AuditBounds& bounds, absl::Span<const AuditRowPtr> rows) {
  std::vector<AuditFlaw> flaws;
  const std::vector<AuditRowPtr> sorted = InOrder(rows, flaws);
  AuditHead last = bounds.dropped;
  for (const AuditRowPtr& row : sorted) {
    const uint64_t number = row->head.number;
    // A row behind a gap is not judged: the hash that it goes on from is missing with the others.
    if (number > last.number + 1) {
      flaws.push_back({last.number + 1, Missing(last.number + 1, number - 1)});
    } else if (number <= bounds.dropped.number) {
      flaws.push_back({number, absl::StrCat("row ", number, " is there, and was dropped")});
    } else if (number == last.number + 1 && row->head.hash != NextHead(last, row->bytes).hash) {
      flaws.push_back({number, absl::StrCat("row ", number,
                                            " was altered, or does not follow the row before it")});
    }
    last = row->head;
  }
  // The rows agree with each other; the pool's record has to agree with the last of them.
  if (last.number < bounds.head.number) {
    flaws.push_back({last.number + 1,
                     absl::StrCat("the trail was cut: ",
                                  Missing(last.number + 1, bounds.head.number), ", the last")});
  } else if (last.number > bounds.head.number) {
    flaws.push_back({bounds.head.number + 1,
                     absl::StrCat("the pool's record knows of no row behind ", bounds.head.number,
                                  ", and there are rows up to ", last.number)});
  } else if (last.hash != bounds.head.hash) {
    flaws.push_back({last.number, absl::StrCat("row ", last.number,
                                               ", the last, is another than the pool's record "
                                               "knows")});
  }
  if (flaws.size() > kMaxAuditFlaws) flaws.resize(kMaxAuditFlaws);
  return flaws;
}

// A chain that was written anew agrees with itself and with the pool's record: it differs from the
// anchor alone. An anchor at the very row that was dropped last is held against its hash, which is
// kept.
absl::StatusOr<std::optional<AuditFlaw>> CheckAnchor(const AuditBounds& bounds,
                                                     absl::Span<const AuditRowPtr> rows,
                                                     const AuditHead& anchor) {
  const uint64_t number = anchor.number;
  if (number < bounds.dropped.number) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "ANCHOR_TOO_OLD",
                  absl::StrCat("row ", number, " was dropped: the trail begins behind row ",
                               bounds.dropped.number),
                  "use a later anchor");
  }
  if (number > bounds.head.number) {
    return AuditFlaw{bounds.head.number + 1,
                     absl::StrCat("the trail was cut: it ends at row ", bounds.head.number,
                                  ", and the anchor is row ", number)};
  }
  AuditHead now = bounds.dropped;
  for (const AuditRowPtr& row : rows) {
    if (row->head.number == number) now = row->head;
  }
  if (now == anchor) return std::nullopt;
  return AuditFlaw{number, absl::StrCat("row ", number,
                                        " is another than the anchor's: the trail was written anew "
                                        "up to there")};
}

}  // namespace cxlpool::fm
