// How many bytes of each Region an Open would give now, for reports to applications: once a Region
// can be opened, and again whenever it has grown or shrunk.
//
// These are levels: of each Attachment only the last size is kept, and a change gives it a new
// number. So who reads late misses the steps between, and never the last one; and there are never
// more of them than Attachments. A size goes with its Attachment.
//
// Not thread-safe; owned by AgentCore.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_SIZE_TABLE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_SIZE_TABLE_H_

#include <cstdint>
#include <map>

#include "host-agent/model/observation.h"
#include "host-agent/service/attachments.h"
#include "host-agent/service/fault_table.h"

namespace cxlpool::agent {

class SizeTable {
 public:
  struct Size {
    uint64_t sequence = 0;  // One of the FaultTable's.
    uint64_t bytes = 0;     // 0: it could be opened before, and cannot now.
  };

  // Takes what there is now. `numbers` numbers what has changed.
  void Place(const AttachmentTable& attachments, const HostObservation& host, FaultTable& numbers);

  const std::map<AttachmentKey, Size>& sizes() const { return sizes_; }

 private:
  std::map<AttachmentKey, Size> sizes_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_SIZE_TABLE_H_
