// For tests that a message is carried on whole. Fields are found by reflection, so that one that is
// added later is tried as well, and fails the test until somebody carries it on.
#ifndef CXLPOOL_TEST_RIGS_EACH_FIELD_FIXTURE_H_
#define CXLPOOL_TEST_RIGS_EACH_FIELD_FIXTURE_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cxlpool {

// Gives every field a value of its own that is not its default, and each list one element; the
// messages in it likewise. Of a oneof the last one stays.
inline void FillAll(google::protobuf::Message& message) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* reflection = message.GetReflection();
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const Field* field = type->field(i);
    const auto number = static_cast<uint32_t>(field->number() + 1);
    const std::string text = absl::StrCat("text-", number);
    const bool list = field->is_repeated();
    switch (field->cpp_type()) {
      case Field::CPPTYPE_STRING:
        list ? reflection->AddString(&message, field, text)
             : reflection->SetString(&message, field, text);
        break;
      case Field::CPPTYPE_BOOL:
        list ? reflection->AddBool(&message, field, true)
             : reflection->SetBool(&message, field, true);
        break;
      case Field::CPPTYPE_ENUM:
        list ? reflection->AddEnumValue(&message, field, 2)
             : reflection->SetEnumValue(&message, field, 2);
        break;
      case Field::CPPTYPE_INT32:
        list ? reflection->AddInt32(&message, field, static_cast<int32_t>(number))
             : reflection->SetInt32(&message, field, static_cast<int32_t>(number));
        break;
      case Field::CPPTYPE_INT64:
        list ? reflection->AddInt64(&message, field, number)
             : reflection->SetInt64(&message, field, number);
        break;
      case Field::CPPTYPE_UINT32:
        list ? reflection->AddUInt32(&message, field, number)
             : reflection->SetUInt32(&message, field, number);
        break;
      case Field::CPPTYPE_UINT64:
        list ? reflection->AddUInt64(&message, field, number)
             : reflection->SetUInt64(&message, field, number);
        break;
      case Field::CPPTYPE_MESSAGE:
        FillAll(list ? *reflection->AddMessage(&message, field)
                     : *reflection->MutableMessage(&message, field));
        break;
      default:
        std::cerr << "teach FillAll the type of " << field->full_name() << "\n";
        std::abort();
    }
  }
}

// A field of a message, or of a message in it: of a list, of its first element.
class FieldPath {
 public:
  using Field = google::protobuf::FieldDescriptor;

  // Every field that holds no message.
  static std::vector<FieldPath> AllOf(const google::protobuf::Message& message) {
    std::vector<FieldPath> paths;
    Add(message, {}, paths);
    return paths;
  }

  // "owner.uid"
  std::string name() const {
    return absl::StrJoin(fields_, ".", [](std::string* out, const Field* field) {
      absl::StrAppend(out, field->name());
    });
  }
  // Whether it, and each message that it is in, is there.
  bool IsSet(const google::protobuf::Message& message) const {
    const google::protobuf::Message* in = &message;
    for (const Field* field : fields_) {
      const auto* reflection = in->GetReflection();
      const bool list = field->is_repeated();
      if (list ? reflection->FieldSize(*in, field) == 0 : !reflection->HasField(*in, field)) {
        return false;
      }
      if (field == fields_.back()) break;
      in = list ? &reflection->GetRepeatedMessage(*in, field, 0)
                : &reflection->GetMessage(*in, field);
    }
    return true;
  }
  // The message as it is without this field, which is set.
  template <typename Message>
  Message Without(Message message) const {
    google::protobuf::Message* in = &message;
    for (const Field* field : fields_) {
      const auto* reflection = in->GetReflection();
      if (field == fields_.back()) {
        reflection->ClearField(in, field);
        break;
      }
      in = field->is_repeated() ? reflection->MutableRepeatedMessage(in, field, 0)
                                : reflection->MutableMessage(in, field);
    }
    return message;
  }

 private:
  static void Add(const google::protobuf::Message& message, const FieldPath& above,
                  std::vector<FieldPath>& paths) {
    const auto* type = message.GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const Field* field = type->field(i);
      FieldPath path = above;
      path.fields_.push_back(field);
      if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
        Add(*google::protobuf::MessageFactory::generated_factory()->GetPrototype(
                field->message_type()),
            path, paths);
      } else {
        paths.push_back(path);
      }
    }
  }

  std::vector<const Field*> fields_;
};

// Names of the fields that are not set, in order.
inline std::vector<std::string> FieldsNotSet(const google::protobuf::Message& message) {
  std::vector<std::string> names;
  for (const FieldPath& path : FieldPath::AllOf(message)) {
    if (!path.IsSet(message)) names.push_back(path.name());
  }
  return names;
}

// Names of the fields that are set and make no difference to what `carried` gives for the message.
template <typename Message, typename Carried>
std::vector<std::string> FieldsThatAreDropped(const Message& full, Carried carried) {
  const auto whole = carried(full);
  std::vector<std::string> names;
  for (const FieldPath& path : FieldPath::AllOf(full)) {
    if (path.IsSet(full) && carried(path.Without(full)) == whole) names.push_back(path.name());
  }
  return names;
}

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_RIGS_EACH_FIELD_FIXTURE_H_
