#include "tools/cli/print.h"

#include "proto/support/refusal.h"
#include "tools/cli/render/json.h"

namespace cxlpool::cli {

absl::Status Write(Printer& printer, const std::string& text) {
  printer.out << text << std::flush;
  if (printer.out.good()) return absl::OkStatus();
  return Refusal{.code = absl::StatusCode::kInternal,
                 .reason = "OUTPUT_LOST",
                 .message = "the answer could not be written to standard output",
                 .remedy = "look again with a list or show command",
                 .metadata = {}}
      .ToStatus();
}

absl::Status Print(Printer& printer, const google::protobuf::Message& message,
                   const std::string& table) {
  if (printer.format == OutputFormat::kTable) return Write(printer, table);
  const absl::StatusOr<std::string> json = ToJson(message);
  if (!json.ok()) return json.status();
  return Write(printer, *json);
}

}  // namespace cxlpool::cli
