#include "tools/cli/watch_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class WatchListTest : public testing::Test {
 protected:
  // Until the script of the manager is at its end.
  void Watch(const PoolCommand& command, OutputFormat format = OutputFormat::kName) {
    Printer printer{.out = out_, .err = err_, .format = format, .columns = columns_};
    EXPECT_TRUE(absl::IsUnimplemented(ExecuteAndWatch(command, fake_.connection, printer)));
  }
  static v1::ListHostsResponse Hosts(const char* name) {
    v1::ListHostsResponse hosts;
    hosts.add_hosts()->set_name(name);
    return hosts;
  }
  static v1::ListRegionsResponse List(uint64_t revision, const char* name) {
    v1::ListRegionsResponse regions;
    *regions.add_regions() = MakeRegion(v1::Region::ALLOCATED, revision, name);
    regions.set_revision(revision);
    return regions;
  }

  FakeConnection fake_;
  std::ostringstream out_, err_;
  int columns_ = 0;
};

TEST_F(WatchListTest, AsksEveryTwoSecondsAndPrintsWhatChanged) {
  fake_.manager.ListHosts_calls.answers = {Hosts("hosts/a"), Hosts("hosts/a"), Hosts("hosts/b")};
  Watch(ListHosts());
  EXPECT_EQ(out_.str(), "a\n\nb\n");
  EXPECT_EQ(fake_.pacer.sleeps, std::vector<absl::Duration>(3, absl::Seconds(2)));
}

TEST_F(WatchListTest, JsonIsADocumentALine) {
  fake_.manager.ListHosts_calls.answers = {Hosts("hosts/a"), Hosts("hosts/b")};
  Watch(ListHosts(), OutputFormat::kJson);
  std::istringstream lines(out_.str());
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_THAT(first, AllOf(StartsWith("{\"hosts\":"), HasSubstr("hosts/a")));
  EXPECT_THAT(second, HasSubstr("hosts/b"));
  EXPECT_FALSE(std::getline(lines, third));
}

TEST_F(WatchListTest, YamlHasDocumentsOfItsOwn) {
  fake_.manager.ListHosts_calls.answers = {Hosts("hosts/a"), Hosts("hosts/b")};
  Watch(ListHosts(), OutputFormat::kYaml);
  EXPECT_THAT(out_.str(), StartsWith("---\nhosts:\n- name: hosts/a\n"));
  EXPECT_THAT(out_.str(), HasSubstr("\n---\nhosts:\n- name: hosts/b\n"));
}

TEST_F(WatchListTest, OnATerminalTheTableTakesThePlaceOfTheOneBefore) {
  columns_ = 80;
  fake_.manager.ListHosts_calls.answers = {Hosts("hosts/a"), Hosts("hosts/b")};
  Watch(ListHosts(), OutputFormat::kTable);
  const std::string out = out_.str();
  EXPECT_THAT(out, StartsWith("\x1b[H\x1b[2J"));
  EXPECT_THAT(out, HasSubstr("  every 2s; Ctrl-C ends it\n\nNAME"));
  EXPECT_NE(out.rfind("\x1b[H\x1b[2J"), 0u);
}

TEST_F(WatchListTest, RegionsAreListedAgainWhenTheManagerSaysThatOneChanged) {
  const auto region = [](uint64_t revision) {
    return Changed(MakeRegion(v1::Region::ALLOCATED, revision));
  };
  // The list of revision 7 holds what the event of revision 6 says.
  fake_.manager.streams = {
      {{region(3), Synced(5), region(6), region(8)}, absl::UnimplementedError("over")}};
  fake_.manager.ListRegions_calls.answers = {List(7, "regions/a"), List(8, "regions/b")};
  ListRegions command;
  command.request.set_filter("tenant = ml");
  Watch(command);
  EXPECT_EQ(out_.str(), "a\n\nb\n");
  ASSERT_EQ(fake_.manager.ListRegions_calls.requests.size(), 2u);
  EXPECT_EQ(fake_.manager.ListRegions_calls.requests[1].filter(), "tenant = ml");
}

// It knows fewer revisions than the list that was shown last.
TEST_F(WatchListTest, AManagerRestoredFromABackupIsListedAgain) {
  const v1::Region now = MakeRegion(v1::Region::ALLOCATED, 40, "regions/a");
  fake_.manager.streams = {
      {{Synced(90)}, absl::UnavailableError("away")},
      {{}, Refused(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN")},
      {{Changed(now), Synced(45), Changed(MakeRegion(v1::Region::ALLOCATED, 46))},
       absl::UnimplementedError("over")}};
  fake_.manager.ListRegions_calls.answers = {List(90, "regions/b"), List(45, "regions/a"),
                                             List(46, "regions/c")};
  Watch(ListRegions());
  EXPECT_EQ(out_.str(), "b\n\na\n\nc\n");
}

TEST_F(WatchListTest, AChangeThatTheListDoesNotShowPrintsNothing) {
  const v1::Region other = MakeRegion(v1::Region::SCRUBBING, 6);
  fake_.manager.streams = {{{Synced(5), Removed(other, 7)}, absl::UnimplementedError("x")}};
  fake_.manager.ListRegions_calls.answers = {List(5, "regions/a"), List(7, "regions/a")};
  Watch(ListRegions());
  EXPECT_EQ(out_.str(), "a\n");
}

}  // namespace
}  // namespace cxlpool::cli
