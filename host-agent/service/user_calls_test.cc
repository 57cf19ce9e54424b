#include "host-agent/service/user_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/rigs/core_rig.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::agent {
namespace {

struct CallsRig {
  const LocalPolicy policy = {.agent_uid = 990};
  ManualExecutor executor;
  FakeLink link;
  std::unique_ptr<UserCalls> calls = std::make_unique<UserCalls>(&policy, &link, &executor);
  std::vector<absl::Status> ended;

  // The reason of a call that is not made; "" of one that is.
  std::string Release(uint32_t uid) {
    const size_t before = ended.size();
    calls->Release(uid, {}, [this](absl::StatusOr<v1::ReleaseRegionResponse> response) {
      ended.push_back(response.status());
    });
    return ended.size() == before ? "" : ReasonOf(ended.back());
  }
  void Answer(size_t release) {
    std::move(link.releases[release].second)(v1::ReleaseRegionResponse());
    executor.RunReady();
  }
};

TEST(UserCallsTest, AUserHasSoManyUnderWayAndOthersTheirOwn) {
  CallsRig rig;
  for (size_t i = 0; i < UserCalls::kMaxOfUser; ++i) EXPECT_EQ(rig.Release(1000), "");
  EXPECT_EQ(rig.Release(1000), "QUEUE_FULL");
  EXPECT_EQ(rig.ended.back().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(rig.link.releases.size(), UserCalls::kMaxOfUser);
  EXPECT_EQ(rig.Release(1001), "");
  rig.Answer(0);
  EXPECT_EQ(rig.Release(1000), "") << "one has ended";
  EXPECT_EQ(rig.Release(1000), "QUEUE_FULL");
}

TEST(UserCallsTest, CallsOfEachKindCount) {
  CallsRig rig;
  size_t gets = 0;
  const auto get = [&] {
    rig.calls->Get(1000, {}, [&](const absl::StatusOr<v1::Region>& region) {
      if (ReasonOf(region.status()) == "QUEUE_FULL") ++gets;
    });
  };
  size_t allocates = 0;
  const auto allocate = [&] {
    rig.calls->Allocate(1000, {}, [&](const absl::StatusOr<v1::AllocateRegionResponse>& response) {
      if (ReasonOf(response.status()) == "QUEUE_FULL") ++allocates;
    });
  };
  EXPECT_EQ(rig.Release(1000), "");
  for (size_t i = 1; i < UserCalls::kMaxOfUser; ++i) i % 2 == 0 ? get() : allocate();
  EXPECT_EQ(rig.link.gets.size() + rig.link.allocates.size() + rig.link.releases.size(),
            UserCalls::kMaxOfUser);
  EXPECT_EQ(gets + allocates, 0u);
  get();
  allocate();
  EXPECT_EQ(gets, 1u);
  EXPECT_EQ(allocates, 1u);
  EXPECT_EQ(rig.Release(1000), "QUEUE_FULL");
}

// So that the agent releases what dead processes owned, whatever users do.
TEST(UserCallsTest, AllUsersTogetherLeaveRoomForRootAndTheAgent) {
  CallsRig rig;
  size_t made = 0;
  for (uint32_t uid = 1000; uid < 1000 + kMaxManagerCalls; ++uid) {
    for (int i = 0; i < 8; ++i) {
      if (rig.Release(uid).empty()) ++made;
    }
  }
  EXPECT_EQ(made, UserCalls::kMaxOfUsers);
  for (size_t i = 0; i < kMaxManagerCalls; ++i) {
    EXPECT_EQ(rig.Release(i % 2 == 0 ? 0 : 990), "") << "the link's limit is another one";
  }
}

TEST(UserCallsTest, NothingIsAnsweredOnceItIsGone) {
  CallsRig rig;
  EXPECT_EQ(rig.Release(1000), "");
  rig.calls.reset();
  rig.Answer(0);
  EXPECT_TRUE(rig.ended.empty());
}

}  // namespace
}  // namespace cxlpool::agent
