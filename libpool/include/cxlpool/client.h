// A process's way to the pool: the connection to the host agent of this machine.
//
//   auto client = cxlpool::Client::Connect();
//   auto region = client->Allocate({.name = "kv-cache", .size_bytes = 1ull << 30});
//   auto mapping = region->Map();
//   std::span<std::byte> memory = mapping->mutable_bytes();
//
// A Region is named `regions/{region}`; the short form `{region}` is taken for the same.
//
// Waiting: every call ends by its deadline, which is its `timeout` (plus its `wait`, where it has
// one). Within it a lost connection is made anew, Regions still held are opened again, and the
// call is sent again under the same request_id, so that one logical call never allocates twice.
// What will pass is waited for in the same way, for as long as `timeout`: a manager that the agent
// cannot reach, or an agent that has just started.
//
// Threads: any number may call at once. Calls go over one connection, one at a time; a call waits
// its turn within its own deadline. Use a second Client where a long wait must not hold others up.
// Move and destroy with nobody using it.
//
// Fork: a forked child has the parent's mappings and must not use its Clients, Regions and
// FaultWatches: calls answer FAILED_PRECONDITION/FORKED, destructors do nothing to the parent's.
// Make a new Client in the child. As long as the child lives it keeps what the parent had open in
// use, for it has the descriptors; a program that it starts by exec has not.
#ifndef CXLPOOL_CLIENT_H_
#define CXLPOOL_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cxlpool/region.h"
#include "cxlpool/types.h"

namespace cxlpool {

namespace libpool {
class Session;  // Internal.
}

struct ConnectOptions {
  // Empty: the environment's CXLPOOL_SOCKET, or else /run/cxlpool/agent.sock.
  std::string socket_path = {};

  // For connecting, and for each later call: how long the agent may take to answer and, after
  // it was there once, to come back. More than 0, at most an hour.
  absl::Duration timeout = absl::Seconds(30);
};

struct AllocateOptions {
  std::string name = {};    // Empty: the manager names it.
  uint64_t size_bytes = 0;  // Rounded up by the manager; Region::size_bytes says to what.
  Sharing sharing = Sharing::kExclusive;
  Mode mode = Mode::kDevdax;
  uint32_t max_extents = 0;  // In how many pieces it may come. 0: the manager's default.

  // false: the Region lives as long as this process, and is released when it has ended, in whatever
  // way. exec keeps it; a child does not. true: it stays until somebody releases it, and comes back
  // after a reboot of the host.
  bool persistent = false;

  // Which other users of this host may open it. Empty: none but root.
  OpenTo open_to = {};

  // A UUID that names this allocation. Empty: a new one, which only the retries of this one call
  // share. Give one to try again after a failure, from another process as well, without making a
  // second Region: with the same id and the same arguments, by the same user (and process, unless
  // it is persistent), the Region that was made is opened.
  std::string request_id = {};

  // How long the memory may take to come online. 0 to 10 minutes.
  absl::Duration wait = absl::Minutes(2);
};

struct OpenOptions {
  Access access = Access::kReadWrite;

  // How long to wait for a Region that is attached but not online yet. 0 to 10 minutes.
  absl::Duration wait = absl::ZeroDuration();
};

class Client {
 public:
  // Connects to the host agent. Does not wait for one that is not running.
  // UNAVAILABLE/AGENT_NOT_RUNNING; PERMISSION_DENIED/SOCKET_DENIED; INVALID_ARGUMENT/BAD_SOCKET;
  // DEADLINE_EXCEEDED/AGENT_TIMEOUT.
  static absl::StatusOr<Client> Connect(const ConnectOptions& options = {});

  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Allocates a Region on this host, waits until it is online, and opens it for writing.
  // DEADLINE_EXCEEDED: it may be under way still; Open it by name, or Release it (so give a
  // name). ALREADY_EXISTS: the name is taken. RESOURCE_EXHAUSTED says what would fit, or that this
  // user has all that it may (USER_LIMIT). PERMISSION_DENIED: this user may not
  // (ALLOCATE_NOT_ALLOWED, PERSISTENT_NOT_ALLOWED). UNAVAILABLE/MANAGER_UNREACHABLE: the manager
  // did not answer within `timeout`; it may have been carried out: try again with the same
  // request_id. FAILED_PRECONDITION/OWNER_UNKNOWN: the agent
  // cannot see this process (another PID namespace); allocate it persistent.
  absl::StatusOr<Region> Allocate(const AllocateOptions& options);

  // Opens a Region that is attached to this host.
  // NOT_FOUND/NOT_ATTACHED: attach it first. PERMISSION_DENIED: it is attached READ_ONLY, or
  // another user made it and it is not open to this one (REGION_NOT_YOURS).
  // UNAVAILABLE/NOT_ONLINE_YET: try later, or give a `wait`. FAILED_PRECONDITION/REGION_RELEASING:
  // it is being taken away.
  absl::StatusOr<Region> Open(absl::string_view name, const OpenOptions& options = {});

  // Starts the release of a Region that this host has and no other, by name or by tag. Returns once
  // that is durable; the memory goes when nobody uses it, this process included: unmap and close
  // first. PERMISSION_DENIED/REGION_NOT_YOURS: another user made it.
  absl::Status Release(absl::string_view name);

  // The Regions attached to this host.
  absl::StatusOr<std::vector<RegionInfo>> List();

 private:
  explicit Client(std::shared_ptr<libpool::Session> session);
  std::shared_ptr<libpool::Session> session_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_CLIENT_H_
