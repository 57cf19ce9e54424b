#include "tools/cli/fields.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/byte_size.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::cli {
namespace {

constexpr absl::Duration kMaxPeriod = absl::Hours(24);
constexpr absl::Duration kMaxTerm = absl::Hours(24 * 3652);
constexpr size_t kMaxText = 1024;

absl::Status Bad(std::string reason, absl::string_view flag, absl::string_view text,
                 absl::string_view why, std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, std::move(reason),
                absl::StrCat(flag, " \"", absl::CHexEscape(text.substr(0, 80)), "\" ", why),
                std::move(remedy));
}

template <typename Enum>
struct EnumWord {
  const char* text;
  Enum value;
};

// The value of the word `text`; BAD_VALUE names all words that the flag knows.
template <typename Enum, size_t kCount>
absl::StatusOr<Enum> OneOf(absl::string_view flag, absl::string_view text,
                           const std::array<EnumWord<Enum>, kCount>& words) {
  std::string known;
  for (const EnumWord<Enum>& word : words) {
    if (text == word.text) return word.value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", word.text);
  }
  return Bad("BAD_VALUE", flag, text, "is not a value it knows",
             absl::StrCat("use one of ", known));
}

constexpr std::array<EnumWord<v1::AttachmentMode>, 2> kModes = {
    {{"devdax", v1::DEVDAX}, {"system-ram", v1::SYSTEM_RAM}}};
constexpr std::array<EnumWord<v1::MemoryZone>, 2> kZones = {
    {{"movable", v1::MOVABLE}, {"kernel", v1::KERNEL}}};
constexpr std::array<EnumWord<v1::Access>, 2> kAccesses = {
    {{"rw", v1::READ_WRITE}, {"ro", v1::READ_ONLY}}};
constexpr std::array<EnumWord<v1::Enforcer>, 2> kEnforcers = {
    {{"fabric", v1::FABRIC}, {"any", v1::ENFORCER_UNSPECIFIED}}};
constexpr std::array<EnumWord<v1::Role>, 6> kRoles = {{{"viewer", v1::VIEWER},
                                                       {"tenant", v1::TENANT},
                                                       {"scheduler", v1::SCHEDULER},
                                                       {"metrics", v1::METRICS},
                                                       {"operator", v1::OPERATOR},
                                                       {"admin", v1::ADMIN}}};
constexpr std::array<EnumWord<v1::PlacementPolicy>, 5> kPolicies = {{{"pack", v1::PACK},
                                                                     {"spread", v1::SPREAD},
                                                                     {"bandwidth", v1::BANDWIDTH},
                                                                     {"latency", v1::LATENCY},
                                                                     {"isolate", v1::ISOLATE}}};
constexpr std::array<EnumWord<v1::Sharing>, 3> kSharings = {{{"exclusive", v1::EXCLUSIVE},
                                                             {"single-writer", v1::SINGLE_WRITER},
                                                             {"multi-writer", v1::MULTI_WRITER}}};

template <typename Enum, size_t kCount>
std::string Choices(const std::array<EnumWord<Enum>, kCount>& words) {
  return absl::StrJoin(words, ",", [](std::string* out, const EnumWord<Enum>& word) {
    absl::StrAppend(out, word.text);
  });
}

// A number without a unit is seconds. `how`, `range`: the remedies for what is no period, and for
// one beyond (0, most].
absl::StatusOr<absl::Duration> ReadPeriod(absl::string_view flag, absl::string_view text,
                                          absl::Duration most, std::string how, std::string range) {
  absl::Duration period;
  const bool bare = !text.empty() && std::all_of(text.begin(), text.end(),
                                                 [](char c) { return absl::ascii_isdigit(c); });
  const std::string with_unit = bare ? absl::StrCat(text, "s") : std::string(text);
  if (!absl::ParseDuration(with_unit, &period)) {
    return Bad("BAD_DURATION", flag, text, "is not a period of time", std::move(how));
  }
  if (period <= absl::ZeroDuration() || period > most) {
    return Bad("BAD_DURATION", flag, text, "is out of range", std::move(range));
  }
  return period;
}

}  // namespace

std::string ChoiceType(absl::string_view value) {
  const std::string choices = value == "MODE"      ? Choices(kModes)
                              : value == "ZONE"    ? Choices(kZones)
                              : value == "ACCESS"  ? Choices(kAccesses)
                              : value == "SHARING" ? Choices(kSharings)
                              : value == "WHOSE"   ? Choices(kEnforcers)
                              : value == "RIGHTS"  ? Choices(kRoles)
                                                   : Choices(kPolicies);
  return absl::StrCat(value, ":{", choices, "}");
}

absl::StatusOr<std::string> FullName(absl::string_view collection, absl::string_view text) {
  const std::string name =
      absl::StrContains(text, '/') ? std::string(text) : ResourceName(collection, text);
  const auto id = ParseResourceName(collection, name);
  if (!id.ok()) return id.status();
  return name;
}

std::string FullIdentity(const std::string& text) {
  return absl::StrContains(text, ':') ? text : absl::StrCat("cxlpool://operator/", text);
}

absl::StatusOr<absl::Duration> ParsePeriod(absl::string_view flag, absl::string_view text) {
  return ReadPeriod(flag, text, kMaxPeriod, "write it as 30s, 1m30s or 500ms",
                    "use more than 0 and at most 24h");
}

// As ParsePeriod, and days: absl::ParseDuration knows none.
absl::StatusOr<absl::Duration> ParseTerm(absl::string_view flag, absl::string_view text) {
  uint64_t days = 0;
  absl::string_view number = text;
  if (absl::ConsumeSuffix(&number, "d") && absl::SimpleAtoi(number, &days)) {
    // Cut before it overflows; it is out of range either way.
    const uint64_t hours = std::min<uint64_t>(days, 1'000'000) * 24;
    return ReadPeriod(flag, absl::StrCat(hours, "h"), kMaxTerm, "", "use at most 3652d");
  }
  return ReadPeriod(flag, text, kMaxTerm, "write it as 90s, 12h or 30d",
                    "use more than 0 and at most 3652d");
}

// The first error is reported: later ones may follow from it.
void Fields::Keep(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

void Fields::Name(absl::string_view collection, const Flag& text, const SetText& set) {
  if (!text.has_value()) return;
  const auto name = FullName(collection, *text);
  if (!name.ok()) return Keep(name.status());
  set(*name);
}

void Fields::NameWithKind(const std::vector<std::string>& collections, const Flag& text,
                          const SetText& set) {
  if (!text.has_value()) return;
  const size_t slash = text->find('/');
  if (slash == std::string::npos) return;
  const std::string kind = text->substr(0, slash);
  for (const std::string& collection : collections) {
    if (kind != collection && absl::StrCat(kind, "s") != collection) continue;
    Name(collection, text->substr(slash + 1), set);
  }
}

void Fields::NewRegionId(const Flag& text, const SetText& set) {
  if (!text.has_value()) return;
  const std::string id(absl::StripPrefix(*text, "regions/"));
  if (absl::Status status = CheckRegionId(id); !status.ok()) return Keep(status);
  set(id);
}

void Fields::Size(const Flag& text, const std::function<void(uint64_t)>& set) {
  if (!text.has_value()) return;
  const auto bytes = ParseByteSize(*text);
  if (!bytes.ok()) return Keep(bytes.status());
  if (*bytes == 0) return Keep(Bad("BAD_SIZE", "size", *text, "is zero", "ask for some bytes"));
  set(*bytes);
}

void Fields::Limit(const Flag& text, std::optional<uint64_t>& bytes) {
  if (!text.has_value()) return;
  const auto size = ParseByteSize(*text == "none" ? "0" : *text);
  if (!size.ok()) return Keep(size.status());
  bytes = *size;
}

void Fields::Number(absl::string_view flag, const Flag& text,
                    const std::function<void(uint64_t)>& set) {
  if (!text.has_value()) return;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(*text, &number)) {
    return Keep(Bad("BAD_VALUE", flag, *text, "is not a whole number of 0 or more", "use digits"));
  }
  set(number);
}

// Cut to 32 bits 4294967296 would be 0: as a user id, root.
void Fields::SmallNumber(absl::string_view flag, const Flag& text,
                         const std::function<void(uint32_t)>& set) {
  Number(flag, text, [&](uint64_t number) {
    if (number > UINT32_MAX) {
      return Keep(Bad("BAD_VALUE", flag, *text, "is too large", "use at most 4294967295"));
    }
    set(static_cast<uint32_t>(number));
  });
}

void Fields::Period(absl::string_view flag, const Flag& text, absl::Duration& period) {
  if (!text.has_value()) return;
  const auto parsed = ParsePeriod(flag, *text);
  if (!parsed.ok()) return Keep(parsed.status());
  period = *parsed;
}

void Fields::Term(absl::string_view flag, const Flag& text,
                  const std::function<void(google::protobuf::Duration)>& set) {
  if (!text.has_value()) return;
  const auto parsed = ParseTerm(flag, *text);
  if (!parsed.ok()) return Keep(parsed.status());
  google::protobuf::Duration term;
  absl::Duration rest = *parsed;
  term.set_seconds(absl::IDivDuration(rest, absl::Seconds(1), &rest));
  term.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  set(term);
}

void Fields::Policy(const Flag& text, const std::function<void(v1::PlacementPolicy)>& set) {
  if (!text.has_value()) return;
  const auto policy = OneOf("--policy", *text, kPolicies);
  if (!policy.ok()) return Keep(policy.status());
  set(*policy);
}

void Fields::Mode(const Flag& text, const std::function<void(v1::AttachmentMode)>& set) {
  if (!text.has_value()) return;
  const auto mode = OneOf("--mode", *text, kModes);
  if (!mode.ok()) return Keep(mode.status());
  set(*mode);
}

void Fields::Zone(const Flag& text, const std::function<void(v1::MemoryZone)>& set) {
  if (!text.has_value()) return;
  const auto zone = OneOf("--zone", *text, kZones);
  if (!zone.ok()) return Keep(zone.status());
  set(*zone);
}

void Fields::Access(const Flag& text, const std::function<void(v1::Access)>& set) {
  if (!text.has_value()) return;
  const auto access = OneOf("--access", *text, kAccesses);
  if (!access.ok()) return Keep(access.status());
  set(*access);
}

void Fields::Sharing(const Flag& text, const std::function<void(v1::Sharing)>& set) {
  if (!text.has_value()) return;
  const auto sharing = OneOf("--sharing", *text, kSharings);
  if (!sharing.ok()) return Keep(sharing.status());
  set(*sharing);
}

void Fields::Role(const Flag& text, const std::function<void(v1::Role)>& set) {
  if (!text.has_value()) return;
  const auto role = OneOf("--role", *text, kRoles);
  if (!role.ok()) return Keep(role.status());
  set(*role);
}

void Fields::Isolation(const Flag& text, const std::function<void(v1::Enforcer)>& set) {
  if (!text.has_value()) return;
  const auto enforcer = OneOf("--isolation", *text, kEnforcers);
  if (!enforcer.ok()) return Keep(enforcer.status());
  set(*enforcer);
}

// Words may come in one flag, with commas, or in several. An error keeps what was read before it;
// the command then fails as a whole.
void Fields::OpenTo(const std::vector<std::string>& texts, v1::OpenTo& open_to) {
  for (const std::string& text : texts) {
    for (const absl::string_view who : absl::StrSplit(text, ',')) {
      absl::string_view id = who;
      uint32_t number = 0;
      if (who == "everybody") {
        open_to.set_everybody(true);
      } else if (absl::ConsumePrefix(&id, "uid=") && absl::SimpleAtoi(id, &number)) {
        open_to.add_uids(number);
      } else if (absl::ConsumePrefix(&id, "gid=") && absl::SimpleAtoi(id, &number)) {
        open_to.add_gids(number);
      } else {
        return Keep(Bad("BAD_VALUE", "--open-to", who, "names no user",
                        "write uid=1000, gid=100 or everybody; ids are numbers (`id NAME`)"));
      }
    }
  }
}

void Fields::RequestId(const Flag& text, const SetText& set) {
  if (!text.has_value()) return;
  const auto uuid = ParseUuid(*text);
  if (!uuid.ok()) return Keep(uuid.status());
  set(FormatUuid(*uuid));
}

void Fields::Text(absl::string_view flag, const Flag& text, const SetText& set) {
  if (!text.has_value()) return;
  const bool plain =
      std::none_of(text->begin(), text->end(), [](char c) { return absl::ascii_iscntrl(c); });
  if (text->empty() || text->size() > kMaxText || !plain) {
    return Keep(Bad("BAD_VALUE", flag, *text, "is empty, too long or not plain text",
                    "use 1 to 1024 printable characters"));
  }
  set(*text);
}

}  // namespace cxlpool::cli
