// A FabricDriver out of a blocking FabricBackend: all that is the same for every fabric.
//
//   lanes      one thread for each host, one for scrubs and one for looks at the devices, so that a
//              host that hangs keeps no other waiting. A host that a program fences has a second
//              one for that, `<fence> HOST`, which stays open and idle afterwards, until the host
//              is forgotten. At most Options::max_waiting calls wait on a lane: FABRIC_OVERLOADED.
//   deadlines  each call is answered by its own, exactly once, also where the backend hangs in it.
//              One that has not begun by then never runs (FABRIC_TIMEOUT).
//   waiting    AwaitUnbound asks for the proof again and again, and holds up no other call.
//   Discover   gathers what each host shows. A host that does not answer within Options::patience
//              is shown as not reachable; as long as it still has not, no call waits for it again.
//   Configure  hosts come and go: one that is listed no more has only closed slots, and goes once
//              it was seen that nothing is bound there.
//   carving    before each Bind and scrub, and back after each scrub, where a device carves.
//   checks     slice, UUID, serial, slot, life of the host, LD_CONFLICT and NO_FREE_PORT.
//   the end    everything that still waits is answered with CANCELLED.
//
// Public calls: any thread; they never block. Completions and events: a lane's thread, the one that
// keeps time, or the caller's.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_SHELL_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_SHELL_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/ports/fabric_backend.h"
#include "fabric-manager/ports/fabric_lanes.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {
struct ProgramCall;
}

namespace cxlpool::fm {

// A program that cuts a host off where the fabric cannot, or better than it can: power control. It
// is run with the host's id as its argument, and CXLPOOL_ACTION=off, CXLPOOL_HOST and
// CXLPOOL_INCARNATION (the life that is to end, as the fabric last showed it) in its environment;
// proto/support/operator_program.h says how. That it exits with 0 proves nothing: the host counts
// as fenced once the fabric shows that this life has ended, or that nothing is bound there any
// more. A fabric that never sees a host's end (FabricBackend::SeesEnds) has the program run once
// more, with CXLPOOL_ACTION=status: exit status 2 says that the host's power is off.
struct FenceProgram {
  std::string path;  // Absolute. Empty: the fabric fences by itself.
  absl::Duration timeout = absl::Seconds(60);
};

// What every driver checks of its configuration: INVALID_ARGUMENT/BAD_CONFIG, or BAD_NAME. `ids`
// collects those that were seen, so that none comes twice.
absl::Status BadConfig(std::string message, std::string remedy);
absl::Status CheckDeviceConfig(const std::string& id, uint64_t capacity_bytes,
                               uint64_t granule_bytes, std::set<std::string>& ids);
absl::Status CheckHostConfig(const std::string& id, std::set<std::string>& ids);

class FabricShell : public FabricDriver {
 public:
  struct Options {
    size_t max_waiting = 4096;                     // Calls on a lane.
    absl::Duration operation = absl::Seconds(10);  // A bind, a begin of an unbind.
    absl::Duration patience = absl::Seconds(3);    // Of Discover, with one host.
    absl::Duration fence = absl::Minutes(10);      // Copying may be part of it.
    absl::Duration configure = absl::Minutes(10);  // Reading whole devices may be part of it.
    absl::Duration busy_retry =
        absl::Milliseconds(100);                       // Of an unbind that has to be asked again.
    absl::Duration recheck = absl::Milliseconds(500);  // Of a proof that somebody awaits.
    absl::Duration idle = absl::Minutes(1);            // Between two looks of Idle's own.
    absl::Duration scrub_begins = absl::Minutes(10);   // While nothing before it goes on.
    // A scrub's deadline from there: so long, and a second more for so many bytes.
    absl::Duration scrub_least = absl::Minutes(1);
    uint64_t scrub_bytes_per_second = 32 << 20;
    FenceProgram fence_program;
    absl::Duration fence_confirmed = absl::Seconds(30);  // After the program has ended well.
  };

  FabricShell(std::unique_ptr<FabricBackend> backend, Options options);
  ~FabricShell() override;  // Ends a fence program, too.

  FabricCapabilities capabilities() const override;
  void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) override;
  void Configure(FabricParts parts, Done done) override;
  void Discover(DoneWith<FabricView> done) override;
  void DiscoverHost(std::string host, DoneWith<FabricView> done) override;
  void ShowDevices(std::string host, DoneWith<SeenDevices> done) override;
  void Bind(BindRequest request, DoneWith<BoundLd> done) override;
  void BeginUnbind(Binding binding, Done done) override;
  void AwaitUnbound(Binding binding, absl::Duration timeout, Done done) override;
  void Fence(std::string host, Done done) override;
  void Scrub(Slice slice, ScrubProgress progress, DoneWith<ScrubResult> done) override;

 private:
  struct Gathering;

  bool Has(const std::string& host);
  // Onto the host's lane; answered with UNKNOWN_HOST where the host is forgotten before it runs.
  void SubmitFor(const std::string& host, FabricCallPtr call, bool first = false);
  absl::Status ConfigureNow(const FabricParts& parts);
  void Meet(const std::string& host, const std::string& life);
  void CloseLaneOf(const std::string& host);
  void CloseFenceLaneOf(const std::string& host);
  static std::string FenceLaneOf(const std::string& host);
  void ForgetLater(const std::string& host, uint64_t leaving);
  void ForgetNow(const std::string& host, uint64_t leaving);
  void KeepListed(std::vector<FabricDevice>& devices) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status UnknownHost(const std::string& host) const;
  absl::Status CheckSlice(const Slice& slice);
  bool IsCarved(const std::string& device);
  absl::Status CheckRequest(const BindRequest& request);
  absl::StatusOr<BoundLd> BindNow(const BindRequest& request, absl::Duration deadline);
  // LookAt, with what the shell remembers for a backend that keeps no keys. Claims the host first,
  // or goes by the claim that there is.
  HostLook ClaimAndLook(const std::string& host, absl::Duration deadline);
  HostLook Look(const std::string& host, absl::Duration deadline);
  // One host's part of a Discover that begins now.
  void Ask(const std::string& host, const std::shared_ptr<Gathering>& all);
  void TakeLook(const std::string& host, const std::shared_ptr<Gathering>& all,
                absl::StatusOr<HostLook> look);
  void Emit(FabricEvent event);
  absl::StatusOr<bool> FenceNow(const std::string& host, absl::Duration deadline);
  bool IsOff(const ProgramCall& call);
  void FenceByProgram(const std::string& host, std::shared_ptr<Answer<absl::Status>> answer);
  // Whether the fabric shows that the host, as it was in `life`, reaches nothing any more.
  bool IsCutOff(const std::string& host, const std::string& life);

  const std::unique_ptr<FabricBackend> backend_;
  const Options options_;
  const FabricCapabilities capabilities_;
  const SystemClock clock_;

  Mutex sink_mutex_;
  absl::AnyInvocable<void(FabricEvent)> sink_ ABSL_GUARDED_BY(sink_mutex_);

  Mutex mutex_;
  std::map<std::string, FabricHost> hosts_ ABSL_GUARDED_BY(mutex_);  // As last shown.
  std::map<std::string, uint64_t> claims_ ABSL_GUARDED_BY(mutex_);   // Of hosts; 0: none.
  // Hosts that are listed no more, each time under another number; 0 stands for none.
  std::map<std::string, uint64_t> leaving_ ABSL_GUARDED_BY(mutex_);
  uint64_t leavings_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<FabricDevice> devices_ ABSL_GUARDED_BY(mutex_);            // That may be bound.
  std::optional<std::set<std::string>> listed_ ABSL_GUARDED_BY(mutex_);  // Nothing: all devices.
  std::set<std::string> silent_ ABSL_GUARDED_BY(mutex_);  // Hosts that still owe a look.
  std::map<std::string, std::vector<Done>> fences_ ABSL_GUARDED_BY(mutex_);  // Under way, by host.
  std::map<std::string, std::string> gone_ ABSL_GUARDED_BY(mutex_);  // Host to the life that ended.
  // Host and slot of what is being unbound, for a backend that keeps no keys.
  std::set<std::pair<std::string, uint32_t>> unbinding_ ABSL_GUARDED_BY(mutex_);

  const UniqueFd stop_;  // eventfd: readable once this ends.

  FabricLanes lanes_;  // Ends first: what runs there uses all of the above.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_SHELL_H_
