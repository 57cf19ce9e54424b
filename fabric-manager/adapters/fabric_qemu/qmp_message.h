// One line of QMP, QEMU's machine protocol, in and out. Pure; any thread.
//
// Source: QEMU, docs/interop/qmp-spec.rst ("Protocol Specification"). Input is not trusted: any
// bytes give a message or an error, never an exception, and nesting is limited because the JSON
// library copies and prints recursively.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QMP_MESSAGE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QMP_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool::fm {

inline constexpr size_t kMaxQmpLineBytes = 1 << 20;
inline constexpr int kMaxQmpNesting = 32;

struct QmpMessage {
  enum class Kind { kGreeting, kReturn, kError, kEvent };
  Kind kind = Kind::kReturn;
  std::optional<uint64_t> id;  // kReturn, kError: of the command. QEMU leaves it out of an error
                               // about a line that it could not parse.
  nlohmann::json value;        // kReturn: what was returned. kEvent: its data, or an empty object.
  std::string name;            // kEvent: the event. kError: the class. kGreeting: the version.
  std::string description;     // kError.
};

// INVALID_ARGUMENT: not JSON, nested too deep, too long, or not a message of QMP.
absl::StatusOr<QmpMessage> ParseQmpMessage(absl::string_view line);

// The line with its newline. INVALID_ARGUMENT where a string of `arguments` is not UTF-8.
absl::StatusOr<std::string> FormatQmpCommand(uint64_t id, const std::string& command,
                                             const nlohmann::json& arguments);

// One property of qom-list: `type` is "child<cxl-type3>", "uint64", "link<bus>", ...
struct QomProperty {
  std::string name;
  std::string type;
};

// The value of qom-list. INVALID_ARGUMENT where it is something else.
absl::StatusOr<std::vector<QomProperty>> ParseQomList(const nlohmann::json& value);

// Values of qom-get. INVALID_ARGUMENT where the type is another.
absl::StatusOr<std::string> ParseQomString(const nlohmann::json& value);
absl::StatusOr<uint64_t> ParseQomUint(const nlohmann::json& value);
absl::StatusOr<bool> ParseQomBool(const nlohmann::json& value);

// The thread of some vCPU, out of query-cpus-fast: the proof of which process answers.
absl::StatusOr<uint64_t> ParseCpuThread(const nlohmann::json& value);

// The name of the character device behind a Unix socket that QEMU listens on, out of query-chardev.
absl::StatusOr<std::string> ParseChardev(const nlohmann::json& value, absl::string_view path);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QMP_MESSAGE_H_
