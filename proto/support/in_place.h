// A protobuf message for a moment: its parts all are in one place, most of them on the stack, for
// to allocate and free each by itself takes longer than most of what such a message is for.
#ifndef CXLPOOL_PROTO_SUPPORT_IN_PLACE_H_
#define CXLPOOL_PROTO_SUPPORT_IN_PLACE_H_

#include <google/protobuf/arena.h>

#include <array>

namespace cxlpool {

template <typename Message>
class InPlace {
 public:
  Message& operator*() { return *message_; }

 private:
  google::protobuf::ArenaOptions InBytes() {
    google::protobuf::ArenaOptions options;
    options.initial_block = bytes_.data();
    options.initial_block_size = bytes_.size();
    return options;
  }

  alignas(8) std::array<char, 4096> bytes_;
  google::protobuf::Arena arena_{InBytes()};
  Message* const message_ = google::protobuf::Arena::CreateMessage<Message>(&arena_);
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_IN_PLACE_H_
