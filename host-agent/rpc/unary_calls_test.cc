#include "host-agent/rpc/unary_calls.h"

#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"

namespace cxlpool::agent {
namespace {

// gRPC destroys its callback some time after it has returned from it.
TEST(UnaryCallsTest, NothingOfACallIsLeftInItsCallbackWhenStopReturns) {
  UnaryCalls calls(absl::Minutes(1));
  auto request = std::make_shared<int>();
  const std::weak_ptr<int> alive = request;
  std::function<void(grpc::Status)> callback;
  bool answered = false;
  calls.Call<std::shared_ptr<int>, int>(
      "manager", std::move(request), [&](absl::StatusOr<int> answer) { answered = answer.ok(); },
      [&](grpc::ClientContext*, const std::shared_ptr<int>*, int*,
          std::function<void(grpc::Status)> end) { callback = std::move(end); });
  EXPECT_FALSE(alive.expired());
  callback(grpc::Status::OK);
  EXPECT_TRUE(answered);
  calls.Stop();
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace cxlpool::agent
