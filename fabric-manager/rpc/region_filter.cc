#include "fabric-manager/rpc/region_filter.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "proto/support/byte_size.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// Reads from left to right and stops at the first thing that does not belong.
class RegionFilterParser {
 public:
  explicit RegionFilterParser(absl::string_view text) : text_(text) {}

  // Comparisons with AND between them, up to the end. Only spaces: a filter that every Region
  // passes.
  absl::StatusOr<RegionFilter> Parse() {
    if (text_.size() > RegionFilter::kMaxCharacters) {
      return Bad(RegionFilter::kMaxCharacters, "is too long",
                 absl::StrCat("use at most ", RegionFilter::kMaxCharacters, " characters"));
    }
    RegionFilter filter;
    SkipSpace();
    while (!AtEnd()) {
      RegionFilter::Comparison comparison;
      if (absl::Status status = ReadComparison(comparison); !status.ok()) return status;
      filter.all_.push_back(std::move(comparison));
      SkipSpace();
      if (AtEnd()) break;
      const size_t at = at_;
      if (Word() != "AND") return BadAt(at, "join comparisons with AND");
      SkipSpace();
      if (AtEnd()) return BadAt(at_, "write a comparison after AND");
    }
    return filter;
  }

 private:
  using Field = RegionFilter::Field;
  using Operator = RegionFilter::Operator;

  enum class Kind { kName, kCollection, kState, kSharing, kSize, kNumber };
  struct FieldRule {
    absl::string_view word;
    Field field;
    Kind kind;
    absl::string_view collection;
  };
  static constexpr std::array<FieldRule, 9> kFields = {{
      {"name", Field::kName, Kind::kName, "regions/"},
      {"tenant", Field::kTenant, Kind::kCollection, "tenants/"},
      {"host", Field::kHost, Kind::kCollection, "hosts/"},
      {"device", Field::kDevice, Kind::kCollection, "devices/"},
      {"state", Field::kState, Kind::kState, ""},
      {"sharing", Field::kSharing, Kind::kSharing, ""},
      {"size_bytes", Field::kSizeBytes, Kind::kSize, ""},
      {"owner_uid", Field::kOwnerUid, Kind::kNumber, ""},
      {"revision", Field::kRevision, Kind::kNumber, ""},
  }};

  static bool IsOperator(char c) { return absl::StrContains("=!:<>", c); }
  bool AtEnd() const { return at_ == text_.size(); }
  void SkipSpace() {
    while (!AtEnd() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  // `at` is put down before each part is read, so that an error says where the wrong part begins.
  absl::Status ReadComparison(RegionFilter::Comparison& comparison) {
    size_t at = at_;
    const absl::string_view word = Word();
    const auto* const rule =
        std::find_if(kFields.begin(), kFields.end(),
                     [&](const FieldRule& candidate) { return candidate.word == word; });
    if (rule == kFields.end()) {
      return BadAt(
          at, "use name, tenant, host, device, state, sharing, size_bytes, owner_uid or revision");
    }
    comparison.field = rule->field;
    SkipSpace();
    at = at_;
    const auto op = ReadOperator();
    if (!op.has_value() || !MayStand(rule->kind, *op)) {
      return BadAt(at, absl::StrCat("after ", word, " use ", Operators(rule->kind)));
    }
    comparison.op = *op;
    SkipSpace();
    at = at_;
    std::string value;
    if (!ReadValue(value)) return BadAt(at, "write a value, in quotes where it has spaces");
    return ReadInto(*rule, at, std::move(value), comparison);
  }

  // Letters up to a space, a quote or an operator.
  absl::string_view Word() {
    const size_t begin = at_;
    while (!AtEnd() && text_[at_] != '"' && !IsOperator(text_[at_]) &&
           !absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  // Nothing: there is none here, and nothing has been read.
  std::optional<Operator> ReadOperator() {
    static constexpr std::array<std::pair<absl::string_view, Operator>, 7> kOperators = {{
        {"!=", Operator::kNotEqual},  // The longer ones first.
        {"<=", Operator::kLessOrEqual},
        {">=", Operator::kGreaterOrEqual},
        {"=", Operator::kEqual},
        {":", Operator::kContains},
        {"<", Operator::kLess},
        {">", Operator::kGreater},
    }};
    for (const auto& [word, op] : kOperators) {
      if (!absl::StartsWith(text_.substr(at_), word)) continue;
      at_ += word.size();
      return op;
    }
    return std::nullopt;
  }

  static bool MayStand(Kind kind, Operator op) {
    if (op == Operator::kEqual || op == Operator::kNotEqual) return true;
    return op == Operator::kContains ? kind == Kind::kName
                                     : kind == Kind::kNumber || kind == Kind::kSize;
  }
  static absl::string_view Operators(Kind kind) {
    if (kind == Kind::kName) return "=, != or :";
    const bool ordered = kind == Kind::kNumber || kind == Kind::kSize;
    return ordered ? "=, !=, <, <=, > or >=" : "= or !=";
  }

  // False: there is no value, or its quotes are not closed. Within quotes a backslash takes
  // whatever follows as it is.
  bool ReadValue(std::string& value) {
    if (AtEnd() || text_[at_] != '"') {
      value = std::string(Word());
      return !value.empty();
    }
    for (++at_; !AtEnd(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        return true;
      }
      if (text_[at_] == '\\' && ++at_ == text_.size()) return false;
      value.push_back(text_[at_]);
    }
    return false;
  }

  // Takes the value in the form in which Holds compares it: names without their collection, all
  // else as a number.
  absl::Status ReadInto(const FieldRule& rule, size_t at, std::string value,
                        RegionFilter::Comparison& comparison) {
    switch (rule.kind) {
      case Kind::kName:
      case Kind::kCollection:
        comparison.text = std::string(absl::StripPrefix(value, rule.collection));
        return absl::OkStatus();
      case Kind::kNumber:
        if (absl::SimpleAtoi(value, &comparison.number)) return absl::OkStatus();
        return BadAt(at, absl::StrCat("write ", rule.word, " as a whole number"));
      case Kind::kSize: {
        const auto size = ParseByteSize(value);
        if (!size.ok())
          return BadAt(at, absl::StrCat("write ", rule.word, " in bytes, or as 1GiB"));
        comparison.number = *size;
        return absl::OkStatus();
      }
      case Kind::kState:
        return ReadEnum(at, value, comparison.number, RegionState::kReserved,
                        RegionState::kQuarantined);
      case Kind::kSharing:
        return ReadEnum(at, value, comparison.number, Sharing::kExclusive, Sharing::kMultiWriter);
    }
    return absl::OkStatus();
  }

  // Takes the words of ToString, in any case and with "-" for "_". Where none fits, the refusal
  // lists them.
  template <typename Enum>
  absl::Status ReadEnum(size_t at, const std::string& value, uint64_t& number, Enum first,
                        Enum last) {
    const std::string wanted = absl::StrReplaceAll(absl::AsciiStrToUpper(value), {{"-", "_"}});
    std::string known;
    for (auto i = static_cast<uint64_t>(first); i <= static_cast<uint64_t>(last); ++i) {
      const absl::string_view word = ToString(static_cast<Enum>(i));
      if (wanted == word) {
        number = i;
        return absl::OkStatus();
      }
      absl::StrAppend(&known, known.empty() ? "" : ", ", word);
    }
    return BadAt(at, absl::StrCat("use one of ", known));
  }

  // Quotes at most 40 characters from there, escaped: a filter may hold any bytes.
  absl::Status BadAt(size_t at, const std::string& remedy) const {
    if (at >= text_.size()) return Bad(at, "ends too early", remedy);
    return Bad(at,
               absl::StrCat("is not understood at \"", absl::CHexEscape(text_.substr(at, 40)),
                            text_.size() > at + 40 ? "..." : "", "\""),
               remedy);
  }
  static absl::Status Bad(size_t at, const std::string& what, const std::string& remedy) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_FILTER",
                  absl::StrCat("field filter, character ", at + 1, ": ", what), remedy,
                  {{"character", absl::StrCat(at + 1)}});
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

absl::StatusOr<RegionFilter> RegionFilter::Parse(absl::string_view text) {
  return RegionFilterParser(text).Parse();
}

// Those of `!=` as well: a name that nothing has is a mistake there, too.
std::vector<std::pair<RegionFilter::Field, std::string>> RegionFilter::Names() const {
  std::vector<std::pair<Field, std::string>> names;
  for (const Comparison& comparison : all_) {
    const Field field = comparison.field;
    if (field == Field::kHost || field == Field::kDevice || field == Field::kTenant) {
      names.emplace_back(field, comparison.text);
    }
  }
  return names;
}

bool RegionFilter::NamesDevice() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Comparison& one) { return one.field == Field::kDevice; });
}

bool RegionFilter::Matches(const Region& region) const {
  return std::all_of(all_.begin(), all_.end(),
                     [&](const Comparison& comparison) { return Holds(comparison, region); });
}

// Whether one comparison holds. Parse has let only operators through that the field knows.
bool RegionFilter::Holds(const Comparison& comparison, const Region& region) {
  const auto is = [&](bool equal) { return equal == (comparison.op == Operator::kEqual); };
  const auto compare = [&](uint64_t value) {
    switch (comparison.op) {
      case Operator::kLess:
        return value < comparison.number;
      case Operator::kLessOrEqual:
        return value <= comparison.number;
      case Operator::kGreater:
        return value > comparison.number;
      case Operator::kGreaterOrEqual:
        return value >= comparison.number;
      default:
        return is(value == comparison.number);
    }
  };
  const std::string& text = comparison.text;
  switch (comparison.field) {
    case Field::kName:
      if (comparison.op == Operator::kContains) return absl::StrContains(region.id, text);
      return is(region.id == text);
    case Field::kTenant:
      return is(region.tenant.str() == text);
    case Field::kHost:
      return is(region.FindAttachment(text) != nullptr);
    case Field::kDevice:
      return is(region.HasBytesOn(text));
    case Field::kState:
      return compare(static_cast<uint64_t>(region.state));
    case Field::kSharing:
      return compare(static_cast<uint64_t>(region.sharing));
    case Field::kSizeBytes:
      return compare(region.size_bytes());
    case Field::kOwnerUid:
      if (!region.owner.has_value()) return comparison.op == Operator::kNotEqual;
      return compare(region.owner->uid);
    case Field::kRevision:
      return compare(region.revision);
  }
  return false;
}

}  // namespace cxlpool::fm
