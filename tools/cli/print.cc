#include "tools/cli/print.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/json.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/words.h"
#include "tools/cli/render/yaml.h"

namespace cxlpool::cli {
namespace {

using google::protobuf::FieldDescriptor;

// A line for each resource: the message itself where it has a name, an identity (a role's) or a
// subject (what is revoked), else each of the messages in it that has one.
std::string NamesOf(const google::protobuf::Message& message) {
  const auto* reflection = message.GetReflection();
  for (const char* field : {"name", "identity", "subject"}) {
    const FieldDescriptor* name = message.GetDescriptor()->FindFieldByName(field);
    if (name == nullptr || name->cpp_type() != FieldDescriptor::CPPTYPE_STRING) continue;
    const std::string text = reflection->GetString(message, name);
    const bool is_uri = absl::StrContains(text, "://");
    return absl::StrCat(Printable(is_uri ? text : ShortName(text)), "\n");
  }
  std::string out;
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      absl::StrAppend(&out, NamesOf(reflection->GetMessage(message, field)));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      absl::StrAppend(&out, NamesOf(reflection->GetRepeatedMessage(message, field, i)));
    }
  }
  return out;
}

}  // namespace

void Progress::Tell(const std::string& text) {
  if (!printer_.progress || absl::Now() < next_) return;
  next_ = absl::Now() + printer_.progress_interval;
  printer_.err << "cxlpool: " << text << std::endl;
}

absl::Status Write(Printer& printer, const std::string& text) {
  printer.out << text << std::flush;
  if (printer.out.good()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInternal, "OUTPUT_LOST",
                "the answer could not be written to standard output",
                "look again with a list or show command");
}

absl::Status WriteJson(Printer& printer, const std::string& json) {
  if (printer.format != OutputFormat::kYaml) return Write(printer, json);
  const absl::StatusOr<std::string> yaml = ToYaml(json);
  if (!yaml.ok()) return yaml.status();
  return Write(printer, absl::StrCat(printer.one_of_many ? "---\n" : "", *yaml));
}

absl::Status Print(Printer& printer, const google::protobuf::Message& message,
                   const std::string& text) {
  if (printer.format == OutputFormat::kTable) return Write(printer, text);
  if (printer.format == OutputFormat::kName) return Write(printer, NamesOf(message));
  const absl::StatusOr<std::string> json =
      ToJson(message, printer.one_of_many ? JsonLayout::kOneLine : JsonLayout::kIndented);
  if (!json.ok()) return json.status();
  return WriteJson(printer, *json);
}

absl::Status PrintTable(Printer& printer, const google::protobuf::Message& message,
                        const std::string& table) {
  return Print(printer, message, printer.headers ? table : table.substr(table.find('\n') + 1));
}

std::string ErrorAs(OutputFormat format, const absl::Status& status) {
  if (format == OutputFormat::kJson) return ErrorJson(status);
  if (format != OutputFormat::kYaml) return ErrorText(status);
  const std::string json = ErrorJson(status);
  return ToYaml(json).value_or(json);  // JSON is YAML, too.
}

}  // namespace cxlpool::cli
