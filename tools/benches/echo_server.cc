// bench-echo ADDRESS ANSWER_FILE: the emptiest unary gRPC server of the manager's kind.
//
// The callback API, and the paths of AllocateRegion and BatchAllocateRegions. It looks at nothing
// of what it is sent and answers every call with the bytes of ANSWER_FILE, so that no message is
// parsed or serialised.
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
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " ADDRESS ANSWER_FILE\n";
    return 64;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string answer{std::istreambuf_iterator<char>(file), {}};
  if (answer.empty()) {
    std::cerr << argv[2] << " cannot be read, or is empty\n";
    return 1;
  }
  Echo echo(answer);
  return Serve(argv[1], &echo);
}
