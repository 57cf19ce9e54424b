// What a request asks for by a field of a later release, which this one does not have. It may be
// what its caller cares for most: that nothing is changed, for how long memory is kept, or from
// whom. The parser keeps such a field, and nothing else here knows of it.
//
// Pure; any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_UNKNOWN_FIELD_H_
#define CXLPOOL_PROTO_SUPPORT_UNKNOWN_FIELD_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/support/refusal.h"

namespace cxlpool {

// The number of such a field of `message`, or of one inside it at whatever depth; 0: there is none.
inline int UnknownFieldOf(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const auto* const reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) return unknown.field(0).number();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int size = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      const int found =
          UnknownFieldOf(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                              : reflection->GetMessage(message, field));
      if (found != 0) return found;
    }
  }
  return 0;
}

// INVALID_ARGUMENT/BAD_FIELD: it has one. `who`: is asked, for people: "manager".
inline absl::Status CheckFields(const google::protobuf::Message& request, absl::string_view who) {
  const int field = UnknownFieldOf(request);
  if (field == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_FIELD",
                absl::StrCat("the ", request.GetDescriptor()->name(), " has a field ", field,
                             ", which this ", who, " does not know"),
                absl::StrCat("update the ", who, ", or do without what it does not know"));
}

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_UNKNOWN_FIELD_H_
