#include "host-agent/adapters/linux/events/trace_instance.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/events/trace_event.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kMounts[] = {"sys/kernel/tracing", "sys/kernel/debug/tracing"};

absl::Status NoTracing(std::string message, std::string remedy) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_TRACING", std::move(message),
                std::move(remedy));
}

}  // namespace

std::string FindTracefs(const HostFiles& files) {
  for (const absl::string_view mount : kMounts) {
    if (files.Exists(absl::StrCat(mount, "/instances"))) return std::string(mount);
  }
  return "";
}

// An instance that is there already, of an agent that crashed, is used as it is: what it recorded
// in the meantime is read, too.
absl::Status TraceInstance::Open() {
  if (pipe_.valid()) return absl::OkStatus();
  const std::string tracefs = FindTracefs(*files_);
  if (tracefs.empty()) {
    return NoTracing("no tracefs: the kernel cannot report poison and media errors",
                     "mount -t tracefs tracefs /sys/kernel/tracing, as root");
  }
  if (!files_->Exists(absl::StrCat(tracefs, "/events/cxl"))) {
    return NoTracing("the kernel has no trace events of CXL memory",
                     "load the module cxl_core; use Linux 6.12 or later");
  }
  path_ = absl::StrCat(tracefs, "/instances/cxlpool");
  if (::mkdir(files_->Path(path_).c_str(), 0700) != 0 && errno != EEXIST) {
    return NoTracing(absl::StrCat("cannot make /", path_, ": ", ErrnoText(errno)),
                     "run the agent as root, and without kernel lockdown");
  }
  // As it needs: the defaults are 1.4 MiB a processor, and readers woken when that is half full.
  files_->Write(absl::StrCat(path_, "/buffer_size_kb"), "64");
  files_->Write(absl::StrCat(path_, "/buffer_percent"), "0");
  // Without PCIe's errors (a kernel without AER) or memory failures the rest is as good. Some
  // kernels from 6.19 on have the latter in a group of its own.
  for (const absl::string_view event :
       {"ras/aer_event", "ras/memory_failure_event", "memory_failure/memory_failure_event"}) {
    files_->Write(absl::StrCat(path_, "/events/", event, "/enable"), "1");
  }
  if (const int error = files_->Write(absl::StrCat(path_, "/events/cxl/enable"), "1"); error != 0) {
    Close();
    return NoTracing(absl::StrCat("cannot have the kernel trace CXL memory: ", ErrnoText(error)),
                     "run the agent as root, and without kernel lockdown");
  }
  pipe_ = UniqueFd(::open(files_->Path(absl::StrCat(path_, "/trace_pipe")).c_str(),
                          O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (pipe_.valid()) return absl::OkStatus();
  const int error = errno;
  Close();
  return NoTracing(
      absl::StrCat("cannot read /", path_, "/trace_pipe: ", ErrnoText(error)),
      error == EBUSY ? "end the other process that reads it" : "run the agent as root");
}

void TraceInstance::Close() {
  pipe_.Reset();
  rest_.clear();
  if (path_.empty()) return;
  ::rmdir(files_->Path(path_).c_str());  // Busy: somebody looks into it; found again later.
  path_.clear();
}

absl::StatusOr<std::vector<std::string>> TraceInstance::ReadLines(size_t most) {
  std::vector<std::string> lines;
  char buffer[4096];
  while (pipe_.valid()) {
    for (size_t end; lines.size() < most && (end = rest_.find('\n')) != std::string::npos;) {
      lines.push_back(rest_.substr(0, end));
      rest_.erase(0, end + 1);
    }
    if (lines.size() >= most) return lines;
    if (rest_.size() > kMaxTraceLineBytes) rest_.clear();  // No line of the kernel's.
    const ssize_t got = ::read(pipe_.get(), buffer, sizeof buffer);
    if (got > 0) {
      rest_.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || errno == EAGAIN) {
      return lines;
    } else if (errno != EINTR) {
      const int error = errno;
      if (!lines.empty()) return lines;  // The next call finds the error again.
      Close();
      return NoTracing(absl::StrCat("cannot read trace events any more: ", ErrnoText(error)),
                       "see whether somebody took the instance away");
    }
  }
  return lines;
}

}  // namespace cxlpool::agent
