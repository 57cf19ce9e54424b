// Why a call was refused, as a program and a person read it, carried inside absl::Status.
//
// The pure model makes refusals; the wire layer (status_wire.h) turns them into
// cxlpool.v1.ErrorInfo and back. Reasons are listed in docs/errors.md.
#ifndef CXLPOOL_PROTO_SUPPORT_REFUSAL_H_
#define CXLPOOL_PROTO_SUPPORT_REFUSAL_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cxlpool {

struct Refusal {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string reason;   // UPPER_SNAKE, stable: programs switch on it.
  std::string message;  // What and why, with figures and names.
  std::string remedy;   // What to do, one imperative sentence. May be empty.
  std::vector<std::pair<std::string, std::string>> metadata;

  // The same as a Status: message "<message> (<remedy>)", the rest in a payload.
  absl::Status ToStatus() const;
};

// A Refusal as a Status, in one call: how nearly every refusal is made.
absl::Status Refuse(absl::StatusCode code, std::string reason, std::string message,
                    std::string remedy,
                    std::vector<std::pair<std::string, std::string>> metadata = {});

// Refuse() with FAILED_PRECONDITION.
absl::Status FailedPrecondition(std::string reason, std::string message, std::string remedy);

// What ToStatus put in; nothing for any other Status.
std::optional<Refusal> RefusalOf(const absl::Status& status);

// The reason, or "" where there is none.
std::string ReasonOf(const absl::Status& status);

// Whether docs/errors.md has that reason. What others sent may have any text for one.
bool IsReason(absl::string_view text);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_REFUSAL_H_
