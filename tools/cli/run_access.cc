// Giving identities roles, and taking them back.

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {

absl::Status PrintAnswer(Printer& printer, const v1::ListRoleBindingsResponse& bindings) {
  if (bindings.role_bindings().empty()) {
    return Print(printer, bindings,
                 "no role is bound: each certificate of an operator is an admin's\n");
  }
  return PrintTable(printer, bindings, RoleBindingTable(bindings));
}

absl::Status PrintAnswer(Printer& printer, const v1::RoleBinding& binding) {
  v1::ListRoleBindingsResponse one;
  *one.add_role_bindings() = binding;
  return PrintTable(printer, binding, RoleBindingTable(one));
}

absl::Status PrintAnswer(Printer& printer, const v1::Self& self) {
  const std::string of = self.host().empty() ? absl::StrJoin(self.tenants(), ", ") : self.host();
  return Print(printer, self,
               absl::StrCat(self.identity(), " ", absl::AsciiStrToLower(v1::Role_Name(self.role())),
                            of.empty() ? "" : absl::StrCat(" of ", of), "\n"));
}

// The end is counted from now: when it was typed, it was meant so.
absl::Status Run(GrantAccess& command, Connection& connection, Printer& printer) {
  if (command.term.has_value()) {
    const absl::Time end = absl::Now() + absl::Seconds(command.term->seconds());
    command.request.mutable_role_binding()->mutable_end_time()->set_seconds(
        absl::ToUnixSeconds(end));
  }
  const auto bound = connection.Send(command.request);
  if (!bound.ok()) return bound.status();
  return PrintAnswer(printer, *bound);
}

absl::Status Run(RevokeAccess& command, Connection& connection, Printer& printer) {
  const auto removed = connection.Send(command.request);
  if (!removed.ok()) return removed.status();
  return Print(printer, *removed, absl::StrCat(command.request.identity(), " has no role now\n"));
}

}  // namespace cxlpool::cli
