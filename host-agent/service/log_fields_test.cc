// The agent's lines about an Attachment are found by the request that asked for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr char kMaking[] = "0b0e6a1c-0000-4000-8000-000000000001";
constexpr char kReleasing[] = "0b0e6a1c-0000-4000-8000-000000000002";

class LogFieldsTest : public testing::Test {
 protected:
  LogFieldsTest() {
    rig.memory.plugged = {{1, 0x51}};
    rig.Start();
  }

  // The lines about rungs that `what` makes.
  template <typename What>
  std::vector<std::string> LinesOf(What what) {
    testing::internal::CaptureStderr();
    what();
    std::vector<std::string> lines;
    for (absl::string_view line :
         absl::StrSplit(testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty())) {
      if (absl::StrContains(line, "serial 0x51")) lines.emplace_back(line);
    }
    return lines;
  }
  v1::Offer OfferFor(const std::string& request, v1::Offer::Want want) {
    v1::Offer offer = MakeOffer(1, want, {{1, 0x51}});
    offer.set_request_id(request);
    return offer;
  }

  CoreRig rig;
};

TEST_F(LogFieldsTest, EachRungIsForTheRequestOfTheOffer) {
  const auto up = LinesOf([&] { rig.Connect({OfferFor(kMaking, kOnline)}); });
  EXPECT_THAT(up, SizeIs(testing::Ge(2u)));
  EXPECT_THAT(up, Each(AllOf(HasSubstr(absl::StrCat("request=", kMaking)), HasSubstr("region=r1"),
                             HasSubstr("tenant=default"))));
  const auto down = LinesOf([&] { rig.Offer(OfferFor(kReleasing, kOffline)); });
  EXPECT_THAT(down, SizeIs(testing::Ge(2u)));
  EXPECT_THAT(down, Each(HasSubstr(absl::StrCat("request=", kReleasing))));
}

TEST_F(LogFieldsTest, AManagerThatDoesNotSayTheRequestIsWellEnough) {
  for (const char* request : {"", "no UUID"}) {
    const auto lines = LinesOf([&] {
      rig.Connect({OfferFor(request, kOnline)});
      rig.Offer(OfferFor(request, kOffline));
    });
    EXPECT_THAT(lines, SizeIs(testing::Ge(4u)));
    EXPECT_THAT(lines, Each(AllOf(HasSubstr("region=r1"), Not(HasSubstr("request=")))));
  }
}

}  // namespace
}  // namespace cxlpool::agent
