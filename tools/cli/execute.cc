#include "tools/cli/execute.h"

#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/support/certificate.h"
#include "proto/support/text.h"
#include "tools/cli/print.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/table.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

// An empty --dir, of a script whose variable is not set, is not taken for none.
std::string DirectoryOf(const std::optional<std::string>& dir) {
  return dir.has_value() ? *dir : pki::AuthorityDirectory();
}

// Makes an authority, or has one issue or renew a certificate. Everything stays on this machine.
absl::StatusOr<pki::IssuedFiles> Make(const PkiCommand& command) {
  if (const auto* init = std::get_if<PkiInit>(&command)) {
    return pki::InitAuthority(init->dir, init->force);
  }
  if (const auto* renew = std::get_if<PkiRenew>(&command)) {
    return pki::RenewLeaf(DirectoryOf(renew->dir), renew->role, renew->name, renew->days);
  }
  const auto& issue = std::get<PkiIssue>(command);
  return pki::IssueLeaf(DirectoryOf(issue.dir), issue.leaf);
}

// A JSON list of strings.
std::string QuotedList(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(Quoted(text));
  return absl::StrCat("[", absl::StrJoin(quoted, ", "), "]");
}

std::string JsonTime(absl::Time time) { return Quoted(UtcText(time)); }

// JSON: {"identity", "serial", "dns", "ips", "server", "client", "authority", "not_before",
// "not_after", "expired"}; identity is the URI, "" where there is not exactly one.
absl::Status Show(const PkiShow& command, Printer& printer) {
  const absl::StatusOr<CertificateFacts> facts = pki::ShowCertificate(command.file);
  if (!facts.ok()) return facts.status();
  const absl::Time now = absl::Now();
  const std::string identity = facts->uris.size() == 1 ? facts->uris[0] : "";
  if (printer.for_programs()) {
    const auto flag = [](bool value) { return value ? "true" : "false"; };
    return WriteJson(
        printer,
        absl::StrCat(
            "{\n \"identity\": ", Quoted(identity), ",\n \"serial\": ", Quoted(facts->serial),
            ",\n \"dns\": ", QuotedList(facts->dns), ",\n \"ips\": ", QuotedList(facts->ips),
            ",\n \"server\": ", flag(facts->server_auth), ",\n \"client\": ",
            flag(facts->client_auth), ",\n \"authority\": ", flag(facts->authority),
            ",\n \"not_before\": ", JsonTime(facts->not_before), ",\n \"not_after\": ",
            JsonTime(facts->not_after), ",\n \"expired\": ", flag(facts->ExpiredAt(now)), "\n}\n"));
  }
  Sheet sheet;
  sheet.Add("File", command.file);
  sheet.Add("Identity", facts->authority   ? "(an authority)"
                        : identity.empty() ? "(none)"
                                           : identity);
  sheet.Add("Name", facts->common_name);
  sheet.Add("Serial", facts->serial);
  sheet.Add("DNS names", absl::StrJoin(facts->dns, ", "));
  sheet.Add("Addresses", absl::StrJoin(facts->ips, ", "));
  sheet.Add("Used by", facts->authority      ? "nobody: it issues others"
                       : !facts->server_auth ? "clients"
                       : facts->client_auth  ? "clients and servers"
                                             : "servers");
  sheet.Add("Valid from", DateText(facts->not_before));
  sheet.Add("End", EndText(*facts, now));
  return Write(printer, sheet.ToString());
}

}  // namespace

// A command that changes the pool gets a request id here unless it was given one: tries of it are
// then the same call.
absl::Status Execute(PoolCommand command, Connection& connection, Printer& printer) {
  return std::visit(
      [&](auto& chosen) {
        if constexpr (requires { chosen.request; }) FillRequestId(chosen.request);
        return Run(chosen, connection, printer);
      },
      command);
}

// What was made. JSON: {"ca": PATH, "cert": PATH, "key": PATH}.
absl::Status Execute(const PkiCommand& command, Printer& printer) {
  if (const auto* show = std::get_if<PkiShow>(&command)) return Show(*show, printer);
  const absl::StatusOr<pki::IssuedFiles> files = Make(command);
  if (!files.ok()) return files.status();
  Sheet sheet;
  sheet.Add("ca", files->ca);
  sheet.Add("cert", files->cert);
  sheet.Add("key", files->key);
  if (!printer.for_programs()) return Write(printer, sheet.ToString());
  return WriteJson(printer, absl::StrCat("{\n \"ca\": ", Quoted(files->ca),
                                         ",\n \"cert\": ", Quoted(files->cert),
                                         ",\n \"key\": ", Quoted(files->key), "\n}\n"));
}

}  // namespace cxlpool::cli
