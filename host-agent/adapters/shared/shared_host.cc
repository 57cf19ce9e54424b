#include "host-agent/adapters/shared/shared_host.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/shared/shared_machine.h"
#include "host-agent/support/lane.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// Two lanes on one SharedMachine: what changes the host comes one at a time, and looks do not wait
// for it. The jobs share the machine, for one that the kernel holds up outlives this class.
class SharedHost : public SharedHostMemory {
 public:
  SharedHost(std::unique_ptr<DaxSpace> space, SharedHostOptions options)
      : options_(std::move(options)),
        machine_(std::make_shared<SharedMachine>(std::move(space), options_.grants_path,
                                                 options_.boot_id, options_.zero_patience,
                                                 options_.probe)) {}

  void Prepare(Done done) override {
    Rung(
        "preparing the host", 0, [](SharedMachine& machine) { return machine.Prepare(); },
        std::move(done));
  }

  void Observe(DoneWith<HostObservation> done) override {
    looks_.RunWith<HostObservation>(
        "observing the host", options_.look_timeout,
        [machine = machine_](const Deadline&) { return machine->Observe(); }, std::move(done));
  }

  // Nothing is powered here: it is only seen that the manager has granted the bytes.
  void PowerOn(uint32_t slot, uint64_t serial, Done done) override {
    Rung(
        "looking for a grant", 0,
        [slot, serial](SharedMachine& machine) { return machine.CheckPlugged(slot, serial); },
        std::move(done));
  }

  void CreateHostRegion(HostRegionSpec spec, Done done) override {
    // What is carved is flushed before it is ready, which takes time by its size.
    const uint64_t bytes = spec.size_bytes;
    Rung(
        "carving a DAX device", bytes,
        [spec = std::move(spec)](SharedMachine& machine) { return machine.CreateHostRegion(spec); },
        std::move(done));
  }

  void BindDax(uint64_t serial, DaxDriver driver, Done done) override {
    OnPiece(
        "binding a DAX device", options_.rung_timeout, serial, false,
        [driver](DaxSpace& space, const SpacePiece& piece) { return space.Bind(piece, driver); },
        std::move(done));
  }

  void OnlineBlocks(uint64_t serial, MemoryZone zone, Done done) override {
    OnPiece(
        "bringing memory online", options_.blocks_timeout, serial, false,
        [zone](DaxSpace& space, const SpacePiece& piece) {
          return space.OnlineBlocks(piece, zone);
        },
        std::move(done));
  }

  void OfflineBlocks(uint64_t serial, absl::Duration patience, Done done) override {
    OnPiece(
        "bringing memory offline", patience, serial, true,
        [patience](DaxSpace& space, const SpacePiece& piece) {
          return space.OfflineBlocks(piece, patience);
        },
        std::move(done));
  }

  void UnbindDax(uint64_t serial, Done done) override {
    OnPiece(
        "unbinding a DAX device", options_.rung_timeout, serial, true,
        [](DaxSpace& space, const SpacePiece& piece) { return space.Unbind(piece); },
        std::move(done));
  }

  void DestroyHostRegion(uint64_t serial, Done done) override {
    Rung(
        "taking a DAX device away", machine_->LengthOf(serial),
        [serial](SharedMachine& machine) { return machine.DestroyHostRegion(serial); },
        std::move(done));
  }

  void PowerOff(uint32_t slot, uint64_t serial, Done done) override {
    Rung(
        "ending a grant", machine_->LengthOf(serial),  // It may have to be flushed.
        [slot, serial](SharedMachine& machine) { return machine.PowerOff(slot, serial); },
        std::move(done));
  }

  // Without a host region there is nothing to hold: no holders, and no error.
  void FindHolders(uint64_t serial, DoneWith<std::vector<ProcessId>> done) override {
    looks_.RunWith<std::vector<ProcessId>>(
        "looking for holders", options_.look_timeout,
        [machine = machine_, serial](const Deadline&) -> absl::StatusOr<std::vector<ProcessId>> {
          const auto piece = machine->PieceOf(serial);
          if (absl::IsNotFound(piece.status())) return std::vector<ProcessId>();
          if (!piece.ok()) return piece.status();
          return machine->space().FindHolders(*piece);
        },
        std::move(done));
  }

  // On the caller's thread: an application waits for it, and it changes nothing.
  absl::StatusOr<OpenedDax> OpenDax(uint64_t serial, bool read_only) override {
    absl::StatusOr<OpenPiece> open = machine_->Open(serial, read_only);
    if (!open.ok()) return open.status();
    return OpenedDax(std::move(open->fd), open->offset_bytes, std::move(open->node));
  }

  void Place(std::vector<v1::HostEvent>& events) override { machine_->Place(events); }

  // Before the rungs that wait: with hundreds of them the manager would call this host
  // unreachable. Clearing has time.
  void Do(v1::DeviceTask task, DoneWith<v1::DeviceLook> done) override {
    const bool clears = task.has_clear();
    const uint64_t bytes = clears ? task.clear().length_bytes() : 0;
    rungs_.RunWith<v1::DeviceLook>(
        "a task of the manager", TimeoutFor(bytes),
        [machine = machine_, task = std::move(task), sessions = sessions_,
         session = sessions_->load()](const Deadline&) -> absl::StatusOr<v1::DeviceLook> {
          if (sessions->load() != session && !CXLPOOL_MUTANT("tasks-outlive-their-session")) {
            return absl::CancelledError("the session that asked for it has ended");
          }
          return Run(*machine, task);
        },
        std::move(done), clears ? Lane::Turn::kLast : Lane::Turn::kNext);
  }

  void EndSession() override { sessions_->fetch_add(1); }

 private:
  // Only a look answers with what is there.
  static absl::StatusOr<v1::DeviceLook> Run(SharedMachine& machine, const v1::DeviceTask& task) {
    absl::Status status;
    switch (task.work_case()) {
      case v1::DeviceTask::kLook:
        return machine.Look();
      case v1::DeviceTask::kGrant:
        status = machine.Grant(task.grant());
        break;
      case v1::DeviceTask::kRevoke:
        status = machine.Revoke(task.revoke());
        break;
      case v1::DeviceTask::kMark:
        status = machine.Mark(task.mark());
        break;
      case v1::DeviceTask::kClear:
        status = machine.Clear(task.clear());
        break;
      case v1::DeviceTask::WORK_NOT_SET:
        return Refuse(absl::StatusCode::kUnimplemented, "UNKNOWN_TASK",
                      "the manager asks for something that this agent does not know",
                      "update cxlpool-agent on this host");
    }
    if (!status.ok()) return status;
    return v1::DeviceLook();
  }

  // A flush goes at some GiB a second, under emulation as well.
  absl::Duration TimeoutFor(uint64_t bytes) const {
    return options_.rung_timeout + absl::Seconds(static_cast<double>(bytes >> 30));
  }

  void Rung(std::string what, uint64_t bytes, std::function<absl::Status(SharedMachine&)> work,
            Done done) {
    rungs_.Run(
        std::move(what), TimeoutFor(bytes),
        [machine = machine_, work = std::move(work)](const Deadline&) { return work(*machine); },
        std::move(done));
  }

  // `gone_is_ok`: where there is no host region nothing is left to take down.
  void OnPiece(std::string what, absl::Duration timeout, uint64_t serial, bool gone_is_ok,
               std::function<absl::Status(DaxSpace&, const SpacePiece&)> work, Done done) {
    rungs_.Run(
        std::move(what), timeout,
        [machine = machine_, serial, gone_is_ok, work = std::move(work)](const Deadline&) {
          const auto piece = machine->PieceOf(serial);
          if (gone_is_ok && absl::IsNotFound(piece.status())) return absl::OkStatus();
          if (!piece.ok()) return piece.status();
          return work(machine->space(), *piece);
        },
        std::move(done));
  }

  const SharedHostOptions options_;
  const std::shared_ptr<SharedMachine> machine_;
  // Of the manager, that have ended.
  const std::shared_ptr<std::atomic<uint64_t>> sessions_ =
      std::make_shared<std::atomic<uint64_t>>(0);
  Lane rungs_;
  Lane looks_;
};

}  // namespace

std::unique_ptr<SharedHostMemory> MakeSharedHost(std::unique_ptr<DaxSpace> space,
                                                 SharedHostOptions options) {
  return std::make_unique<SharedHost>(std::move(space), std::move(options));
}

}  // namespace cxlpool::agent
