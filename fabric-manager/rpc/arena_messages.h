// Request and response of a call on one arena: a batch has thousands of small messages, which are
// then made and forgotten together.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_ARENA_MESSAGES_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_ARENA_MESSAGES_H_

#include <google/protobuf/arena.h>
#include <grpcpp/support/message_allocator.h>

#include <cstddef>

namespace cxlpool::fm {

// Any thread. Outlives the server that it is registered with.
template <typename Request, typename Response>
class ArenaMessages : public grpc::MessageAllocator<Request, Response> {
 public:
  grpc::MessageHolder<Request, Response>* AllocateMessages() override { return new Holder(); }

 private:
  class Holder : public grpc::MessageHolder<Request, Response> {
   public:
    Holder() : arena_(Options()) {
      this->set_request(google::protobuf::Arena::CreateMessage<Request>(&arena_));
      this->set_response(google::protobuf::Arena::CreateMessage<Response>(&arena_));
    }
    void Release() override { delete this; }

   private:
    static google::protobuf::ArenaOptions Options() {
      google::protobuf::ArenaOptions options;
      options.start_block_size = size_t{16} << 10;
      options.max_block_size = size_t{256} << 10;
      return options;
    }

    google::protobuf::Arena arena_;
  };
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_ARENA_MESSAGES_H_
