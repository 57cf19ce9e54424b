// The ManagerLink over gRPC.
//
// It dials, asks the core for a Hello, and has a session once the manager's Welcome is there. From
// then on it sends a Heartbeat every Welcome.heartbeat_ms, and the session number with everything.
// A session that ends is dialled again after a backoff; a refusal that only an operator can change
// is tried again every few seconds, so that the operator who changes it sees the host come. HTTP/2
// pings find a connection that went dead.
//
// Of several managers one leads, and the link finds it (manager_rotation.h): the backoff comes
// after a round of all of them. A manager that leads under a lower epoch than one that was met
// before, by this agent or by one before it in this boot, has been replaced, and gets no session.
#ifndef CXLPOOL_HOST_AGENT_RPC_GRPC_MANAGER_LINK_H_
#define CXLPOOL_HOST_AGENT_RPC_GRPC_MANAGER_LINK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/ports/manager_link.h"
#include "proto/support/tls.h"

namespace cxlpool::agent {

// The longest wait between two rounds over several managers. One of them leads within seconds of
// the loss of another, and hosts are not to be away for longer than that.
inline constexpr absl::Duration kBackoffOfSeveral = absl::Seconds(1);

struct GrpcLinkOptions {
  std::vector<std::string> addresses;      // Each as gRPC has it: HOST:PORT, or unix:PATH.
  std::shared_ptr<TlsSource> tls;          // Null: without TLS; unix: and loopback addresses only.
  std::string server_name = "fm.cxlpool";  // What the manager's certificate must be for.

  // Where the highest epoch is kept for the next agent of the boot `boot_id` (run_file.h); empty:
  // nowhere.
  std::string epoch_path, boot_id;

  absl::Duration backoff_min = absl::Milliseconds(200);
  absl::Duration backoff_max = absl::Seconds(5);
  absl::Duration refused_retry = absl::Seconds(4);     // After a permanent refusal.
  absl::Duration welcome_timeout = absl::Seconds(15);  // From dialling, for a slow first handshake.
  absl::Duration write_timeout = absl::Seconds(30);    // Of one message in a session.
  absl::Duration call_timeout = absl::Seconds(30);     // Of Allocate and Release.
};

// Connects only at Start. What `tls` holds after a reload is used for each connection that is made
// afterwards; a session that stands goes on. The link has a thread of its own, and
// its handlers run there; completions of Allocate and Release run on gRPC's threads. Stop, and
// the destructor, wait until every call has been answered; not from a handler or a completion.
//
// FAILED_PRECONDITION/INSECURE_ADDRESS.
absl::StatusOr<std::unique_ptr<ManagerLink>> MakeGrpcManagerLink(const GrpcLinkOptions& options);

// Whether the manager that leads would take a session that begins with `hello`. Answers a sentence
// about the host, for people. It reads, and begins no session: the one that a running agent has
// goes on. Waits for about `timeout` at most. UNAVAILABLE/MANAGER_UNREACHABLE,
// DEADLINE_EXCEEDED/NO_ANSWER; what DiagnoseManager finds; the manager's refusals of Session; and
// the errors of MakeGrpcManagerLink.
absl::StatusOr<std::string> AskManager(const GrpcLinkOptions& options, const v1::Hello& hello,
                                       absl::Duration timeout);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_RPC_GRPC_MANAGER_LINK_H_
