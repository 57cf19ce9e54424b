#include "tools/cli/fsck_command.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/fsck/fsck.h"
#include "google/protobuf/struct.pb.h"
#include "tools/cli/print.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/printable.h"

namespace cxlpool::cli {
namespace {

std::string ToTable(const FsckCommand& command, const fm::FsckReport& report) {
  std::string text;
  for (const fm::FsckFinding& finding : report.findings) {
    absl::StrAppend(&text, finding.key == 0 ? "store" : absl::StrCat("record ", finding.key), ": ",
                    Printable(finding.what), "\n  repair: ", Printable(finding.repair), "\n");
  }
  absl::StrAppend(&text, Printable(command.database), ": schema ", report.schema, ", revision ",
                  report.revision, ", ", report.records, " records");
  if (report.set_aside_before > 0) {
    absl::StrAppend(&text, ", ", report.set_aside_before, " set aside by earlier repairs");
  }
  if (report.findings.empty()) return absl::StrCat(text, "; sound\n");
  absl::StrAppend(&text, "; ", report.findings.size(), " findings\n");
  if (report.copy.empty()) {
    return absl::StrCat(text, "nothing was changed; --repair does what is said above\n");
  }
  return absl::StrCat(text, "repaired; as it was before: ", Printable(report.copy), "\n");
}

google::protobuf::Struct ToMessage(const FsckCommand& command, const fm::FsckReport& report) {
  google::protobuf::Struct message;
  auto& fields = *message.mutable_fields();
  fields["database"].set_string_value(Printable(command.database));
  fields["schema"].set_number_value(static_cast<double>(report.schema));
  fields["revision"].set_string_value(absl::StrCat(report.revision));
  fields["records"].set_string_value(absl::StrCat(report.records));
  fields["set_aside_before"].set_string_value(absl::StrCat(report.set_aside_before));
  fields["repaired"].set_bool_value(!report.copy.empty());
  fields["copy"].set_string_value(Printable(report.copy));
  auto& findings = *fields["findings"].mutable_list_value();
  for (const fm::FsckFinding& finding : report.findings) {
    auto& one = *findings.add_values()->mutable_struct_value()->mutable_fields();
    one["key"].set_string_value(absl::StrCat(finding.key));
    one["what"].set_string_value(Printable(finding.what));
    one["repair"].set_string_value(Printable(finding.repair));
  }
  return message;
}

}  // namespace

int Execute(const FsckCommand& command, Printer& printer) {
  absl::StatusOr<fm::FsckReport> report;
  absl::StatusOr<fm::AuditHead> anchor = fm::AuditHead();
  if (command.anchor.has_value()) anchor = fm::ParseAuditHead(*command.anchor);
  const auto doing = [&printer](const std::string& what) {
    if (printer.progress) printer.err << "cxlpool: " << Printable(what) << std::endl;
  };
  if (anchor.ok()) {
    report = fm::RunFsck(command.database, command.repair, absl::Now(),
                         command.anchor.has_value() ? std::optional(*anchor) : std::nullopt, doing);
  }
  absl::Status status = anchor.ok() ? report.status() : anchor.status();
  if (status.ok()) status = Print(printer, ToMessage(command, *report), ToTable(command, *report));
  if (!status.ok()) {
    printer.err << ErrorAs(printer.format, status);
    return kFsckCannotRun;
  }
  return report->findings.empty() ? kFsckSound : kFsckFindings;
}

}  // namespace cxlpool::cli
