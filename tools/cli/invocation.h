// What one command line asks for: the request messages it became, and how to send and show them.
//
// Plain data. Names are full resource names, sizes are bytes. `request_id` of a request that
// changes something is empty unless the operator gave one; Execute makes it.
#ifndef CXLPOOL_TOOLS_CLI_INVOCATION_H_
#define CXLPOOL_TOOLS_CLI_INVOCATION_H_

#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "tools/pki/pki.h"

namespace cxlpool::cli {

struct WaitOptions {
  bool wait = false;
  absl::Duration limit = absl::Minutes(5);
};

// A call that is sent as it is, and whose answer is printed.
template <typename Message>
struct Call {
  Message request;
};
using ShowRegion = Call<v1::GetRegionRequest>;
using ListHolders = Call<v1::ListRegionHoldersRequest>;
using RenameRegion = Call<v1::RenameRegionRequest>;
using RenewRegion = Call<v1::RenewRegionRequest>;
using ListHosts = Call<v1::ListHostsRequest>;
using AddHost = Call<v1::AddHostRequest>;
using EnrolHost = Call<v1::EnrolHostRequest>;
using ListDevices = Call<v1::ListDevicesRequest>;
using DiscoverDevices = Call<v1::DiscoverDevicesRequest>;
// Settings with a path HOST/NAME and without a capacity: both are found out first.
using AddDevice = Call<v1::AddDeviceRequest>;
using DrainDevice = Call<v1::DrainDeviceRequest>;
using ListTenants = Call<v1::ListTenantsRequest>;
using ShowTenant = Call<v1::GetTenantRequest>;
using RemoveTenant = Call<v1::RemoveTenantRequest>;
using ListRevocations = Call<v1::ListRevocationsRequest>;
using ListAccess = Call<v1::ListRoleBindingsRequest>;
using ShowSelf = Call<v1::GetSelfRequest>;
using ShowCapacity = Call<v1::GetCapacityRequest>;
using Explain = Call<v1::ExplainRequest>;  // Without a name it is the doctor's.

// What a command that may destroy more than it names does first. Without any of it: on a terminal
// it lists what goes along and asks; elsewhere it goes on only if nothing goes along.
struct Consent {
  bool yes = false;      // Do not ask.
  bool dry_run = false;  // List what goes along, and change nothing.
};

// The same of a call that destroys.
template <typename Message>
struct GuardedCall {
  Message request;
  Consent consent = {};
};
using RetireHost = GuardedCall<v1::RetireHostRequest>;
using RemoveHost = GuardedCall<v1::RemoveHostRequest>;
using FenceHost = GuardedCall<v1::FenceHostRequest>;
using RemoveDevice = GuardedCall<v1::RemoveDeviceRequest>;
using FailDevice = GuardedCall<v1::FailDeviceRequest>;

// A call whose outcome can be waited for.
template <typename Message>
struct WaitedCall {
  Message request;
  WaitOptions wait = {};
};
using AllocateRegion = WaitedCall<v1::AllocateRegionRequest>;
using AttachRegion = WaitedCall<v1::AttachRegionRequest>;
using DetachRegion = WaitedCall<v1::DetachRegionRequest>;
using ResizeRegion = WaitedCall<v1::ResizeRegionRequest>;

// Requests as in the lines of a file.
struct AllocateBatch {
  std::string file;  // "-": standard input.
};
struct ListRegions {
  v1::ListRegionsRequest request;
};
struct ReleaseRegion {
  v1::ReleaseRegionRequest request;
  WaitOptions wait = {};
  Consent consent = {};
};
// Several at once.
struct ReleaseBatch {
  v1::BatchReleaseRegionsRequest request;
  WaitOptions wait = {};
  Consent consent = {};
};
struct WatchRegions {
  v1::WatchRegionsRequest request;
  absl::Duration limit = absl::InfiniteDuration();
};
struct ShowHost {
  std::string name;  // hosts/{host}
};
struct ShowDevice {
  std::string name;  // devices/{device}
};
// Limits that are not given stay as they are.
struct SetTenant {
  v1::SetTenantRequest request;  // Only the name; the limits are below.
  std::optional<uint64_t> quota_bytes = std::nullopt;
  std::optional<uint64_t> reserved_bytes = std::nullopt;
  std::optional<uint64_t> host_cap_bytes = std::nullopt;
  std::optional<v1::Enforcer> isolation = std::nullopt;
};
// The subject is what the command line says; run_certificates.cc reads a file that it names.
struct RevokeCertificate {
  v1::RevokeCertificateRequest request;
};
struct RestoreCertificate {
  v1::RestoreCertificateRequest request;
};
struct GrantAccess {
  v1::SetRoleBindingRequest request;
  std::optional<google::protobuf::Duration> term = std::nullopt;  // Nothing: for good.
};
struct RevokeAccess {
  v1::RemoveRoleBindingRequest request;
};
struct CreateToken {
  v1::SetRoleBindingRequest request;  // Without the hash.
  std::string name;
  google::protobuf::Duration term;
};
struct ListTokens {};
// The last `most` events that fit the request, 0: all that are kept.
struct ListEvents {
  v1::ListEventsRequest request;
  uint64_t most = 100;
};
using VerifyAudit = Call<v1::VerifyAuditRequest>;
struct ShowTopology {};
// Who has how much of the pool, the largest first; `most` rows of each kind, 0: all.
struct ShowTop {
  uint64_t most = 10;
};
// What is stranded, broken up, leaked and old.
struct ShowReport {};
// Which of the managers leads.
struct ShowStatus {};
// The tables are read from the file when the command runs.
struct ApplyTopology {
  v1::ApplyTopologyRequest request;
  std::string file;
};
struct Backup {
  std::string file;
};

// The pki commands need no manager.
struct PkiInit {
  std::string dir;
  bool force = false;
};
struct PkiIssue {
  std::optional<std::string> dir;  // Not given: pki::AuthorityDirectory(). So in PkiRenew.
  pki::LeafRequest leaf;
};
struct PkiRenew {
  std::optional<std::string> dir;
  pki::LeafRole role = pki::LeafRole::kHost;
  std::string name;
  int days = pki::kLeafDays;
};
struct PkiShow {
  std::string file;
};

// Nor do the context commands, which are about the configuration file.
struct ContextCommand {
  enum class Verb { kList, kUse, kShow };
  Verb verb = Verb::kList;
  std::optional<std::string> name = {};  // kShow: without one what counts.
};

// Nor does fsck: it wants the manager stopped.
struct FsckCommand {
  std::string database;
  bool repair = false;
  std::optional<std::string> anchor = std::nullopt;
};

// Nor does quickstart, which makes one.
struct QuickstartCommand {
  std::vector<std::string> words;  // Of its script.
};

// How a program is to use the node of its Region: only that, that first, or that and the host's
// own.
enum class RunPolicy { kStrict, kPrefer, kInterleave };

// Nor does run, which asks the host's agent.
struct RunCommand {
  uint64_t size_bytes = 0;  // To allocate; 0: `region` is opened.
  std::string name = {};
  std::string region = {};
  RunPolicy policy = RunPolicy::kPrefer;
  bool as_file = false;    // It gets a path, and no policy.
  bool read_only = false;  // as_file: of a Region that is there.
  absl::Duration wait;
  std::string socket = {};
  std::vector<std::string> program = {};  // With its arguments.
};

// What Slurm's hooks call, and its timer (tools/cli/slurm). They answer on standard output, errors
// included, for Slurm shows that to people.
struct SlurmCommand {
  enum class Verb {
    kValidate,
    kPools,
    kSetup,
    kRealSize,
    kPaths,
    kPreRun,
    kTeardown,
    kStatus,
    kSweep,
    kCheck,
  };
  Verb verb = Verb::kStatus;
  uint32_t job = 0;
  uint32_t user = 0;           // kSetup: the job's, who may open its Regions.
  uint64_t size_bytes = 0;     // kSetup: what Slurm counts for it.
  std::string script = {};     // File of the job's script.
  std::string path_file = {};  // kPaths: where its variables are written.
};

using PoolCommand = std::variant<
    AllocateRegion, AllocateBatch, ListRegions, ShowRegion, ListHolders, AttachRegion, DetachRegion,
    ReleaseRegion, ReleaseBatch, ResizeRegion, RenameRegion, RenewRegion, WatchRegions, ListHosts,
    ShowHost, AddHost, EnrolHost, RetireHost, RemoveHost, FenceHost, ListDevices, ShowDevice,
    DiscoverDevices, AddDevice, DrainDevice, RemoveDevice, FailDevice, ListTenants, ShowTenant,
    SetTenant, RemoveTenant, RevokeCertificate, RestoreCertificate, ListRevocations, ListAccess,
    GrantAccess, RevokeAccess, CreateToken, ListTokens, ShowSelf, ListEvents, VerifyAudit,
    ShowCapacity, Explain, ShowTopology, ShowTop, ShowReport, ShowStatus, ApplyTopology, Backup>;
using PkiCommand = std::variant<PkiInit, PkiIssue, PkiRenew, PkiShow>;

enum class OutputFormat { kTable, kJson, kYaml, kName };

// As given on the command line; settings.h adds the environment and the configuration file.
struct ConnectionFlags {
  std::optional<std::string> context = std::nullopt;
  std::optional<std::string> config = std::nullopt;
  std::optional<std::string> manager = std::nullopt;
  std::optional<std::string> ca = std::nullopt;
  std::optional<std::string> cert = std::nullopt;
  std::optional<std::string> key = std::nullopt;
  std::optional<std::string> token_file = std::nullopt;
  std::optional<std::string> server_name = std::nullopt;
  bool insecure = false;
};

struct Invocation {
  OutputFormat output = OutputFormat::kTable;
  bool headers = true;  // Of tables.
  bool watch = false;   // Print it again each time it changes, until interrupted.
  ConnectionFlags connection;
  absl::Duration timeout = absl::Seconds(10);  // Of one call, its retries included.
  bool fail_fast = false;                      // One try of each call.
  bool verbose = false;                        // Say the request_id of each change.
  std::variant<PoolCommand, PkiCommand, ContextCommand, FsckCommand, QuickstartCommand, RunCommand,
               SlurmCommand>
      command;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_INVOCATION_H_
