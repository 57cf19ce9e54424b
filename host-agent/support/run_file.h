// A small file in /run, in which an agent leaves word for the next one of the same boot: its first
// line names what it is and of which boot.
//
// Any thread; writers of one path take turns.
#ifndef CXLPOOL_HOST_AGENT_SUPPORT_RUN_FILE_H_
#define CXLPOOL_HOST_AGENT_SUPPORT_RUN_FILE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cxlpool::agent {

// The lines after the first. Nothing if it is not this user's own regular file of so many bytes at
// most, is not whole, or begins otherwise than `what` and `boot_id` ask for; nothing of no boot.
std::optional<std::vector<std::string>> ReadRunFile(const std::string& path, size_t max_bytes,
                                                    absl::string_view what,
                                                    absl::string_view boot_id);

// FAILED_PRECONDITION/RUN_FILE_TOO_NEW: an agent of a later release wrote it in this boot, in a
// form that ReadRunFile does not know. For a file without which the agent would say that the host
// has nothing.
absl::Status CheckRunFile(const std::string& path, absl::string_view what,
                          absl::string_view boot_id);

// Replaces the file in one step; mode 0600. Each of `lines` ends with a newline. It is not synced:
// it does not outlive the boot. 0, or the errno, and what was there stays.
int WriteRunFile(const std::string& path, absl::string_view what, absl::string_view boot_id,
                 absl::string_view lines);

// Keeps other agents from what is kept at `path`, for as long as this process lives, however it
// ends: by a lock on `path`.lock. FAILED_PRECONDITION/AGENT_RUNS: another process has it.
// UNAVAILABLE/RUN_FILE.
absl::Status HoldRunFile(const std::string& path);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SUPPORT_RUN_FILE_H_
