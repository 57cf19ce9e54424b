#include "cxlpool/types.h"

namespace cxlpool {

const char* ToString(Access access) {
  return access == Access::kReadOnly ? "READ_ONLY" : "READ_WRITE";
}

const char* ToString(Mode mode) { return mode == Mode::kSystemRam ? "system-ram" : "devdax"; }

const char* ToString(Sharing sharing) {
  switch (sharing) {
    case Sharing::kExclusive:
      return "EXCLUSIVE";
    case Sharing::kSingleWriter:
      return "SINGLE_WRITER";
    case Sharing::kMultiWriter:
      return "MULTI_WRITER";
  }
  return "UNKNOWN";
}

const char* ToString(Coherence coherence) {
  return coherence == Coherence::kHardware ? "HARDWARE" : "SOFTWARE";
}

const char* ToString(AttachmentState state) {
  switch (state) {
    case AttachmentState::kUnknown:
      return "UNKNOWN";
    case AttachmentState::kWanted:
      return "WANTED";
    case AttachmentState::kBound:
      return "BOUND";
    case AttachmentState::kOnline:
      return "ONLINE";
    case AttachmentState::kOffline:
      return "OFFLINE";
    case AttachmentState::kEjecting:
      return "EJECTING";
    case AttachmentState::kUnbound:
      return "UNBOUND";
    case AttachmentState::kReleaseBlocked:
      return "RELEASE_BLOCKED";
  }
  return "UNKNOWN";
}

}  // namespace cxlpool
