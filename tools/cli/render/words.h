// The API's values in the words that the flags use.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_WORDS_H_
#define CXLPOOL_TOOLS_CLI_RENDER_WORDS_H_

#include <string>

#include "cxlpool/v1/resources.pb.h"

namespace cxlpool::cli {

// "regions/kv" as "kv"; what has no collection stays as it is.
std::string ShortName(const std::string& name);

std::string Word(v1::AttachmentMode mode);
std::string Word(v1::Access access);
std::string Word(v1::Sharing sharing);
std::string Word(v1::Coherence coherence);
std::string Word(v1::Enforcer enforcer);
std::string Word(v1::PlacementPolicy policy);

// "2026-01-31T12:00:00Z"; empty where it is not set or out of range.
std::string TimeText(bool is_set, const google::protobuf::Timestamp& time);

// "512 MiB", or "-" for 0: no limit.
std::string LimitText(uint64_t bytes);

// "230 ns, 20000 MiB/s"; what is not known is left out.
std::string FiguresText(uint32_t latency_ns, uint32_t bandwidth_mib_per_second);

// "0x10000000"
std::string Hex(uint64_t value);

// "host-a ONLINE devdax rw", or with " detaching" behind it.
std::string AttachmentText(const v1::Attachment& attachment);

// The same of all, ", " between.
std::string AttachmentsText(const v1::Region& region);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_WORDS_H_
