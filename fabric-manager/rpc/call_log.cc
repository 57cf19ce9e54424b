#include "fabric-manager/rpc/call_log.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxRequestText = 400;

// The text of the request's field, without the collection that it is a name of; empty: there is no
// such field, or nothing in it.
std::string IdIn(const google::protobuf::Message& request, const std::string& field,
                 absl::string_view collection) {
  const google::protobuf::FieldDescriptor* const it =
      request.GetDescriptor()->FindFieldByName(field);
  if (it == nullptr || it->is_repeated() ||
      it->type() != google::protobuf::FieldDescriptor::TYPE_STRING) {
    return "";
  }
  const std::string text = request.GetReflection()->GetString(request, it);
  return std::string(absl::StripPrefix(text, collection));
}

// What the request names. It may have been refused for what it says there.
LogFields FieldsOf(const AnsweredCall& call) {
  const google::protobuf::Message& request = call.request;
  LogFields fields{.region = IdIn(request, "region_id", ""),
                   .host = IdIn(request, "host", "hosts/"),
                   .tenant = IdIn(request, "tenant", "tenants/")};
  const std::string name = IdIn(request, "name", "");
  if (absl::StartsWith(name, "regions/")) {
    fields.region = std::string(absl::StripPrefix(name, "regions/"));
  }
  if (fields.tenant.empty()) fields.tenant = std::string(call.tenant);
  ParseUuid(IdIn(request, "request_id", ""), fields.request_id);
  return fields;
}

}  // namespace

bool OnlyReads(absl::string_view method) {
  const absl::string_view name = method.substr(method.rfind('/') + 1);
  for (const absl::string_view reading :
       {"Get", "List", "Check", "Watch", "Explain", "Discover", "VerifyAudit"}) {
    if (absl::StartsWith(name, reading)) return true;
  }
  return false;
}

CallLog::CallLog(const Clock* clock, Sink sink)
    : clock_(clock), sink_(sink != nullptr ? std::move(sink) : [](const std::string& line) {
        LogInfo("calls", line);
      }) {}

// One line for each call that may have changed something. In a second there are kMaxLines at most;
// the next line says how many were left out.
void CallLog::Note(const AnsweredCall& call) {
  const absl::string_view name = call.method.substr(call.method.rfind('/') + 1);
  if (OnlyReads(call.method)) return;
  std::optional<uint64_t> others;
  {
    MutexLock lock(mutex_);
    others = limit_.Take(clock_->Elapsed());
  }
  if (!others.has_value()) return;
  const std::string outcome = call.status.ok()
                                  ? "done"
                                  : absl::StrCat("refused: ", ReasonOf(call.status), ": ",
                                                 absl::string_view(call.status.message()));
  const std::string not_logged =
      *others == 0 ? "" : absl::StrCat(" (", *others, " calls before it are not in the log)");
  const LogScope scope(FieldsOf(call));
  sink_(absl::StrCat(name, " {", CutText(call.request.ShortDebugString(), kMaxRequestText), "} by ",
                     call.caller.identity(), " from ", call.peer, ": ", outcome, not_logged));
}

}  // namespace cxlpool::fm
