// What Linux says of processes: when one started, and who is behind a local socket.
//
// Field 22 of /proc/PID/stat is the start in clock ticks after boot: with the pid it names one
// process for as long as the boot lasts. Any thread.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_PROCESSES_H_
#define CXLPOOL_HOST_AGENT_LOCAL_PROCESSES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace cxlpool::agent {

// Field 22 of the text of a /proc/PID/stat; 0: it is none. The second field, the program's name,
// may hold anything.
uint64_t ParseStartTicks(absl::string_view stat);

// 0: there is no such process.
uint64_t StartTicksOf(uint32_t pid);

// When the process `pid` started that made this connection; 0: it has ended already, or is in
// another PID namespace. The kernel's own handle of the peer (SO_PEERPIDFD, Linux 6.5) proves that
// the pid was not given to another meanwhile; without it, that the peer has not hung up has to do.
uint64_t PeerStartTicks(int socket, int pid);

// All groups of the process that made this connection, as they were then (SO_PEERCRED has the
// primary one, SO_PEERGROUPS the others).
std::vector<uint32_t> PeerGroups(int socket, uint32_t primary);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_PROCESSES_H_
