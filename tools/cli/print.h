// Where a command writes, and how: an answer as a table, as JSON, as YAML or as names, as was asked
// for.
#ifndef CXLPOOL_TOOLS_CLI_PRINT_H_
#define CXLPOOL_TOOLS_CLI_PRINT_H_

#include <google/protobuf/message.h>

#include <istream>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

struct Printer {
  std::ostream& out;
  std::ostream& err;
  OutputFormat format = OutputFormat::kTable;
  bool progress = false;  // Report to `err` what a wait sees, and how far long work is.
  absl::Duration progress_interval = absl::Seconds(1);  // As Progress.
  bool headers = true;  // Begin a table with the names of its columns.
  // Where a person at a terminal answers what `err` asks; null: there is no one to ask.
  std::istream* answers = nullptr;

  // Columns of the terminal that `out` is; 0: it is none.
  int columns = 0;
  // What is printed is one of many documents: JSON on one line, YAML behind a line `---`.
  bool one_of_many = false;

  // A program reads it: JSON or YAML.
  bool for_programs() const {
    return format == OutputFormat::kJson || format == OutputFormat::kYaml;
  }
};

// How far long work is, on a terminal: nothing in the first interval, and no more than one line in
// each of the others.
class Progress {
 public:
  explicit Progress(Printer& printer)
      : printer_(printer), next_(absl::Now() + printer.progress_interval) {}

  // `text` has nothing in it that a peer wrote: it is not made Printable.
  void Tell(const std::string& text);

 private:
  Printer& printer_;
  absl::Time next_;
};

// Writes and flushes. INTERNAL/OUTPUT_LOST if `out` cannot be written (a full disk).
absl::Status Write(Printer& printer, const std::string& text);

// A document in JSON as it is, or as YAML. As one of many it is on one line already.
absl::Status WriteJson(Printer& printer, const std::string& json);

// `text` for people, `message` for programs, and for -o name the short names that it holds.
absl::Status Print(Printer& printer, const google::protobuf::Message& message,
                   const std::string& text);

// The same of a table, whose first line goes where headers are not wanted.
absl::Status PrintTable(Printer& printer, const google::protobuf::Message& message,
                        const std::string& table);

// A refusal as ErrorText or ErrorJson has it, or as YAML.
std::string ErrorAs(OutputFormat format, const absl::Status& status);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_PRINT_H_
