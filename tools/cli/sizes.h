// Sizes as people read them: powers of two, and never rounded.
//
// Pure, any thread.
#ifndef CXLPOOL_TOOLS_CLI_SIZES_H_
#define CXLPOOL_TOOLS_CLI_SIZES_H_

#include <cstdint>
#include <string>

namespace cxlpool::cli {

// In the largest unit that shows it exactly: "512 MiB", "1.5 GiB", "1152 MiB", "1000 B". At most
// two decimals, and those only below 1024. ParseByteSize (toml_reader.h) reads it back.
std::string FormatSize(uint64_t bytes);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SIZES_H_
