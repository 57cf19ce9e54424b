// CRC-32C (Castagnoli; RFC 3720, B.4), by the processor's instruction where it has one.
#ifndef CXLPOOL_LIBPOOL_SRC_CRC32C_H_
#define CXLPOOL_LIBPOOL_SRC_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace cxlpool::libpool {

// Continues `crc`, the CRC of the bytes before (0: there are none), with `data`. Pure, any thread.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_CRC32C_H_
