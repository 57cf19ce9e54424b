// The manager as the commands see it: each call tried once, within a deadline, nothing retried.
// Where a pool has several, it is the one that led last, until Turn.
//
// Errors are the manager's, with their Refusal (refusal.h), or UNAVAILABLE (cannot be reached) and
// DEADLINE_EXCEEDED (no answer in `limit`; what was asked may have been done). `limit` is finite.
// One thread.
#ifndef CXLPOOL_TOOLS_CLI_MANAGER_STUB_H_
#define CXLPOOL_TOOLS_CLI_MANAGER_STUB_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "tools/cli/manager_methods.h"

namespace cxlpool::cli {

class ManagerStub {
 public:
  template <typename T>
  using Answer = absl::StatusOr<T>;
  // False ends the stream.
  using OnEvent = absl::FunctionRef<bool(const v1::WatchRegionsResponse&)>;
  using OnOpen = absl::FunctionRef<void()>;
  using OnPiece = absl::FunctionRef<absl::Status(const v1::BackupResponse&)>;

  virtual ~ManagerStub() = default;

#define CXLPOOL_STUB_METHOD(service, method, request_type, response_type)   \
  virtual Answer<v1::response_type> method(const v1::request_type& request, \
                                           absl::Duration limit) = 0;
  CXLPOOL_MANAGER_METHODS(CXLPOOL_STUB_METHOD)
#undef CXLPOOL_STUB_METHOD

  // Hands over events until `on_event` returns false (then OK), the manager ends the stream (OK
  // too), it breaks, or `limit` is over (DEADLINE_EXCEEDED). `on_open`: there is a connection; it
  // is not called where there was none.
  virtual absl::Status WatchRegions(const v1::WatchRegionsRequest& request, absl::Duration limit,
                                    OnOpen on_open, OnEvent on_event) = 0;

  // Hands over the pieces in order until the last, `on_piece` fails (its status is the answer), the
  // stream breaks, no connection is had within `connect`, or `limit` is over.
  virtual absl::Status Backup(const v1::BackupRequest& request, absl::Duration connect,
                              absl::Duration limit, OnPiece on_piece) = 0;

  // A call ended with `why`. Whether another manager may answer it, and is worth a call at once:
  // the next call goes there. If not, `why` is what there is to say of all that were tried
  // (manager_rotation.h).
  virtual bool Turn(absl::Status& why) = 0;

  // Every manager that was configured, and what one of them says of itself; that one is called, and
  // no other.
  virtual std::vector<std::string> addresses() const = 0;
  virtual Answer<v1::Self> SelfAt(size_t manager, absl::Duration limit) = 0;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_MANAGER_STUB_H_
