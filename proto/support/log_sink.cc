#include "proto/support/log_sink.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool {
namespace {

constexpr std::chrono::milliseconds kReaderPatience{1000};
constexpr std::chrono::minutes kImpatience{1};  // After a line that was lost.

// A field of a line: its name in the journal, its name in text, and its value.
struct Named {
  absl::string_view journal;
  absl::string_view text;
  std::string value;
};

std::array<Named, 5> NamesOf(const LogFields& fields) {
  const auto cut = [](const std::string& value) { return CutText(value, kMaxLogField); };
  return {{
      {"CXLPOOL_REGION", "region", cut(fields.region)},
      {"CXLPOOL_REQUEST_ID", "request",
       fields.request_id.empty() ? "" : FormatUuid(fields.request_id.bytes())},
      {"CXLPOOL_HOST", "host", cut(fields.host)},
      {"CXLPOOL_TENANT", "tenant", cut(fields.tenant)},
      {"CXLPOOL_RUNG", "rung", cut(fields.rung)},
  }};
}

// "NAME=value", or with the length of the value in between (8 bytes, little-endian) where a line
// break in it would begin another field.
void AppendField(std::string& entry, absl::string_view name, absl::string_view value) {
  absl::StrAppend(&entry, name);
  if (value.find('\n') == absl::string_view::npos || CXLPOOL_MUTANT("log-lets-fields-in")) {
    absl::StrAppend(&entry, "=", value, "\n");
    return;
  }
  entry += '\n';
  uint64_t length = value.size();
  for (int i = 0; i < 8; ++i, length >>= 8) entry += static_cast<char>(length & 0xff);
  absl::StrAppend(&entry, value, "\n");
}

bool IsOfWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
}

// Whether `word` stands in `text`, and not only as a part of a longer name.
bool Says(absl::string_view text, absl::string_view word) {
  for (size_t at = text.find(word); at != absl::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || (!IsOfWord(text[at - 1]) && text[at - 1] != '.');
    if (begins && (end == text.size() || !IsOfWord(text[end]))) return true;
  }
  return false;
}

// Whether `fd` is what `journal_stream` names.
bool IsJournal(int fd, const char* journal_stream) {
  struct stat status = {};
  return journal_stream != nullptr && fstat(fd, &status) == 0 &&
         absl::StrCat(status.st_dev, ":", status.st_ino) == journal_stream;
}

// An error that is about no Region, host or request: with such a line a program ends. The journal
// looks up the unit of an entry's sender when it reads the entry, and finds none where the sender
// has ended, so that `journalctl -u` does not show why. A stream is the unit's from its start.
bool MayBeTheLast(LogLevel level, const LogFields& fields) {
  const auto names = NamesOf(fields);
  return level == LogLevel::kError &&
         std::all_of(names.begin(), names.end(), [](const Named& f) { return f.value.empty(); });
}

// Fields that come from outside are told apart from the ends of lines.
std::string Escaped(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&out, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string JournalEntry(LogLevel level, absl::string_view subject, absl::string_view message,
                         const LogFields& fields) {
  std::string entry;
  AppendField(entry, "MESSAGE", absl::StrCat(subject, ": ", CutText(message, kMaxLogLine)));
  AppendField(entry, "PRIORITY", absl::StrCat(static_cast<int>(level)));
  AppendField(entry, "SYSLOG_IDENTIFIER", program_invocation_short_name);
  for (const Named& field : NamesOf(fields)) {
    if (!field.value.empty()) AppendField(entry, field.journal, field.value);
  }
  return entry;
}

std::string TextLine(absl::string_view prefix, absl::string_view subject, absl::string_view message,
                     const LogFields& fields) {
  std::string line = absl::StrCat(subject, ": ", CutText(message, kMaxLogLine));
  std::string more;
  for (const Named& field : NamesOf(fields)) {
    if (field.value.empty() || Says(line, field.value)) continue;
    absl::StrAppend(&more, more.empty() ? " (" : " ", field.text, "=", field.value);
  }
  if (!more.empty()) absl::StrAppend(&line, more, ")");
  return absl::StrCat(prefix, Escaped(line), "\n");
}

LogSink::LogSink(const Options& options)
    : fd_(options.fd),
      terminal_(isatty(options.fd) != 0),
      is_journal_(IsJournal(options.fd, options.journal_stream)),
      journal_socket_(options.journal_socket),
      socket_(is_journal_ ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1) {}

// Not connected: journald may be started again meanwhile, behind the same path.
bool LogSink::SendEntry(const std::string& entry) const {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (!socket_.valid() || journal_socket_.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, journal_socket_.data(), journal_socket_.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + journal_socket_.size() + 1);
  return sendto(socket_.get(), entry.data(), entry.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&address), length) >= 0;
}

void LogSink::Write(LogLevel level, absl::string_view subject, absl::string_view message,
                    const LogFields& fields) const {
  if (is_journal_ && (!MayBeTheLast(level, fields) || CXLPOOL_MUTANT("log-last-words-unsigned")) &&
      SendEntry(JournalEntry(level, subject, message, fields))) {
    return;
  }
  const std::string prefix = terminal_ ? "" : absl::StrCat("<", static_cast<int>(level), ">");
  std::string line = TextLine(prefix, subject, message, fields);
  if (!is_journal_ && !terminal_) return WriteWhereThereIsRoom(std::move(line));
  // One write: lines of several threads and processes do not mix.
  [[maybe_unused]] const ssize_t written =
      is_journal_ ? send(fd_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT)
                  : write(fd_, line.data(), line.size());
}

// As few writes as are sure not to wait: where a pipe has room, it has room for PIPE_BUF bytes.
void LogSink::WriteWhereThereIsRoom(std::string line) const {
  MutexLock lock(mutex_);
  if (lost_ > 0) {
    const std::string lost = absl::StrCat(lost_, " lines are lost: nobody read them in time");
    line = absl::StrCat(cut_ ? "\n" : "", TextLine("<4>", "log", lost, {}), line);
  }
  for (absl::string_view rest = line; !rest.empty();) {
    if (!HasRoom()) {
      ++lost_;
      if (rest.size() < line.size()) cut_ = true;
      return;
    }
    const ssize_t written = write(fd_, rest.data(), std::min<size_t>(rest.size(), PIPE_BUF));
    if (written <= 0) return;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  lost_ = 0;
  cut_ = false;
}

// With patience, unless it was too short not long ago.
bool LogSink::HasRoom() const {
  if (CXLPOOL_MUTANT("log-waits-for-its-reader")) return true;
  const bool patient = std::chrono::steady_clock::now() >= impatient_until_;
  pollfd room = {fd_, POLLOUT, 0};
  if (poll(&room, 1, patient ? static_cast<int>(kReaderPatience.count()) : 0) != 0) return true;
  impatient_until_ = std::chrono::steady_clock::now() + kImpatience;
  return false;
}

}  // namespace cxlpool
