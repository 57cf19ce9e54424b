// Who has a Region open, as the manager is told.
#include "host-agent/service/holder_reports.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "host-agent/service/local_service.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using testing::IsEmpty;

constexpr char kHeldTag[] = "0f8fad5b-d9cb-469f-a165-70867728950e";
const LocalPeer kPython = {
    .connection = 10, .uid = 1000, .pid = 4711, .start_ticks = 99, .program = "python3"};

// A program's page, and what it stores into it.
class ProgramPage {
 public:
  ProgramPage() : fd_(::memfd_create("usage", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd_.get(), kUsagePageBytes), 0);
    EXPECT_EQ(::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    Store();
  }
  void Set(size_t index, const UsageEntry& entry) {
    page_.entries[index] = entry;
    Store();
  }
  UniqueFd Given() const { return UniqueFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)); }
  int fd() const { return fd_.get(); }

 private:
  void Store() {
    EXPECT_EQ(::pwrite(fd_.get(), &page_, sizeof page_, 0), static_cast<ssize_t>(sizeof page_));
  }
  UniqueFd fd_;
  UsagePage page_;
};

struct HolderRig : CoreRig {
  HolderRig() {
    LocalPolicy policy;
    policy.agent_uid = 990;
    service =
        std::make_unique<LocalService>(policy, core.get(), &executor, &executor, &memory, &link);
    memory.plugged = {{1, 0x51}, {2, 0x52}};
    Start();
    Connect({TheOffer()});
  }

  static v1::Offer TheOffer() {
    v1::Offer offer = MakeOffer(1, kOnline, {{1, 0x51}, {2, 0x52}});
    offer.set_region_tag(kHeldTag);
    return offer;
  }

  v1::LocalResponse Ask(const LocalPeer& peer, v1::LocalRequest request,
                        UniqueFd page = UniqueFd()) {
    request.set_protocol_version(kLocalProtocolVersion);
    v1::LocalResponse answer;
    service->Handle(
        peer, std::move(request), [&](LocalReply reply) { answer = std::move(reply.response); },
        std::move(page));
    executor.RunReady();
    return answer;
  }
  void Open(const LocalPeer& peer) {
    v1::LocalRequest request;
    request.mutable_open()->set_name("regions/r1");
    request.mutable_open()->set_access(v1::READ_WRITE);
    EXPECT_EQ(Ask(peer, request).code(), 0);
  }
  void Close(const LocalPeer& peer) {
    v1::LocalRequest request;
    request.mutable_close()->set_name("regions/r1");
    EXPECT_EQ(Ask(peer, request).code(), 0);
  }
  v1::LocalResponse Give(const LocalPeer& peer, UniqueFd page) {
    v1::LocalRequest request;
    request.mutable_usage();
    return Ask(peer, request, std::move(page));
  }
  void Pass(absl::Duration time) {
    executor.Advance(time);
    executor.RunReady();
  }

  // Since it was asked last.
  std::vector<v1::HoldersReport> Reports() {
    std::vector<v1::HoldersReport> reports;
    for (const v1::Report& report : link.reports) {
      if (report.has_holders()) reports.push_back(report.holders());
    }
    link.reports.clear();
    return reports;
  }

  std::unique_ptr<LocalService> service;
};

TEST(HolderReportsTest, ARegionThatNobodyEverOpenedIsTold) {
  HolderRig rig;
  std::vector<v1::HoldersReport> reports = rig.Reports();
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].regions_size(), 1);
  EXPECT_EQ(reports[0].regions(0).region_tag(), kHeldTag);
  EXPECT_THAT(reports[0].regions(0).holders(), IsEmpty());
  const auto since = reports[0].regions(0).unopened_since();
  EXPECT_EQ(since.seconds(), absl::ToUnixSeconds(rig.executor.Now()));
  rig.Pass(absl::Seconds(60));
  EXPECT_THAT(rig.Reports(), IsEmpty()) << "nothing has changed";
  rig.Open(kPython);
  rig.Close(kPython);
  rig.Pass(absl::Seconds(10));
  reports = rig.Reports();
  ASSERT_FALSE(reports.empty());
  EXPECT_THAT(reports.back().regions(), IsEmpty()) << "it was opened once";
}

TEST(HolderReportsTest, AnOpenIsToldAtOnceAndWhatFollowsTenSecondsLater) {
  HolderRig rig;
  EXPECT_EQ(rig.Reports().size(), 1u) << "that nobody has opened it";
  rig.Open(kPython);
  std::vector<v1::HoldersReport> reports = rig.Reports();
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].regions_size(), 1);
  EXPECT_EQ(reports[0].regions(0).region_tag(), kHeldTag);
  EXPECT_EQ(reports[0].regions(0).attachment_generation(), 1u);
  ASSERT_EQ(reports[0].regions(0).holders_size(), 1);
  const v1::RegionHolder& holder = reports[0].regions(0).holders(0);
  EXPECT_EQ(holder.pid(), 4711u);
  EXPECT_EQ(holder.start_ticks(), 99u);
  EXPECT_EQ(holder.uid(), 1000u);
  EXPECT_EQ(holder.program(), "python3");
  EXPECT_EQ(holder.open_bytes(), 2 * kTestLength);

  LocalPeer other = kPython;
  other.connection = 11;
  other.pid = 4712;
  rig.Open(other);
  rig.Close(kPython);
  rig.service->ConnectionEnded(other.connection);
  rig.Open(other);
  rig.Pass(absl::Seconds(9));
  EXPECT_THAT(rig.Reports(), IsEmpty());
  rig.Pass(absl::Seconds(1));
  reports = rig.Reports();
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].regions(0).holders_size(), 1);
  EXPECT_EQ(reports[0].regions(0).holders(0).pid(), 4712u);

  rig.Pass(absl::Seconds(60));
  EXPECT_THAT(rig.Reports(), IsEmpty()) << "nothing has changed";
  rig.service->ConnectionEnded(other.connection);
  rig.executor.RunReady();
  reports = rig.Reports();
  ASSERT_EQ(reports.size(), 1u) << "at once: the last one is long ago";
  EXPECT_THAT(reports[0].regions(), IsEmpty());
}

TEST(HolderReportsTest, ThePagesAreReadWhileSomebodyHasTheRegionOpen) {
  HolderRig rig;
  ProgramPage page;
  EXPECT_TRUE(rig.Give(kPython, page.Given()).has_usage());
  rig.Open(kPython);
  rig.Reports();
  page.Set(63, {UsageTagOf(kHeldTag), 1000, 200, 30, 4});
  page.Set(0, {UsageTagOf("0f8fad5b-d9cb-469f-a165-708677289500"), 7, 7, 7, 7});
  rig.Pass(absl::Seconds(10));
  std::vector<v1::HoldersReport> reports = rig.Reports();
  ASSERT_EQ(reports.size(), 1u);
  const v1::RegionHolder& holder = reports[0].regions(0).holders(0);
  EXPECT_EQ(holder.mapped_bytes(), 1000u);
  EXPECT_EQ(holder.live_bytes(), 200u);
  EXPECT_EQ(holder.slack_bytes(), 30u);
  EXPECT_EQ(holder.pins(), 4u);

  page.Set(63, {});
  rig.Pass(absl::Seconds(10));
  reports = rig.Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].regions(0).holders(0).mapped_bytes(), 0u);
}

// Two connections of one client give the same page; two clients of one process have one each.
TEST(HolderReportsTest, TheConnectionsOfAProcessAreOneHolder) {
  HolderRig rig;
  ProgramPage one;
  ProgramPage two;
  one.Set(0, {UsageTagOf(kHeldTag), 100, 10, 1, 1});
  two.Set(0, {UsageTagOf(kHeldTag), 1000, 20, 2, UINT64_MAX});
  const ProgramPage* const pages[] = {&one, &one, &two};
  for (uint64_t i = 0; i < 3; ++i) {
    LocalPeer peer = kPython;
    peer.connection += i;
    EXPECT_TRUE(rig.Give(peer, pages[i]->Given()).has_usage());
    rig.Open(peer);
  }
  rig.Pass(absl::Seconds(10));
  const std::vector<v1::HoldersReport> reports = rig.Reports();
  ASSERT_EQ(reports.back().regions(0).holders_size(), 1);
  const v1::RegionHolder& holder = reports.back().regions(0).holders(0);
  EXPECT_EQ(holder.open_bytes(), 2 * kTestLength);
  EXPECT_EQ(holder.mapped_bytes(), 1100u);
  EXPECT_EQ(holder.live_bytes(), 30u);
  EXPECT_EQ(holder.slack_bytes(), 3u);
}

TEST(HolderReportsTest, ASecondPageReplacesTheFirst) {
  HolderRig rig;
  ProgramPage first;
  ProgramPage second;
  first.Set(0, {UsageTagOf(kHeldTag), 100, 0, 0, 0});
  second.Set(0, {UsageTagOf(kHeldTag), 5, 0, 0, 0});
  rig.Give(kPython, first.Given());
  rig.Give(kPython, second.Given());
  rig.Open(kPython);
  EXPECT_EQ(rig.Reports().back().regions(0).holders(0).mapped_bytes(), 5u);
}

TEST(HolderReportsTest, ANewSessionHearsOfTheHoldersAtOnce) {
  HolderRig rig;
  rig.Connect({HolderRig::TheOffer()});
  rig.Reports();
  rig.Open(kPython);
  rig.Pass(absl::Seconds(1));
  ASSERT_EQ(rig.Reports().size(), 1u);
  rig.link.handlers.on_lost(absl::UnavailableError("gone"), false);
  rig.executor.RunReady();
  rig.Pass(absl::Seconds(30));
  EXPECT_THAT(rig.Reports(), IsEmpty());
  rig.Connect({HolderRig::TheOffer()});
  EXPECT_EQ(rig.Reports().size(), 1u);
  rig.Connect({HolderRig::TheOffer()});
  EXPECT_EQ(rig.Reports().size(), 1u) << "though the other session had it a moment ago";
}

TEST(HolderReportsTest, ARegionsHoldersAreCountedWhereTheyAreTooMany) {
  HolderRig rig;
  for (uint64_t i = 0; i < 40; ++i) {
    LocalPeer peer = kPython;
    peer.connection += i;
    peer.pid += static_cast<int>(i);
    rig.Open(peer);
  }
  rig.Pass(absl::Seconds(10));
  const v1::HoldersReport report = rig.Reports().back();
  ASSERT_EQ(report.regions_size(), 1);
  EXPECT_EQ(report.regions(0).holders_size(), 32);
  EXPECT_EQ(report.regions(0).more(), 8u);
}

TEST(HolderReportsTest, ARequestWithoutAPageIsRefused) {
  HolderRig rig;
  const v1::LocalResponse answer = rig.Give(kPython, UniqueFd());
  EXPECT_EQ(answer.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(answer.error().reason(), "BAD_USAGE_PAGE");
}

TEST(HolderReportsTest, PagesAreOfSoManyConnectionsAndNoMore) {
  HolderRig rig;
  const ProgramPage page;
  LocalPeer peer = kPython;
  for (size_t i = 0; i < HolderReports::kMaxPages; ++i) {
    peer.connection = 100 + i;
    ASSERT_TRUE(rig.Give(peer, page.Given()).has_usage());
  }
  EXPECT_TRUE(rig.Give(peer, page.Given()).has_usage()) << "in place of its own";
  peer.connection = 1;
  EXPECT_EQ(rig.Give(peer, page.Given()).error().reason(), "TOO_MANY_USAGE_PAGES");
  rig.service->ConnectionEnded(100);
  EXPECT_TRUE(rig.Give(peer, page.Given()).has_usage());
}

// --- What is a page.

TEST(UsageSourceTest, OnlyAMemfdOfOnePageThatCannotShrinkIsAPage) {
  const ProgramPage page;
  EXPECT_TRUE(IsUsagePage(page.fd()));
  EXPECT_FALSE(IsUsagePage(-1));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(IsUsagePage(null.get()));
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(IsUsagePage(file.get()));
  const UsagePage content;
  for (const auto& [bytes, seals, is_page] :
       std::initializer_list<std::tuple<off_t, int, bool>>{{4096, F_SEAL_SHRINK, true},
                                                           {4096, F_SEAL_GROW, false},
                                                           {4096, 0, false},
                                                           {4095, F_SEAL_SHRINK, false},
                                                           {8192, F_SEAL_SHRINK, false}}) {
    const UniqueFd fd(::memfd_create("usage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::pwrite(fd.get(), &content, sizeof content, 0),
              static_cast<ssize_t>(sizeof content));
    ASSERT_EQ(::ftruncate(fd.get(), bytes), 0);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    EXPECT_EQ(IsUsagePage(fd.get()), is_page) << bytes << " " << seals;
  }
  const UniqueFd blank(::memfd_create("usage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(blank.get(), 4096), 0);
  ASSERT_EQ(::fcntl(blank.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(IsUsagePage(blank.get())) << "it begins as nothing that is known";
}

}  // namespace
}  // namespace cxlpool::agent
