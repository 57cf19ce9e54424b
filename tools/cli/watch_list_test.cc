#include "tools/cli/watch_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <utility>
#include <vector>

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

v1::ListEventsResponse Events(std::vector<std::pair<uint64_t, const char*>> events) {
  v1::ListEventsResponse response;
  for (const auto& [row, resource] : events) {
    response.add_events()->set_row(row);
    response.mutable_events()->rbegin()->set_resource(resource);
  }
  return response;
}

// Two may be of one row, for they were committed together.
TEST_F(WatchListTest, EventsArePrintedOnceAndNewOnesFollow) {
  fake_.manager.ListEvents_calls.answers = {
      Events({{7, "regions/b"}, {6, "regions/a"}}), Events({{7, "regions/b"}, {6, "regions/a"}}),
      Events({{9, "regions/e"}, {9, "regions/d"}, {8, "regions/c"}, {7, "regions/b"}})};
  Watch(ListEvents{.request = {}, .most = 2}, OutputFormat::kTable);
  std::istringstream lines(out_.str());
  std::string line, resources;
  std::getline(lines, line);
  EXPECT_THAT(line, StartsWith("TIME"));
  while (std::getline(lines, line)) {
    ASSERT_THAT(line, HasSubstr("regions/"));
    resources += line[line.find("regions/") + 8];
  }
  EXPECT_EQ(resources, "abcde");
  EXPECT_EQ(fake_.manager.ListEvents_calls.requests[1].page_size(), 100u);  // Each time it looks.
  EXPECT_EQ(fake_.pacer.sleeps, std::vector<absl::Duration>(3, absl::Seconds(2)));
}

// Whoever waits for the first event misses none of many.
TEST_F(WatchListTest, APageOfEventsIsNotAllThatHappened) {
  auto newest = Events({{9, "regions/d"}, {8, "regions/c"}});
  newest.set_next_page_token("older");
  fake_.manager.ListEvents_calls.answers = {Events({{6, "regions/a"}}), newest,
                                            Events({{7, "regions/b"}, {6, "regions/a"}})};
  Watch(ListEvents{.request = {}, .most = 1}, OutputFormat::kJson);
  std::istringstream lines(out_.str());
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_THAT(first, HasSubstr("regions/a"));
  EXPECT_THAT(second, testing::ContainsRegex("regions/b.*regions/c.*regions/d"));
  EXPECT_FALSE(std::getline(lines, third));
  EXPECT_EQ(fake_.manager.ListEvents_calls.requests[2].page_token(), "older");
}

// How many of what was there before are shown is no limit for what comes.
TEST_F(WatchListTest, TheFirstEventsMayBeMany) {
  auto newest = Events({{3, "regions/c"}});
  newest.set_next_page_token("older");
  fake_.manager.ListEvents_calls.answers = {Events({}), newest,
                                            Events({{2, "regions/b"}, {1, "regions/a"}}),
                                            Events({{4, "regions/d"}, {3, "regions/c"}})};
  Watch(ListEvents{.request = {}, .most = 1}, OutputFormat::kJson);
  std::istringstream lines(out_.str());
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_THAT(first, testing::ContainsRegex("regions/a.*regions/b.*regions/c"));
  EXPECT_THAT(second, AllOf(HasSubstr("regions/d"), testing::Not(HasSubstr("regions/c"))));
  EXPECT_FALSE(std::getline(lines, third));
}

// A manager that was restored from a backup counts rows from an earlier one.
TEST_F(WatchListTest, EventsGoOnAfterARestore) {
  const auto restored = Events({{40, "regions/b"}});
  fake_.manager.ListEvents_calls.answers = {Events({{90, "regions/a"}}), restored, restored,
                                            Events({{41, "regions/c"}, {40, "regions/b"}})};
  Watch(ListEvents{.request = {}, .most = 1}, OutputFormat::kTable);
  EXPECT_THAT(out_.str(),
              testing::ContainsRegex("(.|\n)*regions/a(.|\n)*regions/b(.|\n)*regions/c"));
}

}  // namespace
}  // namespace cxlpool::cli
