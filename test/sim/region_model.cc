#include "test/sim/region_model.h"

#include <algorithm>

namespace cxlpool::sim {
namespace {

using Kind = RegionEvent::Kind;
using Part = RegionEvent::Part;

// The last that is seen of a Region.
bool IsFinal(const RegionSeen& seen) {
  return (seen.phase == Phase::kScrubbing || seen.phase == Phase::kFailed) &&
         (seen.up | seen.down) == 0;
}

bool SizeMayBe(const RegionState& state, uint64_t size) {
  return state.at_least ? size >= state.seen.size : size == state.seen.size;
}

// What a change made durable at `seen` began from: one revision before.
RegionSeen Before(RegionSeen seen) {
  --seen.revision;
  return seen;
}

}  // namespace

void RegionModel::Step(const State& state, size_t op, Next& next) const {
  const RegionEvent& event = events_[op];
  switch (event.part) {
    case Part::kWhole:
      return StepWhole(state, event, next);
    case Part::kEffect:
      return StepEffect(state, event, next);
    case Part::kAnswer:
      return StepAnswer(state, event, next);
    case Part::kRefusal:
      return StepRefusal(state, event, next);
  }
}

// Whether what happens by itself may have brought the Region from its phase to that one. Of a
// Region of which nothing is known only a release that is certain says something.
bool RegionModel::SettlePhase(const State& state, const RegionSeen& seen) const {
  const Phase to = seen.phase;
  if (state.any) {
    const bool fits = !state.going || IsOnItsWayDown(to) || to == Phase::kReserved;
    return fits || No("it was being released");
  }
  if (to == Phase::kQuarantined && state.live()) {
    return options_.devices_fail || No("nothing quarantined it");
  }
  switch (state.seen.phase) {
    case Phase::kReserved:
      if (to == Phase::kReserved) return true;
      if (to == Phase::kFailed) {
        return state.going || options_.attachments_fail || No("nothing failed it");
      }
      if (state.going) return No("it was being released");
      [[fallthrough]];
    case Phase::kAllocated:
      if (to == Phase::kAllocated) return true;
      if (to == Phase::kReleasing || to == Phase::kScrubbing) {
        return state.lease || No("nobody released it");
      }
      return No("its state cannot follow");
    case Phase::kReleasing:
      return to == Phase::kReleasing || to == Phase::kScrubbing || No("it was released");
    default:
      return to == state.seen.phase || No("its state cannot follow");
  }
}

// A size changes only with the end of a resize. A Region that goes down keeps what was joining or
// leaving, which may make it larger.
bool RegionModel::SettleSize(const State& state, const RegionSeen& seen) const {
  if (state.any) return true;
  const bool same = SizeMayBe(state, seen.size);
  if (IsOnItsWayDown(seen.phase)) {
    if (seen.resizing) return No("what goes down is not resized");
    const bool tail = !IsOnItsWayDown(state.seen.phase) && state.seen.resizing;
    return same || (tail && seen.size >= state.seen.size) || No("its size is not what it was");
  }
  if (!state.seen.resizing) {
    if (seen.resizing) return No("nobody resized it");
    return same || No("its size is not what it was made");
  }
  const bool joined = !seen.resizing && state.target != 0 && seen.size >= state.target;
  return same || joined || No("its size is neither what it was nor what it was made");
}

// Hosts only become fewer by themselves, and none comes back from being detached. One that was
// attached is lost only with the Region, or where Attachments may fail.
bool RegionModel::SettleHosts(const State& state, const RegionSeen& seen) const {
  if (state.any) return true;
  const RegionSeen& before = state.seen;
  if (((seen.up | seen.down) & ~(before.up | before.down)) != 0) {
    return No("a host has it that nobody attached");
  }
  if ((seen.up & ~before.up) != 0) return No("a host that was detached is attached");
  const bool lost = (before.up & ~seen.up) != 0;
  if (lost && !IsOnItsWayDown(seen.phase) && !options_.attachments_fail) {
    return No("a host that nobody detached is not attached");
  }
  if (IsOnItsWayDown(seen.phase) && seen.up != 0) return No("a host stays though it goes down");
  if (seen.phase == Phase::kScrubbing && seen.down != 0) return No("it is scrubbed under a host");
  return true;
}

// Two answers of one revision have to show the same; a later revision may differ by what hidden
// steps can do.
bool RegionModel::Settle(const State& state, const RegionSeen& seen, State& after) const {
  const RegionSeen& before = state.seen;
  if (before.phase == Phase::kAbsent) return No("there is no such Region");
  if (before.tag != 0 && before.tag != seen.tag) return No("it is another Region (tag)");
  if (state.is_gone(seen.tag)) return No("a Region that was gone is back");
  if (before.generation != 0 && before.generation != seen.generation) {
    return No("its generation is not what it was");
  }
  if (seen.revision < before.revision) return No("an answer before was of a later revision");
  if (seen.revision == before.revision) {
    if (!state.exact) return No("it has changed, and the revision has not");
    after = state;
    return seen == before || No("it differs, and the revision does not");
  }
  if (!SettlePhase(state, seen) || !SettleSize(state, seen) || !SettleHosts(state, seen)) {
    return false;
  }
  after = State{.seen = seen, .gone = state.gone, .exact = true};
  after.going = state.going || IsOnItsWayDown(seen.phase);
  after.lease = !after.going && (state.any ? facts_.leases : state.lease);
  if (seen.resizing) after.target = state.any ? seen.size + 1 : state.target;
  return true;
}

bool RegionModel::Vanish(const State& state, State& after) const {
  const bool may = state.seen.phase == Phase::kAbsent || state.any || state.goes_down() ||
                   (IsLive(state.seen.phase) && state.lease) ||
                   (state.seen.phase == Phase::kReserved && options_.attachments_fail);
  if (!may) return No("the Region is there, and nobody released it");
  after = State{.gone = state.gone | State::BitOf(state.seen.tag)};
  after.seen.revision = state.seen.revision;
  return true;
}

// The name was free, or became so by itself before; what is there now is new and as it was asked
// for.
bool RegionModel::Allocated(const State& state, const RegionEvent& event, State& after) const {
  const RegionSeen& made = event.answer;
  if (!Vanish(state, after)) return false;
  if (made.revision <= state.seen.revision) return No("an answer before was of a later revision");
  if (after.is_gone(made.tag)) return No("its tag was another Region's");
  const Phase phase = event.host == 0 ? Phase::kAllocated : Phase::kReserved;
  if (made.phase != phase || made.up != event.host || made.down != 0 || made.resizing ||
      made.size < event.size) {
    return No("it is not what was asked for");
  }
  after.seen = made;
  after.exact = true;
  after.lease = event.lease;
  return true;
}

// Either the host had it, and nothing changed; or it has it since this revision, and one before it
// was the same Region without that host.
bool RegionModel::Attached(const State& state, const RegionEvent& event, State& after) const {
  const RegionSeen& seen = event.answer;
  if (!IsLive(seen.phase) || (seen.up & event.host) == 0) return No("the host does not have it");
  if (Settle(state, seen, after)) return true;  // It was attached there.
  if (seen.phase != Phase::kAllocated || seen.resizing) return false;
  RegionSeen before = Before(seen);
  before.up &= ~event.host;
  if (!Settle(state, before, after)) return false;
  after.seen = seen;
  return true;
}

bool RegionModel::Detached(const State& state, const RegionEvent& event, State& after) const {
  const RegionSeen& seen = event.answer;
  if ((seen.up & event.host) != 0) return No("the host still has it");
  if (Settle(state, seen, after)) return true;  // It was detached there: nothing changed.
  if ((seen.down & event.host) == 0) return false;
  RegionSeen before = Before(seen);
  before.down &= ~event.host;
  before.up |= event.host;
  if (!Settle(state, before, after)) return false;
  after.seen = seen;
  return true;
}

// Either it was being released, and nothing changed; or it is since this revision: from a state
// that can be released, with every Attachment that was there turned round.
bool RegionModel::Released(const State& state, const RegionEvent& event, State& after) const {
  const RegionSeen& seen = event.answer;
  if (seen.up != 0) return No("a host still has it");
  // It was being released, also one that could not be made and does not say so yet.
  if (IsOnItsWayDown(seen.phase) ||
      (seen.phase == Phase::kReserved && (state.going || options_.attachments_fail))) {
    // Nothing changed; but an operator's word is something new.
    bool fits = Settle(state, seen, after);
    if (!fits && event.force && Settle(state, Before(seen), after)) {
      after.seen = seen;
      fits = true;
    }
    if (fits) {
      after.going = true;
      after.lease = false;
      return true;
    }
  }
  if (seen.phase != Phase::kReleasing || seen.resizing) return No("it is not being released");
  const Phase phase = state.seen.phase;
  const bool from = IsLive(phase) || (phase == Phase::kQuarantined && event.force);
  if (state.going || !from) return No("it cannot be released");
  RegionSeen before = Before(seen);
  before.phase = phase;
  before.up = event.detach_all ? state.seen.up & seen.down : 0;
  before.down = seen.down & ~before.up;
  bool fits = Settle(state, before, after);
  if (!fits && state.seen.resizing) {
    // What was joining or leaving goes down with the rest: the size is that of all.
    before.resizing = true;
    before.size = state.seen.size;
    fits = seen.size >= before.size && Settle(state, before, after);
  }
  if (!fits) return false;
  after = State{.seen = seen, .gone = after.gone, .exact = true, .going = true};
  return true;
}

// It had that size, and nothing changed; or it begins to grow, on hosts that have to bring it up;
// or it shrinks; or it grew at once, which it can where no host has it.
bool RegionModel::Resized(const State& state, const RegionEvent& event, State& after) const {
  const RegionSeen& seen = event.answer;
  if (seen.phase != Phase::kAllocated) return No("what is not ALLOCATED is not resized");
  if (!seen.resizing && seen.size == event.size && Settle(state, seen, after)) return true;
  if (seen.down != 0) return No("it is resized under a host that lets go");
  RegionSeen before = Before(seen);
  before.resizing = false;
  if (seen.resizing && seen.size < event.size) {
    if (seen.up == 0) return No("no host has to bring up what it grows by");
    if (!Settle(state, before, after)) return false;
    after.target = event.size;
    after.seen = seen;
    return true;
  }
  if (seen.size < event.size) return No("it is smaller than was asked for");
  const bool shrinks = seen.resizing;
  if (!shrinks && seen.up != 0) return No("it grew at once, though a host has to bring it up");
  // What it was before does not show: whatever it may have been.
  for (const uint64_t size : {state.seen.size, state.target}) {
    before.size = size;
    if (shrinks && (state.any || state.at_least || size == state.target)) {
      before.size = std::max(size, seen.size + 1);
    }
    const bool other = shrinks ? before.size > seen.size : before.size < event.size;
    if (!state.any && (size == 0 || !other)) {
      No("it was no larger, or no smaller, before");
    } else if (Settle(state, before, after)) {
      after.seen = seen;
      after.target = 0;
      return true;
    }
  }
  return false;
}

void RegionModel::StepWhole(const State& state, const RegionEvent& event, Next& next) const {
  const RegionSeen& seen = event.answer;
  State after;
  bool fits = false;
  switch (event.kind) {
    case Kind::kAllocate:
      fits = Allocated(state, event, after);
      break;
    case Kind::kGet:
      fits = Settle(state, seen, after);
      break;
    case Kind::kAttach:
      fits = Attached(state, event, after);
      break;
    case Kind::kDetach:
      fits = Detached(state, event, after);
      break;
    case Kind::kResize:
      fits = Resized(state, event, after);
      break;
    case Kind::kRelease:
      fits = Released(state, event, after);
      break;
    case Kind::kRenew:
      fits = Settle(state, Before(seen), after) && (!after.going || No("it was being released"));
      after.seen = seen;
      after.lease = true;
      break;
    case Kind::kRenameAway: {
      RegionSeen before = Before(seen);
      before.generation = state.seen.generation;
      fits = Settle(state, before, after) && (!after.going || No("it was being released"));
      after = State{.gone = state.gone};
      after.seen.revision = seen.revision;
      break;
    }
    case Kind::kRenameHere:
      fits = Vanish(state, after) && !IsOnItsWayDown(seen.phase) &&
             (seen.revision > state.seen.revision || No("an answer before was of a later one"));
      after.seen = seen;
      after.exact = true;
      after.lease = facts_.leases;
      after.target = seen.resizing ? seen.size + 1 : 0;
      break;
  }
  if (fits) next.push_back(after);
}

// A copy of a call that had been done before: it shows the Region as it was when the copy came,
// which may have been the last of it.
void RegionModel::StepAnswer(const State& state, const RegionEvent& event, Next& next) const {
  const RegionSeen& seen = event.answer;
  State after;
  if (Settle(state, seen, after)) next.push_back(after);
  if (state.seen.phase != Phase::kAbsent && state.seen.tag == seen.tag) {
    if (IsFinal(seen) && Vanish(state, after)) next.push_back(after);
  } else if (facts_.renamed || IsFinal(seen)) {
    next.push_back(state);  // It is gone, or elsewhere.
  }
}

}  // namespace cxlpool::sim
