// What a call does that nobody hears of at once, and what a refusal gives away.

#include <algorithm>

#include "test/sim/region_model.h"

namespace cxlpool::sim {
namespace {

using Kind = RegionEvent::Kind;

// The Region is released, of a failure or by a call, and all its hosts let go. Its revision is not
// known then.
void GoDown(RegionState& state) {
  state.exact = false;
  state.going = true;
  state.lease = false;
  state.seen.down |= state.seen.up;
  state.seen.up = 0;
}

// What a release leaves at once.
RegionState Releasing(RegionState state) {
  GoDown(state);
  if (state.seen.resizing) state.at_least = true;  // The size is that of all.
  state.seen.resizing = false;
  state.target = 0;
  state.seen.phase = Phase::kReleasing;
  return state;
}

// Could not be made, and does not say so yet: it looks as if its host had been detached.
RegionState Compensating(RegionState state) {
  const bool looks_so = state.exact && state.seen.up == 0;
  GoDown(state);
  state.exact = looks_so;
  return state;
}

// What it may be once it is ALLOCATED and no longer resized.
NextStates<RegionState> Settled(const RegionState& state) {
  if (state.any) return {state};
  if (!state.live()) return {};
  RegionState settled = state;
  settled.exact &= state.seen.phase == Phase::kAllocated && !state.seen.resizing;
  settled.seen.phase = Phase::kAllocated;
  settled.seen.resizing = false;
  settled.target = 0;
  NextStates<RegionState> all = {settled};
  if (state.seen.resizing && state.target != 0) {
    settled.seen.size = state.target;
    settled.at_least = true;
    all.push_back(settled);
  }
  return all;
}

}  // namespace

// The name has to be free, or to become so by itself before. The manager rounds the size up.
void RegionModel::EffectOfAllocate(const State& state, const RegionEvent& event, Next& next) const {
  State made;
  if (!Vanish(state, made)) return;
  if (made.is_gone(event.answer.tag)) return;
  made.seen.phase = event.host == 0 ? Phase::kAllocated : Phase::kReserved;
  made.seen.tag = event.answer.tag;
  made.seen.up = event.host;
  made.seen.size = event.size;
  made.at_least = true;
  made.lease = event.lease;
  next.push_back(made);
}

// Where the host has it already nothing is done; but if Attachments may fail, the one that was
// there may have gone unseen, and this call makes another.
void RegionModel::EffectOfAttach(const State& state, const RegionEvent& event, Next& next) const {
  if (state.live() && (state.seen.up & event.host) != 0) {
    next.push_back(state);
    if (!options_.attachments_fail) return;
  }
  for (State after : Settled(state)) {
    after.exact = false;
    after.seen.up |= event.host;
    after.seen.down &= ~event.host;
    next.push_back(after);
  }
}

// From every state in which it may be released. Hosts stand in its way, unless the call detaches
// them, or they may have been lost before.
void RegionModel::EffectOfRelease(const State& state, const RegionEvent& event, Next& next) const {
  State after = state;
  after.exact = false;
  if (state.goes_down()) {
    next.push_back(state);                   // Nothing is done,
    if (event.force) next.push_back(after);  // but that the operator's word is kept.
  } else if (state.any || (state.seen.phase == Phase::kQuarantined && event.force)) {
    next.push_back(Releasing(state));
  } else if (state.live() &&
             (state.seen.up == 0 || event.detach_all || options_.attachments_fail)) {
    next.push_back(Releasing(state));
    // Its first Attachment may have failed, and it goes down by itself.
    if (state.seen.phase == Phase::kReserved && options_.attachments_fail) {
      after = Compensating(state);
      after.exact = false;
      next.push_back(after);
    }
  }
}

// Grows, shrinks or does nothing. Of a size that is known only from below (at_least) each of these
// may be what happened: all of them follow.
void RegionModel::EffectOfResize(const State& state, const RegionEvent& event, Next& next) const {
  for (State before : Settled(state)) {
    if (before.any) {  // Of which nothing is known: nor is it afterwards.
      next.push_back(before);
      continue;
    }
    const uint64_t size = before.seen.size;
    if (event.size == size || (before.at_least && event.size > size)) {
      State same = before;
      same.seen.size = event.size;
      same.at_least = false;
      next.push_back(same);  // Nothing is done, also where a host lets go of it.
    }
    before.seen.down = 0;  // A host that lets go has to have done so first.
    before.exact = false;
    if (event.size > size) {
      State grown = before;
      grown.seen.resizing = before.seen.up != 0;
      if (grown.seen.resizing) {  // Hosts have to bring up what it grows by.
        grown.target = event.size;
      } else {
        grown.seen.size = event.size;
        grown.at_least = true;
      }
      next.push_back(grown);
    }
    if (event.size < size || before.at_least) {
      State shrunk = before;
      shrunk.seen.resizing = true;
      shrunk.seen.size = event.size;
      shrunk.at_least = true;
      next.push_back(shrunk);
    }
  }
}

// Which states follow when the call takes effect; none: it cannot here. The answer is another
// event, but its tag says already which Region the effect must be on.
void RegionModel::StepEffect(const State& state, const RegionEvent& event, Next& next) const {
  if (event.kind == Kind::kAllocate) return EffectOfAllocate(state, event, next);
  State after = state;
  if (event.kind == Kind::kRenameHere) {
    if (!Vanish(state, after)) return;
    after.any = true;  // What it was under its old name is not known here.
    after.seen.phase = Phase::kAllocated;
    after.seen.tag = event.answer.tag;
    next.push_back(after);
    return;
  }
  why_ = "there is no such Region that it could be done to";
  const uint16_t tag = event.answer.tag;
  if (state.seen.phase == Phase::kAbsent || state.is_gone(tag)) return;
  if (state.seen.tag != 0 && tag != 0 && state.seen.tag != tag) return;
  if (tag != 0) after.seen.tag = tag;
  switch (event.kind) {
    case Kind::kAttach:
      return EffectOfAttach(after, event, next);
    case Kind::kResize:
      return EffectOfResize(after, event, next);
    case Kind::kRelease:
      return EffectOfRelease(after, event, next);
    case Kind::kDetach:
      if ((after.seen.up & event.host) == 0) break;  // Nothing is done.
      after.exact = false;
      after.seen.down |= after.seen.up & event.host;
      after.seen.up &= ~event.host;
      break;
    case Kind::kRenew:
      if (state.goes_down()) return;
      after.exact = false;
      after.lease = true;
      break;
    case Kind::kRenameAway:
      if (state.goes_down()) return;
      after = State{.gone = state.gone};
      after.seen.revision = state.seen.revision;
      break;
    case Kind::kGet:
      break;  // A rename to the name it has: it is recorded, and changes nothing.
    default:
      return;
  }
  next.push_back(after);
}

// Changes nothing itself. But what it says may have come about unseen before it, by a lease that
// ended or by a failure: then that has happened in the state that follows.
void RegionModel::StepRefusal(const State& state, const RegionEvent& event, Next& next) const {
  const RegionSeen& seen = state.seen;
  State after = state;
  if (event.needs == RefusalNeeds::kAbsent) {
    if (Vanish(state, after)) next.push_back(after);
    return;
  }
  if (event.needs != RefusalNeeds::kNothing && seen.phase == Phase::kAbsent) {
    why_ = "there is no such Region";
    return;
  }
  why_ = "the Region is not as the refusal says";
  bool fits = state.any;
  switch (event.needs) {
    case RefusalNeeds::kGoing:
      fits = state.goes_down();
      if (fits) break;
      if (state.any || (state.live() && state.lease)) next.push_back(Releasing(state));
      if (seen.phase == Phase::kReserved && options_.attachments_fail) {
        next.push_back(Compensating(state));
      }
      return;
    case RefusalNeeds::kQuarantined:
      fits |= seen.phase == Phase::kQuarantined;
      if (fits || !state.live() || !options_.devices_fail) break;
      after.seen.phase = Phase::kQuarantined;
      after.exact = false;
      fits = true;
      break;
    case RefusalNeeds::kReserved:
      fits |= seen.phase == Phase::kReserved && !state.going;
      break;
    case RefusalNeeds::kResizing:
      fits |= seen.phase == Phase::kAllocated && seen.resizing;
      break;
    case RefusalNeeds::kAttached:
      fits |= seen.up != 0 && !state.goes_down();
      break;
    case RefusalNeeds::kDetaching:
      fits |= (seen.down & event.host) != 0;
      if (fits || (seen.up & event.host) == 0 || !options_.attachments_fail) break;
      after.seen.up &= ~event.host;
      after.seen.down |= event.host;
      after.exact = false;
      fits = true;
      break;
    default:
      fits = true;
      break;
  }
  if (fits) next.push_back(after);
}

}  // namespace cxlpool::sim
