#include "host-agent/support/lane.h"

#include <future>

#include "gtest/gtest.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

using std::chrono_literals::operator""s;

// A completion whose answer the test waits for.
struct Answer {
  Done Take() {
    return [this](absl::Status status) { promise.set_value(std::move(status)); };
  }
  absl::Status Wait() {
    std::future<absl::Status> future = promise.get_future();
    if (future.wait_for(30s) != std::future_status::ready) {
      return absl::InternalError("never answered");
    }
    return future.get();
  }
  std::promise<absl::Status> promise;
};

TEST(LaneTest, RunsJobsOneAfterAnother) {
  Lane lane;
  int value = 0;  // Unguarded: the lane's one thread writes, the last answer orders the read.
  Answer last;
  lane.Run(
      "first", absl::Seconds(10),
      [&](const Deadline&) {
        value = 1;
        return absl::OkStatus();
      },
      [](absl::Status) {});
  lane.Run(
      "second", absl::Seconds(10),
      [&](const Deadline&) { return value == 1 ? absl::OkStatus() : absl::DataLossError(""); },
      last.Take());
  EXPECT_TRUE(last.Wait().ok());
}

TEST(LaneTest, WhatIsNextRunsBeforeWhatWaitsAndInTheOrderItCame) {
  Lane lane;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::string order;  // Unguarded, as above.
  lane.Run(
      "running", absl::Seconds(30),
      [released](const Deadline&) {
        released.wait();
        return absl::OkStatus();
      },
      [](absl::Status) {});
  Answer last;
  const auto add = [&](char name, Lane::Turn turn, Done done) {
    lane.Run(
        std::string(1, name), absl::Seconds(30),
        [&order, name](const Deadline&) {
          order += name;
          return absl::OkStatus();
        },
        std::move(done), turn);
  };
  add('c', Lane::Turn::kLast, [](absl::Status) {});
  add('d', Lane::Turn::kLast, last.Take());
  add('a', Lane::Turn::kNext, [](absl::Status) {});
  add('b', Lane::Turn::kNext, [](absl::Status) {});
  release.set_value();
  ASSERT_TRUE(last.Wait().ok());
  EXPECT_EQ(order, "abcd");
}

TEST(LaneTest, ResultArrives) {
  Lane lane;
  std::promise<absl::StatusOr<int>> promise;
  lane.RunWith<int>(
      "look", absl::Seconds(10), [](const Deadline&) -> absl::StatusOr<int> { return 42; },
      [&](absl::StatusOr<int> result) { promise.set_value(result); });
  absl::StatusOr<int> result = promise.get_future().get();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, 42);
}

TEST(LaneTest, WaitingJobIsAnsweredInTimeAndNeverRuns) {
  Lane lane;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  bool ran = false;
  Answer stuck, late;
  lane.Run(
      "stuck", absl::Seconds(60),
      [released](const Deadline&) {
        released.wait();
        return absl::OkStatus();
      },
      stuck.Take());
  lane.Run(
      "late", absl::Milliseconds(20),
      [&](const Deadline&) {
        ran = true;
        return absl::OkStatus();
      },
      late.Take());
  const absl::Status status = late.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(status), "KERNEL_TIMEOUT");
  release.set_value();
  EXPECT_TRUE(stuck.Wait().ok());
  EXPECT_FALSE(ran);
}

TEST(LaneTest, StuckJobIsAnsweredForAndItsLateAnswerDropped) {
  Lane lane;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  Answer stuck, next;
  lane.Run(
      "stuck", absl::Milliseconds(10),
      [released](const Deadline&) {
        released.wait();
        return absl::OkStatus();
      },
      stuck.Take());
  EXPECT_EQ(stuck.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  lane.Run(
      "next", absl::Seconds(30), [](const Deadline&) { return absl::OkStatus(); }, next.Take());
  release.set_value();
  EXPECT_TRUE(next.Wait().ok());
}

TEST(LaneTest, StoppingCancelsWhatWaits) {
  auto lane = std::make_unique<Lane>();
  std::promise<void> started, release;
  std::shared_future<void> released = release.get_future().share();
  Answer running, waiting;
  lane->Run(
      "running", absl::Seconds(60),
      [&started, released](const Deadline&) {
        started.set_value();
        released.wait();
        return absl::OkStatus();
      },
      running.Take());
  lane->Run(
      "waiting", absl::Seconds(60), [](const Deadline&) { return absl::OkStatus(); },
      waiting.Take());
  started.get_future().wait();
  std::thread stopper([&] { lane.reset(); });
  release.set_value();
  stopper.join();
  EXPECT_TRUE(running.Wait().ok());
  const absl::Status status = waiting.Wait();
  EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
}

TEST(LaneTest, RefusesMoreThanItsLimit) {
  Lane lane;
  std::promise<void> started, release;
  std::shared_future<void> released = release.get_future().share();
  lane.Run(
      "running", absl::Seconds(60),
      [&started, released](const Deadline&) {
        started.set_value();
        released.wait();
        return absl::OkStatus();
      },
      [](absl::Status) {});
  started.get_future().wait();
  for (size_t i = 0; i < Lane::kMaxWaiting; ++i) {
    lane.Run(
        "waiting", absl::Seconds(60), [](const Deadline&) { return absl::OkStatus(); },
        [](absl::Status) {});
  }
  Answer refused;
  lane.Run(
      "one more", absl::Seconds(60), [](const Deadline&) { return absl::OkStatus(); },
      refused.Take());
  EXPECT_EQ(ReasonOf(refused.Wait()), "TOO_MANY_CALLS");
  release.set_value();
}

}  // namespace
}  // namespace cxlpool::agent
