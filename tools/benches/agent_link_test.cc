#include "tools/benches/agent_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cxlpool::bench {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

v1::Report ReportOf(uint64_t generation, v1::SegmentState state, const std::string& error = "") {
  v1::Report report;
  v1::SegmentReport& segment = *report.add_segments();
  segment.set_attachment_generation(generation);
  segment.set_state(state);
  if (!error.empty()) segment.mutable_error()->set_reason(error);
  return report;
}

// A core that answers each Offer at once by these Reports.
void StartWith(AgentLink& link, std::vector<v1::Report> reports) {
  agent::ManagerLink::Handlers handlers;
  handlers.make_hello = [](DoneWith<v1::Hello> done) { std::move(done)(v1::Hello()); };
  handlers.on_welcome = [](const v1::Welcome&) {};
  handlers.on_offer = [&link, reports = std::move(reports)](const v1::Offer&) {
    for (const v1::Report& report : reports) link.Send(report);
  };
  link.Start(std::move(handlers));
}

absl::StatusOr<absl::Duration> OfferOnline(AgentLink& link, absl::Duration limit) {
  v1::Offer offer;
  offer.set_attachment_generation(7);
  return link.Offer(std::move(offer), v1::SEGMENT_ONLINE, limit);
}

TEST(AgentLinkTest, AnOfferTakesUntilItsStateIsReported) {
  AgentLink link;
  StartWith(link, {ReportOf(6, v1::SEGMENT_ONLINE, "OLD"), ReportOf(7, v1::SEGMENT_REGION),
                   ReportOf(7, v1::SEGMENT_ONLINE), ReportOf(7, v1::SEGMENT_ONLINE, "LATER")});
  ASSERT_TRUE(link.Connect(kLong).ok());
  const auto took = OfferOnline(link, kLong);
  ASSERT_TRUE(took.ok()) << took.status();
  EXPECT_GE(*took, absl::ZeroDuration());
}

TEST(AgentLinkTest, AnErrorEndsTheWait) {
  AgentLink link;
  StartWith(link, {ReportOf(7, v1::SEGMENT_REGION, "DAX_BIND")});
  const auto took = OfferOnline(link, kLong);
  EXPECT_EQ(took.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(took.status().message(), testing::HasSubstr("DAX_BIND"));
}

TEST(AgentLinkTest, WhatIsNeverReportedIsNotAwaitedForEver) {
  AgentLink link;
  StartWith(link, {ReportOf(7, v1::SEGMENT_REGION)});
  EXPECT_TRUE(absl::IsDeadlineExceeded(OfferOnline(link, absl::Milliseconds(1)).status()));
}

TEST(AgentLinkTest, ACoreThatNeverStartsIsNotAwaitedForEver) {
  AgentLink link;
  EXPECT_TRUE(absl::IsDeadlineExceeded(link.Connect(absl::Milliseconds(1))));
}

}  // namespace
}  // namespace cxlpool::bench
