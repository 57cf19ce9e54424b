// Golden scenarios: each file under scenarios/ is a small pool, what is there already, requests,
// and what a caller gets for them. scenarios/README.md says what a line may be.

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "test/model/model_rig.h"
#include "test/rigs/golden_files.h"

namespace cxlpool::fm {
namespace {

using golden::OneOf;
using golden::Options;
using golden::ToBytes;
using golden::Words;

// The pool of one file.
class Scenario : protected ModelRig {
 public:
  // A line that says what is there.
  void Given(const Words& words) {
    const std::string& what = words[0];
    if (what == "default") {
      context().default_policy = PolicyOf(words.at(2));
      return;
    }
    Options options(words, what == "limits" ? 1 : what == "link" ? 3 : what == "has" ? 6 : 2);
    if (what == "limits") {
      state().SetLimits({.extent_granule_bytes = options.Bytes("granule"),
                         .max_lds_per_device = static_cast<uint32_t>(options.Number("lds"))});
    } else if (what == "device") {
      GivenDevice(words[1], options);
    } else if (what == "switch") {
      spec_.switches.push_back({words[1], static_cast<uint32_t>(options.Number("latency")),
                                static_cast<uint32_t>(options.Number("bandwidth")),
                                options.Text("domain")});
    } else if (what == "link") {
      spec_.links.push_back({words[1], words[2], static_cast<uint32_t>(options.Number("latency")),
                             static_cast<uint32_t>(options.Number("bandwidth")),
                             options.Numbers("slots")});
    } else if (what == "host") {
      GivenHost(words[1], options);
    } else if (what == "bridge") {
      GivenBridge(words[1], options);
    } else if (what == "tenant") {
      SetTenant(words[1], options.Bytes("quota"), options.Bytes("reserved"),
                options.Bytes("host-cap"));
    } else if (what == "has") {
      GivenRegion(words, options);
    } else {
      ADD_FAILURE() << "what is \"" << what << "\"?";
    }
  }

  // What a caller gets for the request, in lines.
  Words Ask(const Words& words) {
    state().SetTopology(Topology::Create(spec_).value());
    const std::string& what = words.at(1);
    Options options(words, 3);
    if (what == "allocate")
      return Show(PlanAllocate(state(), Allocate(words[2], options), context()));
    if (what == "attach") {
      const AttachSpec spec{NewRequest("AttachRegion"),
                            Caller::Admin("cxlpool://operator/alice"),
                            words[2],
                            options.Text("host"),
                            ModeOf(options),
                            AccessOf(options),
                            ""};
      return Show(PlanAttach(state(), spec, context()));
    }
    if (what == "resize") {
      const ResizeSpec spec{
          NewRequest("ResizeRegion"), Caller::Admin("cxlpool://operator/alice"),           words[2],
          options.Bytes("size"),      static_cast<uint32_t>(options.Number("extents", 1)), ""};
      return Show(PlanResize(state(), spec, nullptr, context()));
    }
    ADD_FAILURE() << "what is \"" << what << "\"?";
    return {};
  }

 private:
  static Policy PolicyOf(const std::string& text) {
    return OneOf<Policy>(text, {{"pack", Policy::kPack},
                                {"spread", Policy::kSpread},
                                {"bandwidth", Policy::kBandwidth},
                                {"latency", Policy::kLatency},
                                {"isolate", Policy::kIsolate}});
  }
  static Mode ModeOf(Options& options) {
    return OneOf<Mode>(options.Text("mode", "devdax"),
                       {{"devdax", Mode::kDevdax}, {"system-ram", Mode::kSystemRam}});
  }
  static Access AccessOf(Options& options) {
    return OneOf<Access>(options.Text("access", "read-write"),
                         {{"read-write", Access::kReadWrite}, {"read-only", Access::kReadOnly}});
  }
  static Sharing SharingOf(Options& options) {
    return OneOf<Sharing>(options.Text("sharing", "exclusive"),
                          {{"exclusive", Sharing::kExclusive},
                           {"single-writer", Sharing::kSingleWriter},
                           {"multi-writer", Sharing::kMultiWriter}});
  }

  static absl::Duration TimeOf(Options& options, const std::string& key) {
    absl::Duration time = absl::InfiniteDuration();
    if (options.Has(key)) {
      EXPECT_TRUE(absl::ParseDuration(options.Text(key), &time));
    }
    return time;
  }

  void GivenDevice(const std::string& id, Options& options) {
    AddDevice(id, options.Bytes("size"), options.Bytes("granule", kUnit));
    Device device = *state().FindDevice(id);
    const std::string now = options.Text("now", "in-service");
    device.service = OneOf<DeviceService>(now, {{"in-service", DeviceService::kInService},
                                                {"unseen", DeviceService::kInService},
                                                {"draining", DeviceService::kDraining},
                                                {"failed", DeviceService::kFailed},
                                                {"removed", DeviceService::kRemoved}});
    device.service_reason = options.Text("reason");
    Commit({device});
    state().SetReachable(id, now == "unseen" ? "not seen" : "");
    spec_.devices.push_back({id, static_cast<uint32_t>(options.Number("latency")),
                             static_cast<uint32_t>(options.Number("bandwidth")),
                             static_cast<uint32_t>(options.Number("heads")),
                             options.Text("domain")});
  }

  void GivenHost(const std::string& id, Options& options) {
    const int bridges = static_cast<int>(options.Number("bridges"));
    AddHost(id, bridges, static_cast<int>(options.Number("slots")));
    HostRuntime runtime = state().Runtime(id);
    const uint64_t depth = options.Number("depth", 4);
    const uint64_t window = options.Bytes("window", 64 * kGiB);
    for (Bridge& bridge : runtime.bridges) {
      bridge.max_regions = static_cast<uint32_t>(depth);
      bridge.free_window_bytes = window;
    }
    runtime.page_struct_spare_bytes = options.Bytes("spare");
    const std::string now = options.Text("now", "online");
    runtime.online = now != "offline";
    if (now == "unfit") runtime.unfit_reason = "no driver kmem (modprobe kmem)";
    runtime.fabric_reachable = now != "unreachable";
    state().SetRuntime(id, runtime);
    spec_.hosts.push_back(id);
  }

  // bridge bridge-0 host host-a [blocked-by REGION] [window BYTES] [depth N] [depth-unknown yes]
  void GivenBridge(const std::string& name, Options& options) {
    const std::string host = options.Text("host");
    HostRuntime runtime = state().Runtime(host);
    for (Bridge& bridge : runtime.bridges) {
      if (bridge.name != name) continue;
      bridge.free_window_bytes = options.Bytes("window", bridge.free_window_bytes);
      bridge.max_regions = static_cast<uint32_t>(options.Number("depth", bridge.max_regions));
      bridge.depth_unknown = options.Text("depth-unknown") == "yes";
      if (const std::string by = options.Text("blocked-by"); !by.empty()) {
        bridge.blocked = true;
        const Attachment* there = (*state().FindRegionById(by))->FindAttachment(host);
        bridge.blocking_serial = there->segments.at(0).serial;
      }
    }
    state().SetRuntime(host, runtime);
  }

  // has NAME EXTENTS on DEVICES at ADDRESSES: lengths, devices and addresses, each a list by comma.
  void GivenRegion(const Words& words, Options& options) {
    auto region = std::make_shared<Region>();
    region->key = context().next_id();
    region->tag = context().make_tag();
    region->id = words[1];
    region->generation = context().next_id();
    ASSERT_EQ(words.at(3), "on");
    const Words lengths = absl::StrSplit(words[2], ',');
    const Words devices = absl::StrSplit(words[4], ',');
    const Words addresses = absl::StrSplit(absl::StripPrefix(words[5], "at:"), ',');
    for (size_t i = 0; i < lengths.size(); ++i) {
      region->extents.push_back({devices.at(i), ToBytes(addresses.at(i)), ToBytes(lengths[i])});
    }
    region->requested_bytes = region->size_bytes();
    region->interleave_ways = static_cast<uint32_t>(options.Number("ways", 1));
    region->interleave_granularity_bytes = region->interleave_ways > 1 ? 256 : 0;
    region->policy = PolicyOf(options.Text("policy", "pack"));
    region->tenant = options.Text("tenant", kDefaultTenant);
    region->sharing = SharingOf(options);
    region->state = RegionState::kAllocated;
    region->expected_lifetime = TimeOf(options, "lifetime");
    if (options.Has("host")) {
      Attachment attachment;
      attachment.host = options.Text("host");
      attachment.access = AccessOf(options);
      attachment.generation = context().next_id();
      const std::string now = options.Text("now");
      const bool coming = now == "coming";
      attachment.settled().state = coming ? AttachmentState::kWanted : AttachmentState::kOnline;
      attachment.settled().detaching = now == "leaving";
      for (const uint32_t slot : options.Numbers("slots")) {
        Segment segment;
        segment.extent_index = static_cast<uint32_t>(attachment.segments.size());
        segment.slot = slot;
        segment.host_bridge = BridgeOf(attachment.host, slot);
        segment.serial = kSerialBase | context().next_id();
        if (segment.extent_index % region->interleave_ways == 0) hpa_bytes_ += 64 * kGiB;
        segment.hpa_bytes = coming ? 0 : hpa_bytes_;
        attachment.segments.push_back(segment);
      }
      region->attachments.push_back(attachment);
    }
    Commit({RegionPtr(region)});
  }

  std::string BridgeOf(const std::string& host, uint32_t slot) {
    for (const Bridge& bridge : state().Runtime(host).bridges) {
      if (std::find(bridge.slots.begin(), bridge.slots.end(), slot) != bridge.slots.end()) {
        return bridge.name;
      }
    }
    ADD_FAILURE() << host << " has no slot " << slot;
    return "";
  }

  AllocateSpec Allocate(const std::string& id, Options& options) {
    AllocateSpec spec = Allocation(id, options.Bytes("size"), options.Text("host"));
    spec.tenant = options.Text("tenant", kDefaultTenant);
    spec.device = options.Text("device");
    spec.max_extents = static_cast<uint32_t>(options.Number("extents", 1));
    if (options.Has("policy")) spec.policy = PolicyOf(options.Text("policy"));
    spec.interleave_ways = static_cast<uint32_t>(options.Number("ways"));
    spec.interleave_granularity_bytes = static_cast<uint32_t>(options.Bytes("granularity"));
    spec.isolate_from = options.List("isolate-from");
    spec.expected_lifetime = TimeOf(options, "lifetime");
    spec.sharing = SharingOf(options);
    spec.mode = ModeOf(options);
    spec.access = AccessOf(options);
    return spec;
  }

  static Words Show(const absl::StatusOr<Plan>& plan) {
    return plan.ok() ? ShowPlan(*plan) : ShowRefusal(plan.status());
  }
  static Words ShowPlan(const Plan& plan) {
    Words lines;
    const Region& region = *plan.region;
    std::string shape;
    if (region.interleave_ways > 1) {
      shape = absl::StrCat(", ", region.interleave_ways, " ways of ",
                           FormatBytes(region.interleave_granularity_bytes));
    }
    lines.push_back(absl::StrCat("region ", region.id, " of ", FormatBytes(region.held_bytes()),
                                 " ", ToString(region.policy), shape));
    for (const Extent& extent : region.extents) {
      lines.push_back(absl::StrCat("extent ", FormatBytes(extent.length_bytes), " on ",
                                   extent.device.str(), " at ", FormatBytes(extent.dpa_bytes)));
    }
    for (const Attachment& attachment : region.attachments) {
      for (const Segment& segment : attachment.segments) {
        if (segment.hpa_bytes != 0) continue;  // There already.
        lines.push_back(absl::StrCat("enters ", attachment.host, " at slot ", segment.slot,
                                     " under ", segment.host_bridge, ", extent ",
                                     segment.extent_index));
      }
    }
    for (const HostPlacement::OnBridge& bridge : plan.bridges) {
      std::string line = absl::StrCat("stack of ", bridge.host_bridge, ": ", bridge.stack_depth);
      if (!bridge.above.empty()) {
        absl::StrAppend(&line, ", above ", absl::StrJoin(bridge.above, " "));
      }
      if (!bridge.unblocks.empty()) {
        absl::StrAppend(&line, "; its release unblocks ", absl::StrJoin(bridge.unblocks, " "));
      }
      lines.push_back(line);
    }
    return lines;
  }
  static Words ShowRefusal(const absl::Status& status) {
    const auto refusal = RefusalOf(status);
    if (!refusal.has_value()) return {status.ToString()};
    Words lines = {
        absl::StrCat("refused ", absl::StatusCodeToString(status.code()), " ", refusal->reason),
        absl::StrCat("because ", refusal->message), absl::StrCat("remedy ", refusal->remedy)};
    for (const auto& [key, value] : refusal->metadata) {
      lines.push_back(absl::StrCat("data ", key, " =", value.empty() ? "" : " ", value));
    }
    return lines;
  }

  TopologySpec spec_;
  uint64_t hpa_bytes_ = 0;
};

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, IsAsItsFileSays) {
  Scenario scenario;
  golden::Check(absl::StrCat(CXLPOOL_SCENARIOS, "/", GetParam(), ".txt"),
                [&](const Words& words, bool* question) -> Words {
                  *question = words[0] == "request";
                  if (*question) return scenario.Ask(words);
                  scenario.Given(words);
                  return {};
                });
}

INSTANTIATE_TEST_SUITE_P(All, ScenarioTest, testing::ValuesIn(golden::Files(CXLPOOL_SCENARIOS)),
                         golden::TestName);

TEST(ScenariosTest, EveryPolicyAndEveryRefusalOfPlacementHasOne) {
  const std::string all = golden::AllOf(CXLPOOL_SCENARIOS);
  for (const char* text :
       {" PACK\n",           " SPREAD\n",          " BANDWIDTH,",      " LATENCY\n",
        " ISOLATE\n",        "POOL_FULL",          "POOL_FRAGMENTED",  "LD_LIMIT",
        "UNKNOWN_DEVICE",    "DEVICE_UNREACHABLE", "DEVICE_DRAINING",  "DEVICE_FAILED",
        "NO_PATH",           "NOT_ISOLATED",       "TOO_FEW_DEVICES",  "BAD_INTERLEAVE",
        "NO_FREE_PORT",      "BRIDGE_BLOCKED",     "BRIDGE_FULL",      "WINDOW_FULL",
        "PAGE_STRUCT_SPACE", "HOST_NOT_ONLINE",    "HOST_UNREACHABLE", "UNKNOWN_HOST",
        "HOST_UNFIT",        "SHARING_CONFLICT",   "QUOTA_EXCEEDED",   "RESERVED_FOR_OTHERS",
        "HOST_CAP_EXCEEDED"}) {
    EXPECT_NE(all.find(text), std::string::npos) << "no scenario shows " << text;
  }
}

}  // namespace
}  // namespace cxlpool::fm
