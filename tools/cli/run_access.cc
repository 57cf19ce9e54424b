// Giving identities roles, and taking them back.

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/support/token.h"
#include "tools/cli/print.h"
#include "tools/cli/render/error_text.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/json.h"
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

namespace {

// Counted from now: when it was typed, it was meant so.
void SetEnd(const google::protobuf::Duration& term, v1::RoleBinding& binding) {
  binding.mutable_end_time()->set_seconds(
      absl::ToUnixSeconds(absl::Now() + absl::Seconds(term.seconds())));
}

}  // namespace

// The token is made here: the manager never hears it before it is used, and a call that is sent
// again makes no second one.
absl::Status Run(CreateToken& command, Connection& connection, Printer& printer) {
  const std::string token = NewToken(command.name);
  v1::RoleBinding& binding = *command.request.mutable_role_binding();
  binding.set_token_sha256(TokenHash(token));
  SetEnd(command.term, binding);
  const auto bound = connection.Send(command.request);
  if (!bound.ok()) return bound.status();
  if (!printer.for_programs()) return Write(printer, absl::StrCat(token, "\n"));
  const auto json = ToJson(*bound, JsonLayout::kOneLine);
  if (!json.ok()) return json.status();
  return WriteJson(printer, absl::StrCat("{\"token\": ", Quoted(token), ", \"role_binding\": ",
                                         absl::StripTrailingAsciiWhitespace(*json), "}\n"));
}

absl::Status Run(ListTokens&, Connection& connection, Printer& printer) {
  auto bindings = AllPages(connection, v1::ListRoleBindingsRequest());
  if (!bindings.ok()) return bindings.status();
  auto& all = *bindings->mutable_role_bindings();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const v1::RoleBinding& binding) {
                             return !absl::StartsWith(binding.identity(), kTokenIdentity);
                           }),
            all.end());
  return PrintTable(printer, *bindings, RoleBindingTable(*bindings));
}

absl::Status Run(GrantAccess& command, Connection& connection, Printer& printer) {
  if (command.term.has_value()) SetEnd(*command.term, *command.request.mutable_role_binding());
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
