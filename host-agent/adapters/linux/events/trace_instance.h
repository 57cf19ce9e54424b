// A tracefs instance of our own: the kernel's events of CXL memory and PCIe errors, without
// disturbing anyone else's tracing.
//
// Below tracefs (/sys/kernel/tracing) it is instances/cxlpool: events/cxl and those of events/ras
// on, a buffer of 64 KiB a processor. It is taken away by Close, and found again after a crash,
// with what it recorded meanwhile. Documentation/trace/ftrace.rst, "Instances".
//
// Not thread-safe; nothing blocks.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_TRACE_INSTANCE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_TRACE_INSTANCE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

// Where tracefs is mounted, without the leading slash; "" if it is not.
std::string FindTracefs(const HostFiles& files);

class TraceInstance {
 public:
  explicit TraceInstance(const HostFiles* files) : files_(files) {}
  ~TraceInstance() { Close(); }
  TraceInstance(const TraceInstance&) = delete;
  TraceInstance& operator=(const TraceInstance&) = delete;

  // FAILED_PRECONDITION/NO_TRACING: this kernel or this process cannot; the message says what, and
  // the remedy how to fix it. Open already: OK.
  absl::Status Open();

  // Stops it and takes it away.
  void Close();

  // Becomes readable when there is something to read; -1 while it is closed.
  int fd() const { return pipe_.get(); }

  // Whole lines that have come since, at most `most`. An error: it is closed, and all lines before
  // were returned.
  absl::StatusOr<std::vector<std::string>> ReadLines(size_t most);

 private:
  const HostFiles* const files_;
  std::string path_;
  UniqueFd pipe_;
  std::string rest_;  // Of a line whose end is yet to come.
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_TRACE_INSTANCE_H_
