// The bytes of Extents as a host would leave them: a mark at each end of the file that stands for
// the Extent (proto/cxlpool/emulated/v1/slot.proto). What nobody has written reads as zero.
//
// Blocking; any thread.
#ifndef CXLPOOL_TEST_CRASH_BYTES_H_
#define CXLPOOL_TEST_CRASH_BYTES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cxlpool::crash {

// "TAG.INDEX": the file's name.
std::string ExtentFile(const std::string& tag, int extent);

// Every byte of the file is zero. DATA_LOSS: one is not. NOT_FOUND: there is no file.
absl::Status ExpectZero(const std::string& path);

// Marks the file. `mark` is not 0.
absl::Status WriteMark(const std::string& path, uint64_t mark);

// The marks are there. DATA_LOSS: they are not. NOT_FOUND: there is no file.
absl::Status ExpectMark(const std::string& path, uint64_t mark);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_BYTES_H_
