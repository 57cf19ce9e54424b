// Golden scenarios: each file under scenarios/ is a small pool, what is there already, requests,
// and what a caller gets for them. scenarios/README.md says what a line may be.
//
// GOLDEN_UPDATE=1 in the environment rewrites what is expected: read the difference before you
// keep it.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

using Words = std::vector<std::string>;

// The rest of a line: "key value" pairs, in any order.
class Options {
 public:
  Options(const Words& words, size_t first) {
    for (size_t i = first; i < words.size(); i += 2) {
      values_[words[i]] = i + 1 < words.size() ? words[i + 1] : "";
    }
  }
  // Every option is to be asked for: one that is not is a mistake in the file.
  ~Options() {
    for (const auto& [key, value] : values_) ADD_FAILURE() << "what is \"" << key << "\"?";
  }
  bool Has(const std::string& key) const { return values_.contains(key); }
  std::string Text(const std::string& key, const std::string& otherwise = "") {
    const auto it = values_.find(key);
    if (it == values_.end()) return otherwise;
    std::string value = it->second;
    values_.erase(it);
    return value;
  }
  uint64_t Number(const std::string& key, uint64_t otherwise = 0) {
    return Has(key) ? ToNumber(Text(key)) : otherwise;
  }
  uint64_t Bytes(const std::string& key, uint64_t otherwise = 0) {
    return Has(key) ? ToBytes(Text(key)) : otherwise;
  }
  absl::Duration Time(const std::string& key) {
    absl::Duration time = absl::InfiniteDuration();
    if (Has(key)) {
      EXPECT_TRUE(absl::ParseDuration(Text(key), &time));
    }
    return time;
  }
  std::vector<uint32_t> Numbers(const std::string& key) {
    std::vector<uint32_t> numbers;
    for (const std::string& word : List(key)) {
      numbers.push_back(static_cast<uint32_t>(ToNumber(word)));
    }
    return numbers;
  }
  Words List(const std::string& key) { return absl::StrSplit(Text(key), ',', absl::SkipEmpty()); }

  static uint64_t ToNumber(const std::string& text) {
    uint64_t number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << "\"" << text << "\" is no number";
    return number;
  }
  static uint64_t ToBytes(const std::string& text) {
    for (const auto& [suffix, unit] : {std::pair("GiB", kGiB), {"MiB", kMiB}, {"KiB", kKiB}}) {
      if (absl::EndsWith(text, suffix)) return ToNumber(text.substr(0, text.size() - 3)) * unit;
    }
    return ToNumber(text);
  }

 private:
  std::map<std::string, std::string> values_;
};

template <typename Value>
Value OneOf(const std::string& text, const std::map<std::string, Value>& values) {
  const auto it = values.find(text);
  EXPECT_TRUE(it != values.end()) << "what is \"" << text << "\"?";
  return it == values.end() ? values.begin()->second : it->second;
}

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
      const AttachSpec spec{NewRequest("AttachRegion"), words[2],
                            options.Text("host"),       ModeOf(options),
                            AccessOf(options),          ""};
      return Show(PlanAttach(state(), spec, context()));
    }
    if (what == "resize") {
      const ResizeSpec spec{NewRequest("ResizeRegion"), words[2], options.Bytes("size"),
                            static_cast<uint32_t>(options.Number("extents", 1)), ""};
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
      region->extents.push_back(
          {devices.at(i), Options::ToBytes(addresses.at(i)), Options::ToBytes(lengths[i])});
    }
    region->requested_bytes = region->size_bytes();
    region->interleave_ways = static_cast<uint32_t>(options.Number("ways", 1));
    region->interleave_granularity_bytes = region->interleave_ways > 1 ? 256 : 0;
    region->policy = PolicyOf(options.Text("policy", "pack"));
    region->tenant = options.Text("tenant", kDefaultTenant);
    region->sharing = SharingOf(options);
    region->state = RegionState::kAllocated;
    region->expected_lifetime = options.Time("lifetime");
    if (options.Has("host")) {
      Attachment attachment;
      attachment.host = options.Text("host");
      attachment.access = AccessOf(options);
      attachment.generation = context().next_id();
      const std::string now = options.Text("now");
      const bool coming = now == "coming";
      attachment.state = coming ? AttachmentState::kWanted : AttachmentState::kOnline;
      attachment.detaching = now == "leaving";
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
    spec.expected_lifetime = options.Time("lifetime");
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

std::filesystem::path Directory() { return CXLPOOL_SCENARIOS; }

std::vector<std::string> Files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Directory())) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, IsAsItsFileSays) {
  const std::filesystem::path path = Directory() / (GetParam() + ".txt");
  Words lines;
  {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  Scenario scenario;
  std::string should_be;
  std::string is;
  int requests = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(absl::StrCat(path.filename().string(), ":", i + 1));
    is += lines[i] + "\n";
    if (absl::StartsWith(lines[i], "  ")) continue;  // What is expected.
    should_be += lines[i] + "\n";
    const std::string line = lines[i].substr(0, lines[i].find('#'));
    const Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.empty()) continue;
    if (words[0] != "request") {
      scenario.Given(words);
      continue;
    }
    ++requests;
    for (const std::string& answer : scenario.Ask(words)) should_be += "  " + answer + "\n";
  }
  EXPECT_GT(requests, 0) << "void: it asks for nothing";
  if (HasFailure()) return;
  if (const char* update = std::getenv("GOLDEN_UPDATE"); update != nullptr && *update == '1') {
    std::ofstream(path) << should_be;
    return;
  }
  EXPECT_EQ(is, should_be) << "if that is meant: GOLDEN_UPDATE=1, and read the difference";
}

INSTANTIATE_TEST_SUITE_P(All, ScenarioTest, testing::ValuesIn(Files()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(ScenariosTest, EveryPolicyAndEveryRefusalOfPlacementHasOne) {
  std::string all;
  for (const std::string& name : Files()) {
    std::ifstream in(Directory() / (name + ".txt"));
    all += std::string(std::istreambuf_iterator<char>(in), {});
  }
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
