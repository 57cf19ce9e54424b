// Golden plans: each file under plans/ is a host, what is wanted of it, and the steps that lead
// there. plans/README.md says what a line may be.

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/model/step_effect.h"
#include "test/rigs/golden_files.h"
#include "test/rigs/played_steps.h"

namespace cxlpool::agent {
namespace {

using golden::OneOf;
using golden::Options;
using golden::ToBytes;
using golden::ToNumber;
using golden::ToSmall;
using golden::Words;

DaxDriver DriverOf(const std::string& text) {
  return OneOf<DaxDriver>(
      text,
      {{"none", DaxDriver::kNone}, {"devdax", DaxDriver::kDeviceDax}, {"kmem", DaxDriver::kKmem}});
}

const char* ToString(LadderState state) {
  switch (state) {
    case LadderState::kAbsent:
      return "ABSENT";
    case LadderState::kPresent:
      return "PRESENT";
    case LadderState::kRegion:
      return "REGION";
    case LadderState::kOnline:
      return "ONLINE";
    case LadderState::kStopping:
      return "STOPPING";
  }
  return "?";
}

class PlanFile {
 public:
  // A line that says what the kernel shows.
  void Given(const Words& words) {
    const std::string& what = words[0];
    Options options(words, what == "host" ? 1 : 2);
    if (what == "host") {
      host_.memory_block_bytes = ToBytes(options.Text("block", "128MiB"));
      host_.page_struct_spare_bytes = ToBytes(options.Text("spare", "0"));
      for (const std::string& node : options.List("own-nodes")) {
        host_.own_nodes.push_back(static_cast<int>(ToNumber(node)));
      }
    } else if (what == "bridge") {
      ObservedBridge bridge;
      bridge.name = words.at(1);
      for (const std::string& slot : options.List("slots")) bridge.slots.push_back(ToSmall(slot));
      bridge.depth_unknown = options.Flag("depth-unknown");
      bridge.max_regions = ToSmall(options.Text("depth", "4"));
      bridge.live_regions = ToSmall(options.Text("live", "0"));
      bridge.blocked = options.Has("blocked-by");
      bridge.blocking_serial = ToNumber(options.Text("blocked-by", "0"));
      bridge.window_bytes = ToBytes(options.Text("window", "8GiB"));
      bridge.free_window_bytes =
          options.Has("free") ? ToBytes(options.Text("free")) : bridge.window_bytes;
      host_.bridges.push_back(bridge);
    } else if (what == "memdev") {
      host_.memdevs.push_back({.serial = ToNumber(words.at(1)),
                               .slot = ToSmall(options.Text("slot")),
                               .name = absl::StrCat("mem", host_.memdevs.size()),
                               .size_bytes = ToBytes(options.Text("size", "512MiB")),
                               .host_bridge = options.Text("on")});
    } else if (what == "region") {
      GivenRegion(words.at(1), options);
    } else {
      ADD_FAILURE() << "what is \"" << what << "\"?";
    }
  }

  // want WANT LENGTH MODE on BRIDGE targets SLOT:SERIAL,...
  // The steps in lines. `goes_on`: from where the plan before this one ended.
  Words Ask(const Words& words, bool goes_on) {
    if (!goes_on) end_ = host_;
    DesiredSegment desired;
    Options options(words, 4);
    desired.want = OneOf<Want>(
        words.at(1),
        {{"online", Want::kOnline}, {"offline", Want::kOffline}, {"ejected", Want::kEjected}});
    desired.length_bytes = ToBytes(words.at(2));
    desired.mode =
        OneOf<Mode>(words.at(3), {{"devdax", Mode::kDevdax}, {"system-ram", Mode::kSystemRam}});
    desired.host_bridge = options.Text("on");
    desired.interleave_granularity_bytes = ToSmall(options.Text("granularity", "0"));
    desired.failed_remakes = static_cast<int>(ToNumber(options.Text("failed-remakes", "0")));
    for (const std::string& target : options.List("targets")) {
      const Words parts = absl::StrSplit(target, ':');
      desired.targets.push_back({.slot = ToSmall(parts.at(0)), .serial = ToNumber(parts.at(1))});
    }
    const bool earlier_pending = options.Flag("earlier-pending");
    const std::vector<Step> steps = PlanSteps(desired, end_, earlier_pending);
    Words lines = {absl::StrCat("is ", ToString(StateOf(desired, end_)))};
    for (const Step& step : steps) {
      if (!step.is_rung()) {
        ShowEnd(step, lines);
        break;
      }
      const std::string shown = Show(step, desired);
      ApplyStep(step, desired, end_);
      EXPECT_TRUE(PostconditionHolds(step, desired, end_)) << shown;
      lines.push_back(absl::StrCat(shown, ": ", ToString(StateOf(desired, end_))));
    }
    return lines;
  }

 private:
  void GivenRegion(const std::string& name, Options& options) {
    ObservedHostRegion region;
    region.name = name;
    for (const std::string& serial : options.List("of")) {
      region.serials.push_back(serial == "?" ? 0 : ToNumber(serial));
    }
    region.committed = options.Text("now", "committed") == "committed";
    region.hpa_bytes = ToNumber(options.Text("at", "0"));
    region.size_bytes = ToBytes(options.Text("size", "512MiB"));
    region.dax_device = options.Text("dax");
    region.dax_driver = DriverOf(options.Text("driver", "none"));
    const std::string node = options.Text("node", "1");
    if (node != "none") region.numa_node = static_cast<int>(ToNumber(node));
    const Words blocks = absl::StrSplit(options.Text("blocks", "0/0"), '/');
    region.online_blocks = ToSmall(blocks.at(0));
    region.total_blocks = ToSmall(blocks.at(1));
    region.all_movable = options.Text("zone", "Movable") == "Movable" && region.online_blocks > 0;
    host_.regions.push_back(region);
  }

  static std::string Show(const Step& step, const DesiredSegment& desired) {
    std::string text = StepName(step.kind);
    const DesiredTarget& target = desired.targets[step.target];
    if (step.kind == Step::Kind::kPowerOn || step.kind == Step::Kind::kPowerOff) {
      absl::StrAppend(&text, " slot ", target.slot, " serial 0x", absl::Hex(target.serial));
    }
    if (step.kind == Step::Kind::kBindDax) {
      absl::StrAppend(&text, step.driver == DaxDriver::kKmem ? " kmem" : " device_dax");
    }
    if (step.check_holders) absl::StrAppend(&text, " unless held");
    return text;
  }

  static void ShowEnd(const Step& step, Words& lines) {
    if (step.kind != Step::Kind::kRefuse) return lines.push_back(StepName(step.kind));
    lines.push_back(absl::StrCat("refused ", absl::StatusCodeToString(step.refusal.code), " ",
                                 step.refusal.reason));
    lines.push_back(absl::StrCat("because ", step.refusal.message));
    lines.push_back(absl::StrCat("remedy ", step.refusal.remedy));
  }

  HostObservation host_;
  HostObservation end_;  // Of the plan before.
};

class PlanGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(PlanGoldenTest, IsAsItsFileSays) {
  PlanFile file;
  golden::Check(absl::StrCat(CXLPOOL_PLANS, "/", GetParam(), ".txt"),
                [&](Words words, bool* question) -> Words {
                  const bool goes_on = words[0] == "then";
                  if (goes_on) words.erase(words.begin());
                  *question = words.at(0) == "want";
                  if (*question) return file.Ask(words, goes_on);
                  file.Given(words);
                  return {};
                });
}

INSTANTIATE_TEST_SUITE_P(All, PlanGoldenTest, testing::ValuesIn(golden::Files(CXLPOOL_PLANS)),
                         golden::TestName);

TEST(PlanFilesTest, EveryRungAndEveryRefusalHasOne) {
  const std::string all = golden::AllOf(CXLPOOL_PLANS);
  for (const char* text : {"PowerOn",
                           "CreateHostRegion",
                           "BindDax device_dax",
                           "BindDax kmem",
                           "OnlineBlocks",
                           "OfflineBlocks",
                           "UnbindDax unless held",
                           "UnbindDax:",
                           "DestroyHostRegion",
                           "PowerOff",
                           "  Wait",
                           "WRONG_BRIDGE",
                           "UNKNOWN_BRIDGE",
                           "BRIDGE_BLOCKED",
                           "DECODERS_FULL",
                           "WINDOW_FULL",
                           "MEMDEV_GONE",
                           "FOREIGN_HOST_REGION",
                           "SIZE_MISMATCH",
                           "PAGE_STRUCT_SPACE",
                           "NO_OWN_NODE",
                           "BLOCK_ALIGNMENT"}) {
    EXPECT_NE(all.find(text), std::string::npos) << "no plan shows " << text;
  }
}

}  // namespace
}  // namespace cxlpool::agent
