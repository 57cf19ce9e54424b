// What SharedHost's jobs do, one after the other: the grants, the marks and the pieces of one host.
//
// Blocking. Everything but Observe, PieceOf and the holders' look runs on one thread; those may run
// beside it.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_SHARED_MACHINE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_SHARED_MACHINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/adapters/shared/grant_table.h"
#include "host-agent/ports/dax_space.h"
#include "host-agent/ports/host_memory.h"
#include "proto/support/mutex.h"

namespace cxlpool::agent {

class SharedMachine {
 public:
  // Told which point of a rung is passed: SharedHostOptions::probe.
  using Probe = std::function<void(absl::string_view point)>;

  SharedMachine(std::unique_ptr<DaxSpace> space, const std::string& grants_path,
                const std::string& boot_id, absl::Duration zero_patience, Probe probe = {});
  ~SharedMachine();

  DaxSpace& space() { return *space_; }

  // The host's policy; then what an agent that was killed left half done, and the marks.
  absl::Status Prepare();
  absl::StatusOr<HostObservation> Observe();

  // Rungs, as of HostMemory.
  absl::Status CheckPlugged(uint32_t slot, uint64_t serial);
  absl::Status CreateHostRegion(const HostRegionSpec& spec);
  absl::Status DestroyHostRegion(uint64_t serial);
  absl::Status PowerOff(uint32_t slot, uint64_t serial);

  // The DAX device of a host region that is ready. NOT_FOUND/NO_HOST_REGION: there is none;
  // FAILED_PRECONDITION/DEVICE_GONE: that cannot be said now.
  absl::StatusOr<SpacePiece> PieceOf(uint64_t serial);
  // As last seen, for calls that must be quick; DaxSpace::Open looks whether it still is that.
  absl::StatusOr<OpenPiece> Open(uint64_t serial, bool read_only);
  // As of SharedHostMemory.
  void Place(std::vector<v1::HostEvent>& events);
  // Of the grant, to count a deadline by; 0: there is none.
  uint64_t LengthOf(uint64_t serial);

  // Tasks, as of the .proto.
  absl::StatusOr<v1::DeviceLook> Look();
  absl::Status Grant(const v1::DeviceGrant& grant);
  absl::Status Revoke(const v1::DeviceRevokeTask& task);
  absl::Status Mark(const v1::DeviceMarkTask& task);
  absl::Status Clear(const v1::DeviceClearTask& task);

 private:
  // The first piece of a device, mapped.
  struct Window {
    void* at = nullptr;
    size_t size = 0;
    absl::StatusOr<std::optional<v1::DeviceMark>> mark = std::nullopt;  // As last read.
  };
  using UseBytes = std::function<absl::Status(char* bytes, size_t size)>;
  using UseOpen = std::function<absl::Status(const OpenPiece& open, size_t size)>;

  // For messages: "bytes 0x0 to 0x1000 of region0".
  static std::string TextOf(const std::string& name, uint64_t offset, uint64_t length);
  // Opens the windows of devices that have none yet, and reads every mark anew. What cannot be done
  // with a device is left in its `unfit`.
  absl::StatusOr<SpaceView> LookAtMarks();
  // Has the space look after a device that is unfit, or new: somebody may have let go of it.
  void PrepareUnfit();
  absl::Status OpenWindow(const SpaceDevice& device);
  bool ReadAgain(Window& window);
  // The device that has this mark now. NOT_FOUND/UNKNOWN_DEVICE, FAILED_PRECONDITION/MARK_WRONG.
  absl::StatusOr<SpaceDevice> FindMarked(const SpaceView& view, const std::string& mark,
                                         const std::string& device);
  // Whose DAX device a piece is, where it is not a grant's.
  bool IsOwn(const SpacePiece& piece, const SpaceView& view) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // RANGE_TAKEN: somebody on this host has some of these bytes.
  absl::Status CheckFree(const SpaceView& view, const std::string& name, uint64_t offset_bytes,
                         uint64_t length_bytes);
  // Opens the piece for as long as `use` runs; no application gets it meanwhile.
  absl::Status WithOpen(const SpacePiece& piece, const UseOpen& use);
  // Maps it as well.
  static UseOpen OnBytes(UseBytes use);
  absl::Status FlushPiece(const SpacePiece& piece);
  // UNAVAILABLE/FLUSH_CUT_OFF: the DAX device went, or its driver did, before it was through.
  UseOpen FlushOf(const std::string& device, uint64_t offset_bytes);
  absl::Status FlushOwed(const Granted& granted);
  uint64_t FlushBytes(char* bytes, size_t size, uint64_t offset_bytes);
  // `lost`: so many of them cannot be loaded; they count as zero.
  bool IsZeroInMemory(char* bytes, size_t size, uint64_t offset_bytes, uint64_t& lost);
  // Does it to all of them but those that answer with a bus error: how many these were.
  static uint64_t Touch(char* bytes, size_t size, const std::function<void(char*, size_t)>& touch);
  // A piece of the agent's own around `use`.
  absl::Status OnWorkPiece(const WorkRange& range, const UseOpen& use);
  absl::Status EndWork();
  // NOT_FOUND/NO_DAX_DEVICE: the device is there, and has no such DAX device.
  // FAILED_PRECONDITION/DEVICE_GONE: nobody can say, for the device is not seen (ADR 25).
  absl::StatusOr<SpacePiece> LookForPiece(const std::string& name, uint64_t offset_bytes,
                                          uint64_t length_bytes);
  bool IsAllZero(const SpaceDevice& device, const v1::DeviceMark& mark);
  std::optional<Granted> FindGranted(uint64_t serial);
  void Pass(absl::string_view point) const {
    if (probe_) probe_(point);
  }

  const std::unique_ptr<DaxSpace> space_;
  const absl::Duration zero_patience_;
  const Probe probe_;
  std::map<std::string, Window> windows_;  // By SpaceDevice::name.
  absl::Time prepared_ = absl::InfinitePast();

  Mutex mutex_;
  GrantTable table_ ABSL_GUARDED_BY(mutex_);
  SpaceView seen_ ABSL_GUARDED_BY(mutex_);  // Last.
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_SHARED_SHARED_MACHINE_H_
