// A small file in /run, in which an agent leaves word for the next one of the same boot.
//
// Any thread; writers of one path take turns.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_RUN_FILE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_RUN_FILE_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace cxlpool::agent {

// The whole text; nothing if it is not this user's own regular file of so many bytes at most.
std::optional<std::string> ReadRunFile(const std::string& path, size_t max_bytes);

// Replaces the file in one step; mode 0600. It is not synced: it does not outlive the boot. 0, or
// the errno, and what was there stays.
int WriteRunFile(const std::string& path, absl::string_view text);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_RUN_FILE_H_
