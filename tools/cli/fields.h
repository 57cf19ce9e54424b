// Values of flags, read into the fields of a request; the first bad one is kept and explained.
//
// A flag that was not given leaves its field alone. Not thread-safe.
#ifndef CXLPOOL_TOOLS_CLI_FIELDS_H_
#define CXLPOOL_TOOLS_CLI_FIELDS_H_

#include <google/protobuf/duration.pb.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cxlpool/v1/resources.pb.h"
#include "cxlpool/v1/rule.pb.h"

namespace cxlpool::cli {

// A flag's text; nothing if it was not given.
using Flag = std::optional<std::string>;

// "kv" or "regions/kv" as "regions/kv". INVALID_ARGUMENT/BAD_NAME.
absl::StatusOr<std::string> FullName(absl::string_view collection, absl::string_view text);

// A name that is no URI is the one that `cxlpool pki issue operator NAME` was given: "alice" as
// "cxlpool://operator/alice". A URI stays as it is.
std::string FullIdentity(const std::string& text);

// "30s", "1m30s", "500ms", or a bare number of seconds; more than 0 and at most 24 h.
// INVALID_ARGUMENT/BAD_DURATION names `flag`.
absl::StatusOr<absl::Duration> ParsePeriod(absl::string_view flag, absl::string_view text);

// As ParsePeriod, and also "30d"; at most 10 years. For how long a Region is kept.
absl::StatusOr<absl::Duration> ParseTerm(absl::string_view flag, absl::string_view text);

// "MODE:{devdax,system-ram}": the words that a flag with a value MODE, ZONE, ACCESS, SHARING,
// WHOSE, RIGHTS or POLICY takes, as CLI11 shows choices in the help. Shells complete them from
// there.
std::string ChoiceType(absl::string_view value);

class Fields {
 public:
  using SetText = std::function<void(std::string)>;

  void Name(absl::string_view collection, const Flag& text, const SetText& set);
  // "region/kv" or "regions/kv" as "regions/kv", where the kind before the name is that of one of
  // `collections`. A text of another form is left alone: the command says which forms there are.
  void NameWithKind(const std::vector<std::string>& collections, const Flag& text,
                    const SetText& set);
  // A name without its collection, for a Region that does not exist yet.
  void NewRegionId(const Flag& text, const SetText& set);
  // As ParseByteSize, and more than 0.
  void Size(const Flag& text, const std::function<void(uint64_t)>& set);
  // As ParseByteSize; 0 or "none": no limit.
  void Limit(const Flag& text, std::optional<uint64_t>& bytes);
  void Number(absl::string_view flag, const Flag& text, const std::function<void(uint64_t)>& set);
  // At most 32 bits.
  void SmallNumber(absl::string_view flag, const Flag& text,
                   const std::function<void(uint32_t)>& set);
  void Period(absl::string_view flag, const Flag& text, absl::Duration& period);
  void Term(absl::string_view flag, const Flag& text,
            const std::function<void(google::protobuf::Duration)>& set);
  void Policy(const Flag& text, const std::function<void(v1::PlacementPolicy)>& set);
  void Mode(const Flag& text, const std::function<void(v1::AttachmentMode)>& set);
  void Zone(const Flag& text, const std::function<void(v1::MemoryZone)>& set);
  void Access(const Flag& text, const std::function<void(v1::Access)>& set);
  void Sharing(const Flag& text, const std::function<void(v1::Sharing)>& set);
  // "viewer", "operator" or "admin".
  void Role(const Flag& text, const std::function<void(v1::Role)>& set);
  // "fabric", or "any": no demand.
  void Isolation(const Flag& text, const std::function<void(v1::Enforcer)>& set);
  // uid=N, gid=N or everybody, several with commas between.
  void OpenTo(const std::vector<std::string>& texts, v1::OpenTo& open_to);
  void RequestId(const Flag& text, const SetText& set);
  // Free text of 1 to 1024 characters, none of them a control character.
  void Text(absl::string_view flag, const Flag& text, const SetText& set);

  // The first refusal, or OK.
  const absl::Status& status() const { return status_; }

 private:
  void Keep(const absl::Status& status);

  absl::Status status_;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_FIELDS_H_
