// What one command line asks for: the request messages it became, and how to send and show them.
//
// Plain data. Names are full resource names, sizes are bytes. `request_id` of a request that
// changes something is empty unless the operator gave one; whoever runs the command makes it.
#ifndef CXLPOOL_TOOLS_CLI_INVOCATION_H_
#define CXLPOOL_TOOLS_CLI_INVOCATION_H_

#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "tools/pki/pki.h"

namespace cxlpool::cli {

struct WaitOptions {
  bool wait = false;
  absl::Duration limit = absl::Minutes(5);
};

struct AllocateRegion {
  v1::AllocateRegionRequest request;
  WaitOptions wait;
};
// Requests as in the lines of a file.
struct AllocateBatch {
  std::string file;  // "-": standard input.
};
struct ListRegions {
  v1::ListRegionsRequest request;
};
struct ShowRegion {
  v1::GetRegionRequest request;
};
struct AttachRegion {
  v1::AttachRegionRequest request;
  WaitOptions wait;
};
struct DetachRegion {
  v1::DetachRegionRequest request;
  WaitOptions wait;
};
struct ReleaseRegion {
  v1::ReleaseRegionRequest request;
  WaitOptions wait;
};
// Several at once.
struct ReleaseBatch {
  v1::BatchReleaseRegionsRequest request;
  WaitOptions wait;
};
struct ResizeRegion {
  v1::ResizeRegionRequest request;
  WaitOptions wait;
};
struct RenameRegion {
  v1::RenameRegionRequest request;
};
struct RenewRegion {
  v1::RenewRegionRequest request;
};
struct WatchRegions {
  v1::WatchRegionsRequest request;
  absl::Duration limit = absl::InfiniteDuration();
};
struct ListHosts {};
struct EnrolHost {
  v1::EnrolHostRequest request;
};
struct RetireHost {
  v1::RetireHostRequest request;
};
struct FenceHost {
  v1::FenceHostRequest request;
};
struct ListDevices {};
struct AddDevice {
  v1::AddDeviceRequest request;
};
struct DrainDevice {
  v1::DrainDeviceRequest request;
};
struct RemoveDevice {
  v1::RemoveDeviceRequest request;
};
struct FailDevice {
  v1::FailDeviceRequest request;
};
struct ListTenants {};
struct ShowTenant {
  v1::GetTenantRequest request;
};
// Limits that are not given stay as they are.
struct SetTenant {
  v1::SetTenantRequest request;  // The name alone; the limits are below.
  std::optional<uint64_t> quota_bytes = std::nullopt;
  std::optional<uint64_t> reserved_bytes = std::nullopt;
  std::optional<uint64_t> host_cap_bytes = std::nullopt;
};
struct RemoveTenant {
  v1::RemoveTenantRequest request;
};
struct ShowCapacity {};
struct ShowTopology {};
struct Backup {
  std::string file;
};

// The pki commands need no manager.
struct PkiInit {
  std::string dir;
  bool force = false;
};
struct PkiIssue {
  std::string dir;
  pki::LeafRequest leaf;
};
struct PkiRenew {
  std::string dir;
  pki::LeafRole role = pki::LeafRole::kHost;
  std::string name;
  int days = pki::kLeafDays;
};
struct PkiShow {
  std::string file;
};

// Nor does fsck: it wants the manager stopped.
struct FsckCommand {
  std::string database;
  bool repair = false;
};

using PoolCommand =
    std::variant<AllocateRegion, AllocateBatch, ListRegions, ShowRegion, AttachRegion, DetachRegion,
                 ReleaseRegion, ReleaseBatch, ResizeRegion, RenameRegion, RenewRegion, WatchRegions,
                 ListHosts, EnrolHost, RetireHost, FenceHost, ListDevices, AddDevice, DrainDevice,
                 RemoveDevice, FailDevice, ListTenants, ShowTenant, SetTenant, RemoveTenant,
                 ShowCapacity, ShowTopology, Backup>;
using PkiCommand = std::variant<PkiInit, PkiIssue, PkiRenew, PkiShow>;

enum class OutputFormat { kTable, kJson };

// As given on the command line; settings.h adds the environment and the configuration file.
struct ConnectionFlags {
  std::optional<std::string> config = std::nullopt;
  std::optional<std::string> manager = std::nullopt;
  std::optional<std::string> ca = std::nullopt;
  std::optional<std::string> cert = std::nullopt;
  std::optional<std::string> key = std::nullopt;
  std::optional<std::string> server_name = std::nullopt;
  bool insecure = false;
};

struct Invocation {
  OutputFormat output = OutputFormat::kTable;
  ConnectionFlags connection;
  absl::Duration timeout = absl::Seconds(10);  // Of one call, its retries included.
  std::variant<PoolCommand, PkiCommand, FsckCommand> command;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_INVOCATION_H_
