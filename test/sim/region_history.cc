#include "test/sim/region_history.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cxlpool::sim {
namespace {

constexpr uint32_t kMaxHosts = 32;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr std::array<absl::string_view, 7> kPhases = {
    "ABSENT", "RESERVED", "ALLOCATED", "RELEASING", "SCRUBBING", "FAILED", "QUARANTINED"};
constexpr std::array<absl::string_view, 8> kKinds = {"allocate", "get",    "resize",  "rename",
                                                     "attach",   "detach", "release", "renew"};

absl::string_view View(const std::string& text) { return text; }

// Numbers for texts, in order of first appearance.
class Numbers {
 public:
  uint32_t Of(const std::string& text) {
    return numbers_.try_emplace(View(text), static_cast<uint32_t>(numbers_.size())).first->second;
  }
  size_t size() const { return numbers_.size(); }

 private:
  absl::flat_hash_map<absl::string_view, uint32_t> numbers_;
};

Phase PhaseOf(const std::string& state) {
  const auto at = std::find(kPhases.begin(), kPhases.end(), View(state));
  return at == kPhases.end() ? Phase::kAbsent : static_cast<Phase>(at - kPhases.begin());
}

bool OneOf(const std::string& reason, std::initializer_list<absl::string_view> reasons) {
  return std::find(reasons.begin(), reasons.end(), View(reason)) != reasons.end();
}

// What must be so where a call was refused for `reason`. The planner looks for the Region first,
// for an allocation whether the name is free, and only then at anything else.
RefusalNeeds NeedsOf(const ClientOp& op) {
  const std::string& reason = op.reason;
  const bool allocates = op.kind == ClientOp::kAllocate;
  if (OneOf(reason, {"", "STORE_FAILED", "NO_ANSWER", "MANAGER_UNREACHABLE"})) {
    return RefusalNeeds::kUnknown;
  }
  if (reason == "UNKNOWN_REGION") {
    // To a host it may be there, and not concern it.
    return op.by_host && !allocates ? RefusalNeeds::kNothing : RefusalNeeds::kAbsent;
  }
  if (reason == "REGION_RELEASING") return RefusalNeeds::kGoing;
  if (reason == "REGION_QUARANTINED") return RefusalNeeds::kQuarantined;
  if (reason == "REGION_NOT_READY") return RefusalNeeds::kReserved;
  if (reason == "RESIZE_IN_PROGRESS") return RefusalNeeds::kResizing;
  if (reason == "REGION_ATTACHED") return RefusalNeeds::kAttached;
  if (reason == "DETACH_IN_PROGRESS") return RefusalNeeds::kDetaching;
  if (OneOf(reason, {"REGION_EXISTS", "ETAG_MISMATCH", "NOT_RESIZABLE", "RESIZE_INSIDE_EXTENT",
                     "REGION_IN_USE", "TOO_MANY_EXTENTS", "TOO_MANY_ATTACHMENTS", "NO_LEASE",
                     "NOT_OWNER", "FENCE_REQUIRED"})) {
    return RefusalNeeds::kPresent;
  }
  if (OneOf(reason, {"POOL_FULL",
                     "POOL_FRAGMENTED",
                     "RESERVED_FOR_OTHERS",
                     "QUOTA_EXCEEDED",
                     "HOST_CAP_EXCEEDED",
                     "LD_LIMIT",
                     "NO_FREE_PORT",
                     "BRIDGE_BLOCKED",
                     "BRIDGE_FULL",
                     "WINDOW_FULL",
                     "PAGE_STRUCT_SPACE",
                     "UNKNOWN_HOST",
                     "UNKNOWN_DEVICE",
                     "UNKNOWN_TENANT",
                     "HOST_NOT_ONLINE",
                     "HOST_RETIRED",
                     "SHARING_CONFLICT",
                     "NO_PATH",
                     "INTERLEAVE_UNSUPPORTED",
                     "DEVICE_DRAINING",
                     "DEVICE_FAILED",
                     "DEVICE_UNREACHABLE",
                     "NOT_ISOLATED",
                     "TOO_FEW_DEVICES",
                     "GRANULE_MISMATCH"})) {
    return allocates ? RefusalNeeds::kAbsent : RefusalNeeds::kPresent;
  }
  return RefusalNeeds::kNothing;
}

// What the call does to one name. A rename has two, and is another thing to each; `here`: it brings
// the Region to this one.
RegionEvent::Kind KindOf(const ClientOp& op, bool here) {
  switch (op.kind) {
    case ClientOp::kAllocate:
      return RegionEvent::Kind::kAllocate;
    case ClientOp::kGet:
      return RegionEvent::Kind::kGet;
    case ClientOp::kResize:
      return RegionEvent::Kind::kResize;
    case ClientOp::kRename:
      // To the name it has: nothing changes, but the call is recorded as one that changes
      // something.
      if (op.region_id == op.new_region_id) return RegionEvent::Kind::kGet;
      return here ? RegionEvent::Kind::kRenameHere : RegionEvent::Kind::kRenameAway;
    case ClientOp::kAttach:
      return RegionEvent::Kind::kAttach;
    case ClientOp::kDetach:
      return RegionEvent::Kind::kDetach;
    case ClientOp::kRelease:
      return RegionEvent::Kind::kRelease;
    case ClientOp::kRenew:
      return RegionEvent::Kind::kRenew;
  }
  return RegionEvent::Kind::kGet;
}

// Nothing is known of what became of the call: it may have taken effect, may do so later, or never.
bool IsUnknown(const ClientOp& op) {
  return op.outcome == ClientOp::kUnknown || op.return_us == kNever ||
         (op.outcome == ClientOp::kRefused && NeedsOf(op) == RefusalNeeds::kUnknown);
}
bool HasAnswer(const ClientOp& op) { return op.outcome == ClientOp::kOk && !IsUnknown(op); }

class Checker {
 public:
  Checker(const std::vector<ClientOp>& history, const RegionHistoryOptions& options)
      : history_(history), options_(options) {}

  RegionHistoryResult Run() {
    Group();
    if (hosts_.size() > kMaxHosts) {
      result_.gave_up = result_.names;
      return result_;
    }
    CheckRevisions();
    for (const auto& ops : by_name_) {
      if (!result_.why.empty()) break;
      CheckName(ops);
    }
    return std::move(result_);
  }

 private:
  struct OfName {
    const ClientOp* op;
    bool here;  // It brings a Region to this name.
  };

  // Sorts the calls by the names that they concern, and turns each answer into what the model
  // compares: texts become numbers, hosts become bits.
  void Group() {
    Numbers names;
    const auto put = [&](const std::string& name, const ClientOp& op, bool here) {
      if (name.empty()) return;  // One that the pool made up: nobody shares it.
      const uint32_t number = names.Of(name);
      if (number == by_name_.size()) by_name_.emplace_back();
      by_name_[number].push_back({&op, here});
    };
    seen_.resize(history_.size());
    for (size_t i = 0; i < history_.size(); ++i) {
      const ClientOp& op = history_[i];
      put(op.region_id, op, false);
      const bool moves = op.kind == ClientOp::kRename && op.region_id != op.new_region_id;
      if (moves) put(op.new_region_id, op, true);
      facts_.renamed |= moves;
      facts_.leases |= op.lease;
      if (!op.host.empty()) hosts_.Of(op.host);
      if (!HasAnswer(op)) continue;  // A refusal shows no Region.
      RegionSeen& seen = seen_[i];
      seen.revision = op.revision;
      seen.generation = op.generation;
      seen.size = op.answered_granules;
      seen.tag = static_cast<uint16_t>(1 + tags_.Of(op.tag));
      seen.phase = PhaseOf(op.state);
      seen.resizing = op.resizing;
      for (const HostSeen& host : op.hosts) {
        (host.detaching ? seen.down : seen.up) |= BitOfHost(host.host);
      }
    }
    result_.names = by_name_.size();
  }

  uint32_t BitOfHost(const std::string& host) {
    const uint32_t number = hosts_.Of(host);
    return number < kMaxHosts ? 1u << number : 0;
  }

  size_t IndexOf(const ClientOp& op) const { return static_cast<size_t>(&op - history_.data()); }

  // Answers of each tag, in order of call: none may be of an earlier revision than the latest that
  // was known by then.
  void CheckRevisions() {
    std::vector<uint32_t> by_call;
    for (uint32_t i = 0; i < history_.size(); ++i) {
      if (HasAnswer(history_[i])) by_call.push_back(i);
    }
    const auto at = [this](uint32_t i) -> const RegionSeen& { return seen_[i]; };
    std::vector<uint32_t> by_return = by_call;
    std::sort(by_call.begin(), by_call.end(), [&](uint32_t a, uint32_t b) {
      return std::tuple(at(a).tag, history_[a].invoke_us) <
             std::tuple(at(b).tag, history_[b].invoke_us);
    });
    std::sort(by_return.begin(), by_return.end(), [&](uint32_t a, uint32_t b) {
      return std::tuple(at(a).tag, history_[a].return_us) <
             std::tuple(at(b).tag, history_[b].return_us);
    });
    // Both have each tag's answers in the same stretch.
    size_t known = 0;
    uint32_t latest = kNone;
    uint16_t tag = 0;
    for (size_t i = 0; i < by_call.size(); ++i) {
      const uint32_t now = by_call[i];
      if (at(now).tag != tag) {
        tag = at(now).tag;
        latest = kNone;
        known = i;
      }
      for (; known < by_return.size() && at(by_return[known]).tag == tag &&
             history_[by_return[known]].return_us < history_[now].invoke_us;
           ++known) {
        const uint32_t other = by_return[known];
        if (latest == kNone || at(other).revision > at(latest).revision) latest = other;
      }
      if (latest != kNone && at(now).revision < at(latest).revision) {
        return Contradict(
            "an answer is of an earlier revision than one that was known before:", latest, now);
      }
    }
    std::sort(by_call.begin(), by_call.end(), [&](uint32_t a, uint32_t b) {
      return std::tuple(at(a).tag, at(a).revision, history_[a].invoke_us) <
             std::tuple(at(b).tag, at(b).revision, history_[b].invoke_us);
    });
    for (size_t i = 1; i < by_call.size(); ++i) {
      const RegionSeen& a = at(by_call[i - 1]);
      const RegionSeen& b = at(by_call[i]);
      if (a.tag != b.tag || a.revision != b.revision || a == b) continue;
      return Contradict("two answers of one revision differ:", by_call[i - 1], by_call[i]);
    }
  }

  void Contradict(absl::string_view what, size_t a, size_t b) {
    result_.why = absl::StrCat("regions/", history_[b].region_id, ": ", what, "\n  ",
                               ToText(history_[a]), "\n  ", ToText(history_[b]), "\n");
  }

  void Add(const OfName& of, RegionEvent event, RegionEvent::Part part, int64_t return_us,
           size_t after) {
    event.part = part;
    events_.push_back(event);
    ops_.push_back(of.op);
    intervals_.push_back({of.op->invoke_us, return_us, after});
  }

  // The events of one call that the search has to find an order for. One that was sent once and
  // answered took effect between its call and its answer. What was sent more often may have taken
  // effect by an earlier copy, so its effect and its answer are two events, in this order.
  void AddOperation(const OfName& of, std::vector<uint16_t>& tags) {
    using Part = RegionEvent::Part;
    const ClientOp& op = *of.op;
    RegionEvent event;
    event.kind = KindOf(op, of.here);
    event.detach_all = op.detach_all || op.force;
    event.force = op.force;
    event.lease = op.lease;
    event.size = op.size_granules;
    if (!op.host.empty()) event.host = BitOfHost(op.host);
    const bool changes = event.kind != RegionEvent::Kind::kGet;
    if (IsUnknown(op)) {
      // At any time after the call, or never; a look that nobody saw says nothing.
      if (changes) Add(of, event, Part::kEffect, kNever, kNoOperation);
      return;
    }
    if (op.outcome == ClientOp::kRefused) {
      event.needs = NeedsOf(op);
      // The refusal is of the name that it was to leave, unless it says that this one is taken.
      if (of.here && op.reason != "REGION_EXISTS") event.needs = RefusalNeeds::kNothing;
      size_t refusal = kNoOperation;
      if (event.needs != RefusalNeeds::kNothing) {
        refusal = events_.size();
        Add(of, event, Part::kRefusal, op.return_us, kNoOperation);
      }
      // An earlier copy may still be on its way.
      if (changes && op.sends > 1) Add(of, event, Part::kEffect, kNever, refusal);
      return;
    }
    event.answer = seen_[IndexOf(op)];
    const auto known = std::find(tags.begin(), tags.end(), event.answer.tag);
    const auto number = known - tags.begin();
    if (known == tags.end()) tags.push_back(event.answer.tag);
    event.answer.tag = static_cast<uint16_t>(1 + number);
    // Each copy of a get looks for itself. All else is recorded with its first copy, also what
    // finds nothing to do, and later ones are answered with the Region as it is by then.
    if (op.sends <= 1 || op.kind == ClientOp::kGet) {
      return Add(of, event, Part::kWhole, op.return_us, kNoOperation);
    }
    Add(of, event, Part::kEffect, op.return_us, kNoOperation);
    Add(of, event, Part::kAnswer, op.return_us, events_.size() - 1);
  }

  // Looks for an order of what was done to this name that fits all answers, and reports how far it
  // came where there is none.
  void CheckName(const std::vector<OfName>& ops) {
    events_.clear();
    ops_.clear();
    intervals_.clear();
    std::vector<uint16_t> tags;  // A name's own numbers of them begin with 1.
    for (const OfName& of : ops) AddOperation(of, tags);
    const RegionModel model(options_.model, events_, facts_);
    const auto found = Linearize(intervals_, model, RegionState{}, options_.max_states);
    result_.states += found.states;
    if (found.answer == Linearizable::kGaveUp) ++result_.gave_up;
    if (found.answer != Linearizable::kNo) return;
    Explain(ops.front().here ? ops.front().op->new_region_id : ops.front().op->region_id, model,
            found);
  }

  // The longest order that fits, and why nothing that must come next can follow it.
  void Explain(const std::string& name, const RegionModel& model,
               const Linearization<RegionState>& found) {
    std::string& why = result_.why;
    why = absl::StrCat("regions/", name, ": no order of what was done fits the answers\n");
    absl::StrAppend(&why, "  in this order they fit:\n");
    for (const size_t i : found.order) absl::StrAppend(&why, "    ", Line(i), "\n");
    absl::StrAppend(&why, "  then none of these fits:\n");
    for (const size_t i : found.stuck) {
      if (intervals_[i].return_us == kNever) continue;  // It need not come at all.
      NextStates<RegionState> next;
      model.Step(found.state, i, next);
      absl::StrAppend(&why, "    ", Line(i), "\n      ",
                      next.empty() ? model.why() : "what must follow it does not fit", "\n");
    }
  }

  std::string Line(size_t event) const {
    absl::string_view part;
    switch (events_[event].part) {
      case RegionEvent::Part::kEffect:
        part = "(takes effect) ";
        break;
      case RegionEvent::Part::kAnswer:
        part = "(is answered) ";
        break;
      default:
        break;
    }
    return absl::StrCat(part, ToText(*ops_[event]));
  }

  const std::vector<ClientOp>& history_;
  const RegionHistoryOptions& options_;
  RegionHistoryResult result_;
  RegionModel::Facts facts_;
  Numbers hosts_;
  Numbers tags_;
  std::vector<RegionSeen> seen_;  // Of each operation of the history that has an answer.
  std::vector<std::vector<OfName>> by_name_;

  // Of the name that is looked at.
  std::vector<RegionEvent> events_;
  std::vector<const ClientOp*> ops_;
  std::vector<Interval> intervals_;
};

}  // namespace

RegionHistoryResult CheckRegionHistory(const std::vector<ClientOp>& history,
                                       const RegionHistoryOptions& options) {
  return Checker(history, options).Run();
}

std::string ToText(const ClientOp& op) {
  std::string text = absl::StrCat(op.invoke_us, "..");
  if (op.return_us != kNever) absl::StrAppend(&text, op.return_us);
  absl::StrAppend(&text, " us client=", op.client, " request=", op.request, " ", kKinds[op.kind],
                  " ", op.region_id);
  if (!op.new_region_id.empty()) absl::StrAppend(&text, " to=", op.new_region_id);
  if (op.size_granules != 0) absl::StrAppend(&text, " granules=", op.size_granules);
  if (!op.host.empty()) absl::StrAppend(&text, " host=", op.host);
  if (op.detach_all) absl::StrAppend(&text, " detach_all");
  if (op.force) absl::StrAppend(&text, " force");
  if (op.lease) absl::StrAppend(&text, " lease");
  if (op.by_host) absl::StrAppend(&text, " by a host");
  if (op.sends != 1) absl::StrAppend(&text, " sends=", op.sends);
  if (op.outcome == ClientOp::kRefused) return absl::StrCat(text, " -> ", op.reason);
  if (op.outcome == ClientOp::kUnknown) return absl::StrCat(text, " -> no answer");
  absl::StrAppend(&text, " -> ", op.state, " granules=", op.answered_granules);
  if (op.resizing) absl::StrAppend(&text, " resizing");
  for (const HostSeen& host : op.hosts) {
    absl::StrAppend(&text, " ", host.host, host.detaching ? "(detaching)" : "");
  }
  const bool raw = !std::all_of(op.tag.begin(), op.tag.end(), absl::ascii_isgraph);
  return absl::StrCat(text, " tag=", raw ? absl::BytesToHexString(op.tag) : op.tag,
                      " generation=", op.generation, " revision=", op.revision);
}

}  // namespace cxlpool::sim
