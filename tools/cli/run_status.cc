// Which of the pool's managers leads, and how far the others follow.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/manager_rotation.h"
#include "proto/support/refusal.h"
#include "tools/cli/print.h"
#include "tools/cli/render/sections.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

struct ManagerRow {
  std::string address;
  const char* role = "away";
  std::optional<uint64_t> epoch = std::nullopt;
  std::optional<uint64_t> revision = std::nullopt;
  absl::Status why = absl::OkStatus();  // Why it does not lead, or gives no answer.
};

std::optional<uint64_t> NumberOf(const Refusal& refusal, absl::string_view key) {
  for (const auto& [name, value] : refusal.metadata) {
    uint64_t number = 0;
    if (name == key && absl::SimpleAtoi(value, &number)) return number;
  }
  return std::nullopt;
}

// A manager that refuses the caller leads all the same: a standby judges nobody.
ManagerRow RowOf(std::string address, const absl::StatusOr<v1::Self>& self) {
  ManagerRow row{.address = std::move(address)};
  if (self.ok()) {
    row.role = "leader";
    row.epoch = self->epoch();
    row.revision = self->revision();
    return row;
  }
  row.why = self.status();
  if (ReasonOf(row.why) == "NOT_LEADER") {
    row.role = "standby";
    const Refusal refusal = RefusalOf(row.why).value_or(Refusal());
    row.epoch = NumberOf(refusal, "epoch");
    row.revision = NumberOf(refusal, "revision");
  } else if (!ManagerRotation::MayAnswerElsewhere(row.why)) {
    row.role = "leader";
  }
  return row;
}

// A standby has nothing to explain.
std::string WhyOf(const ManagerRow& row) {
  if (row.why.ok() || ReasonOf(row.why) == "NOT_LEADER") return "";
  const auto refusal = RefusalOf(row.why);
  return refusal.has_value() ? refusal->message : std::string(row.why.message());
}

// The leader with the highest epoch: one that was replaced may not know it yet.
const ManagerRow* LeaderOf(const std::vector<ManagerRow>& rows) {
  const ManagerRow* leader = nullptr;
  for (const ManagerRow& row : rows) {
    if (absl::string_view(row.role) != "leader" || !row.epoch.has_value()) continue;
    if (leader == nullptr || *row.epoch > *leader->epoch) leader = &row;
  }
  return leader;
}

Section SectionOf(const std::vector<ManagerRow>& rows, const ManagerRow* leader) {
  Section section{.key = "managers",
                  .title = "",
                  .nobody = "",
                  .fields = {{"address", "ADDRESS"},
                             {"role", "ROLE"},
                             {"epoch", "EPOCH", Align::kRight},
                             {"revision", "REVISION", Align::kRight},
                             {"lag", "LAG", Align::kRight},
                             {"why", "WHY"}}};
  for (const ManagerRow& row : rows) {
    std::optional<uint64_t> lag;
    if (leader != nullptr && row.revision.has_value()) {
      lag = *leader->revision - std::min(*leader->revision, *row.revision);
    }
    section.rows.push_back(
        {.cells = {TextCell(row.address), TextCell(row.role), NumberCell(row.epoch),
                   NumberCell(row.revision), NumberCell(lag), TextCell(WhyOf(row))}});
  }
  return section;
}

}  // namespace

// Each manager has its part of the time. Where none leads the table is an answer, and so is the
// error: of a manager that refused the caller, of the only one, or that nobody leads.
absl::Status Run(ShowStatus&, Connection& connection, Printer& printer) {
  ManagerStub& stub = connection.stub();
  const std::vector<std::string> addresses = stub.addresses();
  std::vector<ManagerRow> rows;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const absl::Duration limit = connection.timeout() / static_cast<int64_t>(addresses.size());
    rows.push_back(RowOf(addresses[i], stub.SelfAt(i, limit)));
  }
  const ManagerRow* const leader = LeaderOf(rows);
  const std::vector<Section> sections = {SectionOf(rows, leader)};
  std::string text;
  if (printer.format == OutputFormat::kName) {
    for (const std::string& address : addresses) absl::StrAppend(&text, address, "\n");
  } else if (!printer.for_programs()) {
    text = SectionsText(sections, 0, 0);
    if (!printer.headers) text.erase(0, text.find('\n') + 1);
  }
  absl::Status printed =
      printer.for_programs() ? WriteJson(printer, SectionsJson(sections)) : Write(printer, text);
  if (!printed.ok() || leader != nullptr) return printed;
  for (const ManagerRow& row : rows) {
    if (rows.size() == 1 || absl::string_view(row.role) == "leader") return row.why;
  }
  return Refuse(absl::StatusCode::kUnavailable, "NO_LEADER",
                absl::StrCat("none of the ", rows.size(), " managers leads"),
                "try again in some seconds: a standby takes over; if none does, look at its log");
}

}  // namespace cxlpool::cli
