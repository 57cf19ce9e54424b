#include "test/sim/script.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cxlpool::sim {
namespace {

// In the order of Verb.
constexpr std::array<VerbInfo, kVerbs> kInfos = {{
    {"allocate", {"client", "region", "granules", "host", "mode", "shape", "tenant", "by", "dry"}},
    {"allocate-batch", {"client", "region", "count", "granules", "tenant"}},
    {"attach", {"client", "region", "host", "mode", "etag", "dry"}},
    {"detach", {"client", "region", "host", "etag"}},
    {"resize", {"client", "region", "granules", "extents", "etag", "dry"}},
    {"rename", {"client", "region", "to", "etag"}},
    {"renew", {"client", "region", "by", "etag"}},
    {"release", {"client", "region", "all", "by", "etag", "dry"}},
    {"force-release", {"client", "region", "fence"}},
    {"release-batch", {"client", "region", "count"}},
    {"get", {"client", "region"}},
    {"set-tenant", {"client", "tenant", "quota", "reserved"}},
    {"drain-device", {"client", "device"}},
    {"add-device", {"client", "device"}},
    {"fail-device", {"client", "device"}},
    {"fence-host", {"client", "host"}},
    {"retire-host", {"client", "host"}},
    {"enrol-host", {"client", "host", "serves"}},
    {"open", {"host", "region", "connection"}},
    {"close", {"host", "connection"}},
    {"watch", {"every", "limit"}},
    {"weather", {"drop", "duplicate", "late"}},
    {"partition-host", {"host", "for", "cut"}},
    {"cut-session", {"host"}},
    {"partition-client", {"client", "for"}},
    {"slow-store", {"for"}},
    {"full-store", {"for"}},
    {"fail-store", {"done"}},
    {"lose-commit", {"for"}},
    {"kill-manager", {"for"}},
    {"kill-manager-at", {"probe", "for"}},
    {"fabric-fails", {"call"}},
    {"fabric-unknown", {"call", "done"}},
    {"fabric-slow", {"call"}},
    {"fabric-lies", {}},
    {"surprise-removal", {"host", "slot"}},
    {"unreachable-host", {"host", "for"}},
    {"false-event", {"host", "kind"}},
    {"no-fence", {"for"}},
    {"kill-agent", {"host", "for"}},
    {"kill-agent-at", {"host", "probe", "for"}},
    {"pause-host", {"host", "for"}},
    {"reset-host", {"host", "for"}},
    {"power-loss", {"host", "for"}},
    {"refuse-offline", {"host", "for"}},
    {"hold-memory", {"host", "for"}},
    {"rung-fails", {"host", "how"}},
    {"agent-lies", {"host", "for"}},
    {"old-state", {"host"}},
    {"wall-jumps", {"ahead"}},
    {"poison", {"host", "slot"}},
    {"pause-manager", {"standby", "call", "for"}},
}};

constexpr uint8_t kNoPlace = kMaxArguments;

// Where each verb has each argument.
const auto kPlaces = [] {
  std::array<std::array<uint8_t, kArgumentNames.size()>, kVerbs> places = {};
  for (size_t verb = 0; verb < places.size(); ++verb) {
    places[verb].fill(kNoPlace);
    for (uint8_t i = 0; i < kMaxArguments; ++i) {
      const Argument argument = kInfos[verb].arguments[i];
      if (!argument.empty()) places[verb][argument.number()] = i;
    }
  }
  return places;
}();

absl::Status BadLine(size_t line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", why));
}

}  // namespace

const VerbInfo& InfoOf(Verb verb) { return kInfos[static_cast<size_t>(verb)]; }

int64_t Step::Get(Argument argument) const {
  const uint8_t place = kPlaces[static_cast<size_t>(verb)][argument.number()];
  return place == kNoPlace ? 0 : arguments[place];
}

Step& Step::Set(Argument argument, int64_t value) {
  const uint8_t place = kPlaces[static_cast<size_t>(verb)][argument.number()];
  if (place != kNoPlace) arguments[place] = value;
  return *this;
}

std::string ToText(const Step& step) {
  std::string text = absl::StrCat(step.at_us, " ", InfoOf(step.verb).name);
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    if (step.arguments[i] == 0) continue;
    absl::StrAppend(&text, " ", InfoOf(step.verb).arguments[i].name(), "=", step.arguments[i]);
  }
  return text;
}

std::string ToText(const Script& script) {
  std::string text = absl::StrCat("seed ", script.seed, script.shared ? " shared" : "",
                                  script.standby ? " standby\n" : "\n");
  for (const Step& step : script.steps) absl::StrAppend(&text, ToText(step), "\n");
  return text;
}

absl::StatusOr<Script> ParseScript(absl::string_view text) {
  Script script;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    if (words[0] == "seed") {
      script.shared = words.size() == 3 && words[2] == "shared";
      script.standby = words.size() == 3 && words[2] == "standby";
      const size_t count = script.shared || script.standby ? 3 : 2;
      if (words.size() != count || !absl::SimpleAtoi(words[1], &script.seed)) {
        return BadLine(number, "seed needs a number");
      }
      continue;
    }
    Step step;
    if (words.size() < 2 || !absl::SimpleAtoi(words[0], &step.at_us)) {
      return BadLine(number, "a step is a time in microseconds, a verb, and name=value");
    }
    const auto info = std::find_if(kInfos.begin(), kInfos.end(),
                                   [&](const VerbInfo& i) { return i.name == words[1]; });
    if (info == kInfos.end()) return BadLine(number, absl::StrCat("unknown verb ", words[1]));
    step.verb = static_cast<Verb>(info - kInfos.begin());
    for (size_t i = 2; i < words.size(); ++i) {
      const std::vector<absl::string_view> pair = absl::StrSplit(words[i], '=');
      const auto& names = info->arguments;
      int64_t value = 0;
      const auto argument = std::find_if(names.begin(), names.end(), [&](Argument a) {
        return !a.empty() && a.name() == pair[0];
      });
      if (pair.size() != 2 || argument == names.end() || !absl::SimpleAtoi(pair[1], &value)) {
        return BadLine(number, absl::StrCat(words[1], " does not take ", words[i]));
      }
      step.Set(*argument, value);
    }
    script.steps.push_back(step);
  }
  return script;
}

Script Shrink(const Script& script, const std::function<bool(const Script&)>& fails, int max_runs) {
  Script best = script;
  int runs = 0;
  for (size_t chunk = std::max<size_t>(1, best.steps.size() / 2); runs < max_runs;) {
    bool shorter = false;
    for (size_t at = 0; at < best.steps.size() && runs < max_runs;) {
      Script candidate = best;
      const auto begin = candidate.steps.begin() + static_cast<std::ptrdiff_t>(at);
      const size_t count = std::min(chunk, best.steps.size() - at);
      candidate.steps.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
      ++runs;
      if (fails(candidate)) {
        best = std::move(candidate);
        shorter = true;
      } else {
        at += chunk;
      }
    }
    if (chunk == 1 && !shorter) break;
    if (!shorter || chunk > best.steps.size()) chunk = std::max<size_t>(1, chunk / 2);
  }
  return best;
}

}  // namespace cxlpool::sim
