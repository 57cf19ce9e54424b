// Messages with anything in them, for tests that hold a codec against protobuf's own.
#ifndef CXLPOOL_TEST_RIGS_RANDOM_MESSAGE_H_
#define CXLPOOL_TEST_RIGS_RANDOM_MESSAGE_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace cxlpool {

// A number of any length in bits.
inline uint64_t RandomNumber(std::mt19937_64& random) { return random() >> random() % 64; }

// Gives each field a value or none, lists up to three, messages in it likewise, and of a oneof one
// member or none.
inline void RandomMessage(google::protobuf::Message& message, std::mt19937_64& random,
                          int depth = 0) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* const reflection = message.GetReflection();
  const auto* const type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const Field* const field = type->field(i);
    const bool list = field->is_repeated();
    const uint64_t members =
        field->real_containing_oneof() == nullptr
            ? 2
            : static_cast<uint64_t>(field->real_containing_oneof()->field_count());
    if (!list && random() % members != 0) continue;
    const uint64_t count = list ? random() % 4 : 1;
    for (uint64_t element = 0; element < count; ++element) {
      const uint64_t number = RandomNumber(random);
      const auto small = static_cast<uint32_t>(number);
      const auto negative = static_cast<int32_t>(small);
      const std::string text(number % 200, static_cast<char>('a' + number % 26));
      switch (field->cpp_type()) {
        case Field::CPPTYPE_STRING:
          list ? reflection->AddString(&message, field, text)
               : reflection->SetString(&message, field, text);
          break;
        case Field::CPPTYPE_BOOL:
          list ? reflection->AddBool(&message, field, number % 2 != 0)
               : reflection->SetBool(&message, field, number % 2 != 0);
          break;
        case Field::CPPTYPE_ENUM:
          list ? reflection->AddEnumValue(&message, field, negative)
               : reflection->SetEnumValue(&message, field, negative);
          break;
        case Field::CPPTYPE_INT32:
          list ? reflection->AddInt32(&message, field, negative)
               : reflection->SetInt32(&message, field, negative);
          break;
        case Field::CPPTYPE_UINT32:
          list ? reflection->AddUInt32(&message, field, small)
               : reflection->SetUInt32(&message, field, small);
          break;
        case Field::CPPTYPE_INT64:
          list ? reflection->AddInt64(&message, field, static_cast<int64_t>(number))
               : reflection->SetInt64(&message, field, static_cast<int64_t>(number));
          break;
        case Field::CPPTYPE_UINT64:
          list ? reflection->AddUInt64(&message, field, number)
               : reflection->SetUInt64(&message, field, number);
          break;
        case Field::CPPTYPE_MESSAGE:
          if (depth < 4) {
            RandomMessage(list ? *reflection->AddMessage(&message, field)
                               : *reflection->MutableMessage(&message, field),
                          random, depth + 1);
          }
          break;
        default:
          std::abort();  // A kind of field that none of these messages had.
      }
    }
  }
}

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_RIGS_RANDOM_MESSAGE_H_
