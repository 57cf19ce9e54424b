// Where the lines of log.h go: to the journal, by its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL), where the descriptor is the journal's; else to the
// descriptor, as text. An error without fields always goes to the descriptor: a program may end
// with it, and the journal knows whose a descriptor is even then.
//
// Any thread, once made. A line that the journal does not take at once goes to the descriptor; one
// that the descriptor does not take is lost, for which there is no remedy. Nobody is held up by a
// reader that stands still: a pipe's has a second to make room, and then a line that finds none is
// lost, and counted in the next one that finds some. Only a terminal may be stopped for as long as
// its user likes.
#ifndef CXLPOOL_PROTO_SUPPORT_LOG_SINK_H_
#define CXLPOOL_PROTO_SUPPORT_LOG_SINK_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "proto/support/log.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {

class LogSink {
 public:
  struct Options {
    int fd = 2;  // Stays the caller's.
    // $JOURNAL_STREAM, "DEVICE:INODE" of the descriptor that the service manager has tied to the
    // journal (systemd.exec(5)); null: it has not.
    const char* journal_stream = nullptr;
    std::string journal_socket = "/run/systemd/journal/socket";
  };
  explicit LogSink(const Options& options);

  void Write(LogLevel level, absl::string_view subject, absl::string_view message,
             const LogFields& fields) const;

 private:
  bool SendEntry(const std::string& entry) const;
  void WriteWhereThereIsRoom(std::string line) const;
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  const bool terminal_;
  const bool is_journal_;  // The descriptor is.
  const std::string journal_socket_;
  const UniqueFd socket_;  // Not open where the descriptor is not the journal's.

  // Of what is neither the journal nor a terminal.
  mutable Mutex mutex_;
  mutable uint64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;  // Lines, that no later one has told of yet.
  mutable bool cut_ ABSL_GUARDED_BY(mutex_) = false;   // The first of them, in its middle.
  // Until then a reader is not waited for: it has just been too slow.
  mutable std::chrono::steady_clock::time_point impatient_until_ ABSL_GUARDED_BY(mutex_);
};

// One entry of the native protocol. What is beyond kMaxLogLine bytes of `message` is left out, so
// that an entry always fits into a datagram.
std::string JournalEntry(LogLevel level, absl::string_view subject, absl::string_view message,
                         const LogFields& fields);

// The line as text, its end included.
std::string TextLine(absl::string_view prefix, absl::string_view subject, absl::string_view message,
                     const LogFields& fields);

inline constexpr size_t kMaxLogLine = 4096;
inline constexpr size_t kMaxLogField = 256;

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_LOG_SINK_H_
