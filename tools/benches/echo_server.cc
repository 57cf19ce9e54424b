// bench-echo ADDRESS ANSWER_FILE [parse]: the emptiest unary gRPC server of the manager's kind.
//
// The callback API, and the paths of AllocateRegion and BatchAllocateRegions. It looks at nothing
// of what it is sent and answers every call with the bytes of ANSWER_FILE, so that no message is
// parsed or serialised. With `parse` gRPC does both for BatchAllocateRegions, as for any service
// that is not raw; the answer is one message that is ready.
#include <google/protobuf/arena.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "cxlpool/v1/pool_service.grpc.pb.h"

namespace {

// On top of CallbackService: one method that is not of the callback API would bring gRPC's threads
// for the synchronous one with it.
using Pool = cxlpool::v1::PoolService;
using Base = Pool::WithRawCallbackMethod_AllocateRegion<
    Pool::WithRawCallbackMethod_BatchAllocateRegions<Pool::CallbackService>>;

class Echo final : public Base {
 public:
  explicit Echo(const std::string& answer) {
    const grpc::Slice slice(answer);
    answer_ = grpc::ByteBuffer(&slice, 1);
  }

  grpc::ServerUnaryReactor* AllocateRegion(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer*,
                                           grpc::ByteBuffer* response) override {
    return Answer(context, response);
  }
  grpc::ServerUnaryReactor* BatchAllocateRegions(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer*,
                                                 grpc::ByteBuffer* response) override {
    return Answer(context, response);
  }

 private:
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   grpc::ByteBuffer* response) {
    *response = answer_;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ByteBuffer answer_;
};

using Request = cxlpool::v1::BatchAllocateRegionsRequest;
using Response = cxlpool::v1::BatchAllocateRegionsResponse;

// Every call has a request of its own and the one answer.
class OneAnswer final : public grpc::MessageAllocator<Request, Response> {
 public:
  explicit OneAnswer(const std::string& answer) { valid_ = answer_.ParseFromString(answer); }

  grpc::MessageHolder<Request, Response>* AllocateMessages() override {
    return new Holder(&answer_);
  }

  bool valid() const { return valid_; }

 private:
  class Holder final : public grpc::MessageHolder<Request, Response> {
   public:
    explicit Holder(Response* answer) {
      set_request(google::protobuf::Arena::CreateMessage<Request>(&arena_));
      set_response(answer);
    }
    void Release() override { delete this; }

   private:
    google::protobuf::Arena arena_;
  };

  Response answer_;
  bool valid_;
};

class ParsingEcho final : public Pool::CallbackService {
 public:
  explicit ParsingEcho(const std::string& answer) : answer_(answer) {
    SetMessageAllocatorFor_BatchAllocateRegions(&answer_);
  }

  bool valid() const { return answer_.valid(); }

  grpc::ServerUnaryReactor* BatchAllocateRegions(grpc::CallbackServerContext* context,
                                                 const Request*, Response*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  OneAnswer answer_;
};

int Serve(const char* address, grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::cerr << "cannot listen on " << address << "\n";
    return 1;
  }
  server->Wait();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool parse = argc == 4 && std::string(argv[3]) == "parse";
  if (argc != 3 && !parse) {
    std::cerr << "usage: " << argv[0] << " ADDRESS ANSWER_FILE [parse]\n";
    return 64;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string answer{std::istreambuf_iterator<char>(file), {}};
  ParsingEcho parsing(parse ? answer : "");
  if (answer.empty() || !parsing.valid()) {
    std::cerr << argv[2] << " cannot be read, is empty, or is no answer\n";
    return 1;
  }
  Echo echo(answer);
  return Serve(argv[1], parse ? static_cast<grpc::Service*>(&parsing) : &echo);
}
