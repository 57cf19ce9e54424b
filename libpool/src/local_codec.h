// The messages of cxlpool/v1/local.proto as plain structs: what libpool sends to the host agent,
// and what it reads of the answers. Meanings, limits and errors stand in the .proto; enums are its
// numbers. Fields that libpool has no use for are not here and are skipped.
//
// Encode and DecodeResponse speak protobuf's encoding without protobuf (ADR 32). A test compares
// both with the generated classes, field by field, and a fuzzer feeds the decoder. Pure functions,
// any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_LOCAL_CODEC_H_
#define CXLPOOL_LIBPOOL_SRC_LOCAL_CODEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cxlpool::libpool {

struct LocalOpenTo {
  std::vector<uint32_t> uids = {};
  std::vector<uint32_t> gids = {};
  bool everybody = false;
};

struct LocalOpenRequest {
  std::string name = {};
  int32_t access = 0;
  uint32_t wait_ms = 0;
  std::string tag = {};
  uint64_t at_most_bytes = 0;
  bool as_file = false;
};

struct LocalAllocateRequest {
  std::string request_id = {};
  std::string region_id = {};
  uint64_t size_bytes = 0;
  int32_t sharing = 0;
  int32_t mode = 0;
  uint32_t wait_ms = 0;
  uint32_t max_extents = 0;
  bool persistent = false;
  int32_t zone = 0;
  std::optional<LocalOpenTo> open_to = {};
  bool as_file = false;
};

struct LocalReleaseRequest {
  std::string request_id = {};
  std::string name = {};
};

struct LocalListRequest {};

struct LocalCloseRequest {
  std::string name = {};
};

struct LocalFaultsRequest {
  uint64_t after = 0;
  uint32_t wait_ms = 0;
};

// With a descriptor.
struct LocalUsageRequest {};

// One of the bodies is there.
struct LocalRequest {
  uint32_t protocol_version = 1;
  std::optional<LocalOpenRequest> open = {};
  std::optional<LocalAllocateRequest> allocate = {};
  std::optional<LocalReleaseRequest> release = {};
  std::optional<LocalListRequest> list = {};
  std::optional<LocalCloseRequest> close = {};
  std::optional<LocalFaultsRequest> faults = {};
  std::optional<LocalUsageRequest> usage = {};
};

struct LocalErrorInfo {
  std::string reason = {};
  std::string remedy = {};
};

struct LocalSegment {
  uint32_t fd_index = 0;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  uint64_t region_offset_bytes = 0;
  uint64_t alignment_bytes = 0;
  std::string path = {};
};

struct LocalOpenResponse {
  std::string name = {};
  std::string tag = {};
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  int32_t access = 0;
  int32_t mode = 0;
  int32_t coherence = 0;
  std::vector<LocalSegment> segments = {};
  std::optional<int32_t> numa_node = {};
  std::vector<int32_t> numa_nodes = {};
};

struct LocalReleaseResponse {};

struct LocalAttachment {
  int32_t mode = 0;
  int32_t access = 0;
  int32_t state = 0;
  std::string state_reason = {};
  bool detaching = false;
};

struct LocalRegion {
  std::string name = {};
  std::string tag = {};
  uint64_t size_bytes = 0;
  std::optional<LocalAttachment> attachment = {};
  uint32_t opens = 0;
};

struct LocalListResponse {
  std::vector<LocalRegion> regions = {};
};

struct LocalCloseResponse {};

struct LocalFault {
  std::string name = {};
  std::string tag = {};
  uint64_t region_offset_bytes = 0;
  uint64_t length_bytes = 0;
  std::string message = {};
};

struct LocalSize {
  std::string name = {};
  std::string tag = {};
  uint64_t size_bytes = 0;
};

struct LocalFaultsResponse {
  uint64_t last = 0;
  std::vector<LocalFault> faults = {};
  std::vector<LocalSize> sizes = {};
};

struct LocalUsageResponse {};

// An answer with code 0 has one of the bodies.
struct LocalResponse {
  int32_t code = 0;
  std::string message = {};
  std::optional<LocalErrorInfo> error = {};
  std::optional<LocalOpenResponse> open = {};
  std::optional<LocalReleaseResponse> release = {};
  std::optional<LocalListResponse> list = {};
  std::optional<LocalCloseResponse> close = {};
  std::optional<LocalFaultsResponse> faults = {};
  std::optional<LocalUsageResponse> usage = {};
};

std::string Encode(const LocalRequest& request);

// Nothing: these bytes are no LocalResponse. Fields that are not known are skipped, as protobuf
// does; of a field that comes twice the later one counts.
std::optional<LocalResponse> DecodeResponse(std::string_view bytes);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_LOCAL_CODEC_H_
