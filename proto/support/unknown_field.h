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

using MessageFields = std::vector<const google::protobuf::FieldDescriptor*>;

// The fields that are messages, of a message of this type.
inline MessageFields MessageFieldsOf(const google::protobuf::Descriptor& type) {
  MessageFields fields;
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type.field(i);
    if (field->message_type() != nullptr) fields.push_back(field);
  }
  return fields;
}

// The number of such a field of `message`, or of one inside it at whatever depth; 0: there is none.
// `fields` are those of its type.
inline int UnknownFieldOf(const google::protobuf::Message& message, const MessageFields& fields) {
  const auto* const reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) return unknown.field(0).number();
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const bool repeated = field->is_repeated();
    const int size = repeated ? reflection->FieldSize(message, field)
                              : static_cast<int>(reflection->HasField(message, field));
    if (size == 0) continue;
    // Listed once for all of a batch.
    const MessageFields inner = MessageFieldsOf(*field->message_type());
    for (int i = 0; i < size; ++i) {
      const int found = UnknownFieldOf(repeated ? reflection->GetRepeatedMessage(message, field, i)
                                                : reflection->GetMessage(message, field),
                                       inner);
      if (found != 0) return found;
    }
  }
  return 0;
}

// INVALID_ARGUMENT/BAD_FIELD: it has one. `who`: is asked, for people: "manager".
inline absl::Status CheckFields(const google::protobuf::Message& request, absl::string_view who) {
  const int field = UnknownFieldOf(request, MessageFieldsOf(*request.GetDescriptor()));
  if (field == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_FIELD",
                absl::StrCat("the ", request.GetDescriptor()->name(), " has a field ", field,
                             ", which this ", who, " does not know"),
                absl::StrCat("update the ", who, ", or do without what it does not know"));
}

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_UNKNOWN_FIELD_H_
