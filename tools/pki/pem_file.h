// Certificates and keys as files: they appear whole or not at all, and only their owner can read
// keys.
#ifndef CXLPOOL_TOOLS_PKI_PEM_FILE_H_
#define CXLPOOL_TOOLS_PKI_PEM_FILE_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cxlpool::pki {

// Makes `dir` (0700) where it is missing.
// FAILED_PRECONDITION: UNSAFE_DIRECTORY (others can write it), NO_ACCESS.
absl::Status PrepareDirectory(const std::string& dir);

bool FileExists(const std::string& path);

// NOT_FOUND/NO_FILE, FAILED_PRECONDITION/NO_ACCESS. At most 1 MiB.
absl::StatusOr<std::string> ReadPemFile(const std::string& path);

// Durable once it returns. ALREADY_EXISTS/FILE_EXISTS unless `replace`. What is replaced keeps its
// owner and group: a daemon goes on reading its key.
absl::Status WritePemFile(const std::string& path, const std::string& text, mode_t mode,
                          bool replace);

struct PemFile {
  std::string path;
  std::string text;
  mode_t mode = 0;
};

// The same of files that belong together, to take the place of those that may be there. After an
// error while they are written all are as they were.
absl::Status ReplacePemFiles(const std::vector<PemFile>& files);

}  // namespace cxlpool::pki

#endif  // CXLPOOL_TOOLS_PKI_PEM_FILE_H_
