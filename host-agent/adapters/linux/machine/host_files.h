// The host's sysfs, procfs and devtmpfs, read and written as text under one root.
//
// The root is "/" on a host; a test builds a tree of its own. Paths are given without the leading
// slash ("sys/bus/cxl/devices"). Failures are errno values: what they mean differs by file, so the
// caller says it. Stateless; any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_FILES_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace cxlpool::agent {

class HostFiles {
 public:
  static constexpr size_t kMaxBytes = 4 << 20;  // Longer files are cut here.

  explicit HostFiles(std::string root = "/");

  std::string Path(absl::string_view path) const;

  // The text without trailing white space; nothing if it cannot be read.
  std::optional<std::string> Read(absl::string_view path) const;

  // A number, decimal or with 0x.
  std::optional<uint64_t> ReadNumber(absl::string_view path) const;

  // 0 or the errno. Never creates a file.
  int Write(absl::string_view path, absl::string_view text) const;

  bool Exists(absl::string_view path) const;

  // A name in a directory, and its inode: of the link, where it is one.
  struct Entry {
    std::string name;
    uint64_t inode = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  // What is in a directory, by name, without "." and ".."; nothing if it cannot be read.
  std::vector<Entry> Entries(absl::string_view path) const;

  // The names alone.
  std::vector<std::string> List(absl::string_view path) const;

  // Where a symbolic link points, as it is written there; "" if there is no such link.
  std::string LinkText(absl::string_view path) const;

  // The last component of where a symbolic link points; "" if there is no such link.
  std::string LinkName(absl::string_view path) const;

  // The path with every link followed, below the root; "" if it does not exist.
  std::string Resolve(absl::string_view path) const;

 private:
  std::string root_;  // Resolved; ends in "/".
};

// When the process started, in clock ticks after boot (process_stat.h); 0: there is none.
uint64_t StartTicksIn(const HostFiles& files, int pid);

// "No such device (ENODEV)" and the like.
std::string ErrnoText(int error);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_FILES_H_
