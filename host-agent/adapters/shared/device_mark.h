// The mark in the first bytes of a pool device (v1::DeviceMark), as bytes.
//
//   0     "CXLPMARK"   8 bytes, written last and removed first: without it there is no mark
//   8     length of the message, 4 bytes; CRC-32 of it (ISO 3309, zlib's), 4 bytes
//   16    the DeviceMark, without its nonce
//   2048  the nonce, 8 bytes: replaced alone
// Numbers are little-endian. kMarkBytes in all.
//
// Pure, on memory that the caller has mapped; the caller keeps caches in order (device_memory.h).
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_DEVICE_MARK_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_DEVICE_MARK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "cxlpool/v1/host_service.pb.h"

namespace cxlpool::agent {

inline constexpr size_t kMarkBytes = 4096;

// Nothing: there is none. DATA_LOSS/MARK_DAMAGED: there is one that cannot be read.
absl::StatusOr<std::optional<v1::DeviceMark>> ReadMark(const void* at);

// Where there is no mark. `flush` is called between the body and the word that makes it one, so
// that memory has them in that order. INVALID_ARGUMENT/BAD_MARK: it does not fit.
absl::Status WriteMark(const v1::DeviceMark& mark, void* at, const std::function<void()>& flush);

void WriteNonce(uint64_t nonce, void* at);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_DEVICE_MARK_H_
