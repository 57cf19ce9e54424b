#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "tools/cli/execute.h"
#include "tools/cli/print.h"
#include "tools/cli/render/json.h"
#include "tools/cli/render/table.h"

namespace cxlpool::cli {
namespace {

absl::StatusOr<pki::IssuedFiles> Make(const PkiCommand& command) {
  if (const auto* init = std::get_if<PkiInit>(&command)) {
    return pki::InitAuthority(init->dir, init->force);
  }
  const auto& issue = std::get<PkiIssue>(command);
  return pki::IssueLeaf(issue.dir, issue.leaf);
}

// A JSON string.
std::string Quoted(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  const absl::StatusOr<std::string> json = ToJson(value, JsonLayout::kOneLine);
  return json.ok() ? std::string(absl::StripAsciiWhitespace(*json)) : "\"\"";
}

}  // namespace

// JSON: {"ca": PATH, "cert": PATH, "key": PATH}.
absl::Status Execute(const PkiCommand& command, Printer& printer) {
  const absl::StatusOr<pki::IssuedFiles> files = Make(command);
  if (!files.ok()) return files.status();
  Sheet sheet;
  sheet.Add("ca", files->ca);
  sheet.Add("cert", files->cert);
  sheet.Add("key", files->key);
  if (printer.format == OutputFormat::kTable) return Write(printer, sheet.ToString());
  return Write(printer, absl::StrCat("{\n \"ca\": ", Quoted(files->ca),
                                     ",\n \"cert\": ", Quoted(files->cert),
                                     ",\n \"key\": ", Quoted(files->key), "\n}\n"));
}

}  // namespace cxlpool::cli
