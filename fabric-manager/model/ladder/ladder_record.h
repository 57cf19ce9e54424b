// What a move of the ladder makes of the Region's record: the other half of ladder.h, which says
// what the next move is.
//
// Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_LADDER_LADDER_RECORD_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_LADDER_LADDER_RECORD_H_

#include <cstdint>

#include "fabric-manager/model/ladder/ladder.h"

namespace cxlpool::fm {

// kSetState, kGiveUp and kDrop, of one part of the Attachment with `generation`. Where what is to
// join gives up the rest stays as it is; where the first Attachment of a Region does, the Region
// goes down.
void RecordMove(Region& region, uint64_t generation, size_t part, const Move& move);

// kJoinTail, kTurnTail and kDropTail. False: the Region is not at that rung any more. The
// caller that records kDropTail keeps the bad Extents of the tail from everybody in the same change
// (plan_media.h).
bool RecordTailMove(Region& region, RegionMoveKind move);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_LADDER_LADDER_RECORD_H_
