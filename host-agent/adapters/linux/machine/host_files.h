// The host's sysfs, procfs and devtmpfs, read and written as text under one root.
//
// The root is "/" on a host; a test builds a tree of its own. Paths are given without the leading
// slash ("sys/bus/cxl/devices"). Failures are errno values: what they mean differs by file, so the
// caller puts that into words. Stateless; any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_FILES_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_FILES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool::agent {

// Whether what was read is recent enough to be used again: less than `max_age` ago. A clock that
// was set back makes it old, not young for ever.
inline bool IsYoung(absl::Time read_at, absl::Time now, absl::Duration max_age) {
  return now >= read_at && now - read_at < max_age;
}

class HostFiles {
 public:
  static constexpr size_t kMaxBytes = 4 << 20;       // Read() cuts longer files here.
  static constexpr size_t kMaxLineBytes = 8 * 1024;  // EachLine() shortens longer lines to this.

  // Does what the kernel would on a write, and gives 0 or the errno; nothing: only the file is to
  // be written.
  using Kernel = std::function<std::optional<int>(const std::string& path, absl::string_view text)>;

  // `kernel` is for tests, whose trees are only files.
  explicit HostFiles(std::string root = "/", Kernel kernel = nullptr);

  std::string Path(absl::string_view path) const;

  // The text without trailing white space; nothing if it cannot be read.
  std::optional<std::string> Read(absl::string_view path) const;

  // Gives the lines of a file, which may have any length, one after the other to `take`, until that
  // answers false. They come without their ends; a line that is too long comes without its middle.
  // 0, or the errno of what could not be read: lines before it have been given all the same.
  int EachLine(absl::string_view path, absl::FunctionRef<bool(absl::string_view line)> take) const;

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

  // Only the names.
  std::vector<std::string> List(absl::string_view path) const;

  // Adds the names to `names`. 0, or the errno of a directory that cannot be read, or not to its
  // end: for where "nothing is there" and "it cannot be read" must not be taken for each other.
  int ReadNames(absl::string_view path, std::vector<std::string>& names) const;

  // Where a symbolic link points, as it is written there; "" if there is no such link.
  std::string LinkText(absl::string_view path) const;

  // The last component of where a symbolic link points; "" if there is no such link.
  std::string LinkName(absl::string_view path) const;

  // The path with every link followed, below the root; "" if it does not exist.
  std::string Resolve(absl::string_view path) const;

 private:
  // What Entries() gives, and the errno that ReadNames() does.
  int ReadEntries(absl::string_view path, std::vector<Entry>& entries) const;

  std::string root_;  // Resolved; ends in "/".
  Kernel kernel_;
};

// When the process started, in clock ticks after boot (process_stat.h); 0: there is none.
uint64_t StartTicksIn(const HostFiles& files, int pid);

// "No such device (ENODEV)" and the like.
std::string ErrnoText(int error);

// Kernel boot id; "" if it cannot be read.
std::string ReadBootId(const HostFiles& files);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_HOST_FILES_H_
