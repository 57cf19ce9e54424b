// Which process is behind a local socket, as Linux reports it. A start is as in process_stat.h. Any
// thread.
#ifndef CXLPOOL_HOST_AGENT_LOCAL_PROCESSES_H_
#define CXLPOOL_HOST_AGENT_LOCAL_PROCESSES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cxlpool::agent {

// When the process `pid` started that made this connection; 0: it has ended already, or is in
// another PID namespace. The kernel's own handle of the peer (SO_PEERPIDFD, Linux 6.5) proves that
// the pid was not given to another meanwhile; without it, that the peer has not hung up has to do.
uint64_t PeerStartTicks(int socket, int pid);

// All groups of the process that made this connection, as they were then (SO_PEERCRED has the
// primary one, SO_PEERGROUPS the others).
std::vector<uint32_t> PeerGroups(int socket, uint32_t primary);

// The name of the program that the process has now (/proc/PID/comm); "": not known. Whatever is no
// printable ASCII is a question mark: a process names itself as it likes.
std::string ProgramOf(int pid);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_PROCESSES_H_
