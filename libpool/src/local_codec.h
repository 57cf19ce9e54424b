// local_messages.h on the wire: protobuf's encoding, without protobuf (ADR 32).
//
// A test holds both against the generated classes, field by field, and a fuzzer feeds the decoder.
// Pure functions, any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_LOCAL_CODEC_H_
#define CXLPOOL_LIBPOOL_SRC_LOCAL_CODEC_H_

#include <optional>
#include <string>
#include <string_view>

#include "libpool/src/local_messages.h"

namespace cxlpool::libpool {

std::string Encode(const LocalRequest& request);

// Nothing: these bytes are no LocalResponse. Fields that are not known are skipped, as protobuf
// does; of a field that comes twice the later one counts.
std::optional<LocalResponse> DecodeResponse(std::string_view bytes);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_LOCAL_CODEC_H_
