// The fields of the log's lines about a Region or one of its Attachments: which request they are
// for, above all.
//
// Pure functions.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_LOG_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_LOG_H_

#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "proto/support/log.h"

namespace cxlpool::fm {

// Of a line about the Region itself. The request is the one that it is on its way by: that released
// it, or else resized it last, or else made it. None where nobody asked, or it is not remembered.
LogFields FieldsOf(const Region& region);

// Of a line about one of its Attachments, with the last request about that.
LogFields FieldsOf(const Region& region, const Attachment& attachment);

// Of what is in the records now. What is not there any more is left out; `host` empty: of the
// Region itself.
LogFields FieldsOf(const PoolState& state, Key region, absl::string_view host);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_LOG_H_
