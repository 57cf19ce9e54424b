// The words of a Region as an application meets them, and one line of a listing.
//
// Values mean what the enums of the same names in cxlpool/v1/resources.proto mean. Sizes are in
// bytes.
#ifndef CXLPOOL_TYPES_H_
#define CXLPOOL_TYPES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cxlpool {

// Which users of this host may open a Region besides the one who makes it and root: by user id, by
// group id (primary or supplementary), or everybody who acts for the same tenant. They may read and
// write it; only its maker releases it.
struct OpenTo {
  std::vector<uint32_t> uids = {};  // At most 64.
  std::vector<uint32_t> gids = {};  // At most 64.
  bool everybody = false;
};

// What this host may do with the bytes. Enforced by the fabric and by the descriptor.
enum class Access { kReadWrite, kReadOnly };

// How this host uses the Region.
enum class Mode {
  kDevdax,     // Memory that is mapped.
  kSystemRam,  // A NUMA node that ordinary memory is taken from. Exclusive Regions only.
};

// Who may be attached at one time. Fixed when the Region is allocated.
enum class Sharing {
  kExclusive,     // One host.
  kSingleWriter,  // One host that writes, any number that read.
  kMultiWriter,   // Any number; the applications keep the bytes coherent.
};

// Whether loads on this host see another host's stores without help from software.
enum class Coherence {
  kSoftware,  // Flush and invalidate by hand. Also what an agent that does not say means.
  kHardware,
};

// How far this host's Attachment has come.
enum class AttachmentState {
  kUnknown,  // A state that this version of libpool does not know.
  kWanted,
  kBound,
  kOnline,  // Open succeeds.
  kOffline,
  kEjecting,
  kUnbound,
  kReleaseBlocked,
};

// "READ_WRITE", "devdax", ... as the CLI writes them.
const char* ToString(Access access);
const char* ToString(Mode mode);
const char* ToString(Sharing sharing);
const char* ToString(Coherence coherence);
const char* ToString(AttachmentState state);

// A Region that is attached to this host.
struct RegionInfo {
  std::string name;  // regions/{region}
  std::string tag;   // UUID; identity.
  uint64_t size_bytes = 0;
  Access access = Access::kReadWrite;
  Mode mode = Mode::kDevdax;
  AttachmentState state = AttachmentState::kUnknown;
  std::string state_reason;  // Why, and what to do, where a person is needed.
  bool detaching = false;    // On its way down: it can be opened no more.
  uint32_t opens = 0;        // Connections on this host that have it open.
};

}  // namespace cxlpool

#endif  // CXLPOOL_TYPES_H_
