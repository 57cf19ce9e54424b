// SharedMachine and the devices' bytes: windows with their marks, whose a range is, flushes, and
// the pieces that the agent itself works on.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "host-agent/adapters/shared/device_mark.h"
#include "host-agent/adapters/shared/shared_machine.h"
#include "host-agent/support/device_memory.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr char kSubject[] = "shared";
constexpr size_t kPage = 4096;
constexpr size_t kTouchStep = size_t{2} << 20;
constexpr uint64_t kZeroStep = uint64_t{64} << 20;
constexpr absl::Duration kBetweenPreparations = absl::Seconds(5);

bool Overlap(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length) {
  return a < b + b_length && b < a + a_length;
}

// Whether nothing was ever stored there: a file's hole is zero without a look, which would take
// seconds for each GiB. A device has none (lseek refuses).
bool IsHole(const OpenPiece& open, size_t size) {
  const auto begin = static_cast<off_t>(open.offset_bytes);
  const off_t data = ::lseek(open.fd.get(), begin, SEEK_DATA);
  if (data < 0) return errno == ENXIO;  // None up to the file's end.
  return data >= begin + static_cast<off_t>(size);
}

}  // namespace

std::string SharedMachine::TextOf(const std::string& name, uint64_t offset, uint64_t length) {
  return absl::StrFormat("bytes %#x to %#x of %s", offset, offset + length, name);
}

// --- Marks and windows.

void SharedMachine::PrepareUnfit() {
  const absl::Time now = absl::Now();
  if (now >= prepared_ && now < prepared_ + kBetweenPreparations) return;
  const absl::StatusOr<SpaceView> view = space_->Look();
  if (!view.ok() ||
      std::none_of(view->devices.begin(), view->devices.end(), [&](const SpaceDevice& device) {
        // One whose DAX devices cannot be listed: its first, empty one is missing.
        return !device.unfit.empty() && !(windows_.contains(device.name) && device.pieces_known);
      })) {
    return;
  }
  prepared_ = now;
  if (absl::Status status = space_->Prepare(); !status.ok()) {
    LogWarning(kSubject, "devices that are unfit stay so: ", status.message());
  }
}

// A window that could not be opened leaves the device unfit until it can. One through which nothing
// can be loaded is opened anew: its DAX device was unbound, or is another one by now.
absl::StatusOr<SpaceView> SharedMachine::LookAtMarks() {
  absl::StatusOr<SpaceView> view = space_->Look();
  if (!view.ok()) return view.status();
  bool opened = false;
  for (SpaceDevice& device : view->devices) {
    const auto window = windows_.find(device.name);
    if (window != windows_.end()) {
      if (ReadAgain(window->second) || CXLPOOL_MUTANT("windows-are-opened-once")) continue;
      ::munmap(window->second.at, window->second.size);
      windows_.erase(window);
    }
    if (!device.unfit.empty()) continue;
    if (absl::Status status = OpenWindow(device); !status.ok()) {
      device.unfit = std::string(status.message());
    } else {
      opened = true;
    }
  }
  if (!opened) return view;
  absl::StatusOr<SpaceView> again = space_->Look();  // With the windows' pieces.
  if (again.ok()) again->devices = std::move(view->devices);
  return again;
}

absl::Status SharedMachine::OpenWindow(const SpaceDevice& device) {
  absl::Status status = space_->Carve(device.name, 0, device.align_bytes);
  if (!status.ok()) return status;
  const auto piece = LookForPiece(device.name, 0, device.align_bytes);
  if (!piece.ok()) return piece.status();
  if (status = space_->Bind(*piece, DaxDriver::kDeviceDax); !status.ok()) return status;
  auto open = space_->Open(*piece, false);
  if (!open.ok()) return open.status();
  Window window{.size = device.align_bytes};
  window.at = ::mmap(nullptr, window.size, PROT_READ | PROT_WRITE, MAP_SHARED, open->fd.get(),
                     static_cast<off_t>(open->offset_bytes));
  if (window.at == MAP_FAILED) {
    return Refuse(absl::StatusCode::kInternal, "DAX_OPEN",
                  absl::StrCat(piece->dax, " cannot be mapped: ", std::strerror(errno)),
                  "look at the kernel's log");
  }
  ReadAgain(window);
  windows_.emplace(device.name, std::move(window));
  return absl::OkStatus();
}

// False: a load ended in a bus error.
bool SharedMachine::ReadAgain(Window& window) {
  FlushBytes(static_cast<char*>(window.at), kMarkBytes, 0);
  alignas(uint64_t) char bytes[kMarkBytes];
  if (WithoutBusError([&] { std::memcpy(bytes, window.at, kMarkBytes); })) {
    window.mark = ReadMark(bytes);
    return true;
  }
  window.mark =
      Refuse(absl::StatusCode::kDataLoss, "MARK_DAMAGED",
             "the bytes of the device's mark are lost: a load of them fails",
             "see that device's health; its Regions can still be read, and are released once "
             "the mark can be read again, or this host was rebooted");
  return false;
}

absl::StatusOr<SpaceDevice> SharedMachine::FindMarked(const SpaceView& view,
                                                      const std::string& mark,
                                                      const std::string& device) {
  std::string damaged;
  for (const SpaceDevice& each : view.devices) {
    const auto window = windows_.find(each.name);
    if (window == windows_.end()) continue;
    if (!window->second.mark.ok()) {
      damaged = absl::StrCat("; ", each.name, ": ", window->second.mark.status().message());
      continue;
    }
    const std::optional<v1::DeviceMark>& there = *window->second.mark;
    const bool is_it =
        there.has_value() && (there->id() == mark || CXLPOOL_MUTANT("any-mark-will-do"));
    if (!is_it) continue;
    if (there->device() == device) return each;
    return FailedPrecondition(
        "MARK_WRONG",
        absl::StrCat(each.name, " is device \"", there->device(), "\", not \"", device, "\""),
        "look at the devices again");
  }
  return Refuse(
      absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
      absl::StrCat("no device of this host has the mark of device \"", device, "\"", damaged),
      "see `cxlpool device discover`", {{"device", device}});
}

// The agent's windows and what it works on.
bool SharedMachine::IsOwn(const SpacePiece& piece, const SpaceView& view) const {
  const std::optional<WorkRange>& work = table_.work();
  if (work.has_value() && work->device == piece.device &&
      work->offset_bytes == piece.offset_bytes && work->length_bytes == piece.length_bytes) {
    return true;
  }
  return std::any_of(view.devices.begin(), view.devices.end(), [&](const SpaceDevice& device) {
    return device.name == piece.device && piece.offset_bytes == 0 &&
           piece.length_bytes == device.align_bytes;
  });
}

absl::Status SharedMachine::CheckFree(const SpaceView& view, const std::string& name,
                                      uint64_t offset_bytes, uint64_t length_bytes) {
  const auto taken = [&](absl::string_view by) {
    return FailedPrecondition(
        "RANGE_TAKEN", absl::StrCat(by, " has some of ", TextOf(name, offset_bytes, length_bytes)),
        "find out whose it is: what the pool did not make it leaves alone");
  };
  MutexLock lock(mutex_);
  for (const Granted& granted : table_.all()) {
    if (granted.name == name &&
        Overlap(granted.offset_bytes, granted.grant.length_bytes(), offset_bytes, length_bytes)) {
      return taken(absl::StrFormat("the grant in slot %u", granted.grant.slot()));
    }
  }
  for (const SpacePiece& piece : view.pieces) {
    if (piece.device == name && !IsOwn(piece, view) &&
        Overlap(piece.offset_bytes, piece.length_bytes, offset_bytes, length_bytes)) {
      return taken(absl::StrCat("DAX device ", piece.dax));
    }
  }
  return absl::OkStatus();
}

// --- Bytes.

absl::Status SharedMachine::WithOpen(const SpacePiece& piece, const UseOpen& use) {
  if (absl::Status status = space_->Bind(piece, DaxDriver::kDeviceDax); !status.ok()) {
    return status;
  }
  absl::Status used;
  {
    const auto open = space_->Open(piece, false);
    if (!open.ok()) return open.status();
    used = use(*open, piece.length_bytes);
  }
  const absl::Status unbound = space_->Unbind(piece);
  return used.ok() ? unbound : used;
}

SharedMachine::UseOpen SharedMachine::OnBytes(UseBytes use) {
  return [use = std::move(use)](const OpenPiece& open, size_t size) -> absl::Status {
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, open.fd.get(),
                      static_cast<off_t>(open.offset_bytes));
    if (at == MAP_FAILED) {
      return Refuse(absl::StatusCode::kInternal, "DAX_OPEN",
                    absl::StrCat("the DAX device cannot be mapped: ", std::strerror(errno)),
                    "look at the kernel's log");
    }
    absl::Status used = use(static_cast<char*>(at), size);
    ::munmap(at, size);
    return used;
  };
}

// As the memory has it, and not this host's caches.
bool SharedMachine::IsZeroInMemory(char* bytes, size_t size, uint64_t offset_bytes,
                                   uint64_t& lost) {
  if (!CXLPOOL_MUTANT("check-in-the-cache")) FlushBytes(bytes, size, offset_bytes);
  bool zero = true;
  lost = Touch(bytes, size, [&](char* at, size_t length) { zero = zero && IsZero(at, length); });
  return zero;
}

// How many bytes answered with a bus error. Where bytes are lost there is no line to flush: the
// kernel takes their pages out of every mapping.
uint64_t SharedMachine::FlushBytes(char* bytes, size_t size, uint64_t offset_bytes) {
  return Touch(bytes, size, [&](char* at, size_t length) {
    space_->Flush(at, length, offset_bytes + static_cast<uint64_t>(at - bytes));
  });
}

// In large steps, and where one fails page by page.
uint64_t SharedMachine::Touch(char* bytes, size_t size,
                              const std::function<void(char*, size_t)>& touch) {
  uint64_t lost = 0;
  for (size_t at = 0; at < size; at += kTouchStep) {
    const size_t step = std::min(kTouchStep, size - at);
    if (WithoutBusError([&] { touch(bytes + at, step); })) continue;
    for (size_t page = 0; page < step; page += kPage) {
      if (!WithoutBusError([&] { touch(bytes + at + page, kPage); })) lost += kPage;
    }
  }
  return lost;
}

absl::Status SharedMachine::FlushPiece(const SpacePiece& piece) {
  return WithOpen(piece, FlushOf(piece.device, piece.offset_bytes));
}

// Every page of a mapping also answers with a bus error once device_dax has been unbound under it,
// and then nothing was flushed. Lost are only bytes of a DAX device that is still there, and bound.
SharedMachine::UseOpen SharedMachine::FlushOf(const std::string& device, uint64_t offset_bytes) {
  return OnBytes([this, device, offset_bytes](char* bytes, size_t size) -> absl::Status {
    const uint64_t failed = FlushBytes(bytes, size, offset_bytes);
    if (failed == 0 || CXLPOOL_MUTANT("unmapped-is-flushed")) return absl::OkStatus();
    const auto piece = LookForPiece(device, offset_bytes, size);
    if (piece.ok() && piece->driver == DaxDriver::kDeviceDax) return absl::OkStatus();
    return Refuse(absl::StatusCode::kUnavailable, "FLUSH_CUT_OFF",
                  absl::StrCat("the DAX device of ", TextOf(device, offset_bytes, size),
                               " was unbound while the caches were flushed through it"),
                  "find who unbinds DAX devices on this host; the flush is tried again");
  });
}

// Written down before it is made, so that the next agent knows whose the DAX device was.
absl::Status SharedMachine::OnWorkPiece(const WorkRange& range, const UseOpen& use) {
  if (absl::Status status = EndWork(); !status.ok()) return status;
  {
    MutexLock lock(mutex_);
    if (absl::Status status = table_.SetWork(range); !status.ok()) return status;
  }
  absl::Status done = space_->Carve(range.device, range.offset_bytes, range.length_bytes);
  if (done.ok()) {
    const auto piece = LookForPiece(range.device, range.offset_bytes, range.length_bytes);
    done = piece.ok() ? WithOpen(*piece, use) : piece.status();
  }
  const absl::Status ended = EndWork();
  return done.ok() ? ended : done;
}

absl::Status SharedMachine::EndWork() {
  std::optional<WorkRange> work;
  {
    MutexLock lock(mutex_);
    work = table_.work();
  }
  if (!work.has_value()) return absl::OkStatus();
  const auto piece = LookForPiece(work->device, work->offset_bytes, work->length_bytes);
  // A device that has gone must not keep all others from being worked on. If this DAX device is
  // still there when the device comes back, it is shown as foreign, and holds its bytes.
  const bool unseen = ReasonOf(piece.status()) == "DEVICE_GONE";
  if (unseen) LogWarning(kSubject, "what was left of a task: ", piece.status().message());
  if (!piece.ok() && !absl::IsNotFound(piece.status()) && !unseen) return piece.status();
  if (piece.ok()) {
    absl::Status status = space_->Unbind(*piece);
    if (status.ok()) status = space_->Uncarve(*piece);
    if (!status.ok()) {
      LogWarning(kSubject, "cannot take ", piece->dax, " away: ", status.message());
      return status;
    }
  }
  MutexLock lock(mutex_);
  return table_.SetWork(std::nullopt);
}

// What an earlier look showed is looked at again before it is answered: names of DAX devices are
// given to others. "There is none" is said only after a look that saw all of the device.
absl::StatusOr<SpacePiece> SharedMachine::LookForPiece(const std::string& name,
                                                       uint64_t offset_bytes,
                                                       uint64_t length_bytes) {
  SpacePiece before;
  {
    MutexLock lock(mutex_);
    if (const SpacePiece* found = seen_.Find(name, offset_bytes, length_bytes)) before = *found;
  }
  if (!before.dax.empty()) {
    if (const std::optional<SpacePiece> now = space_->LookAgain(before)) return *now;
  }
  absl::StatusOr<SpaceView> view = space_->Look();
  if (!view.ok()) return view.status();
  MutexLock lock(mutex_);
  seen_ = *std::move(view);
  const SpacePiece* piece = seen_.Find(name, offset_bytes, length_bytes);
  if (piece != nullptr) return *piece;
  const auto device = std::find_if(seen_.devices.begin(), seen_.devices.end(),
                                   [&](const SpaceDevice& each) { return each.name == name; });
  const bool known = device != seen_.devices.end() && device->pieces_known;
  if (!known && !CXLPOOL_MUTANT("unseen-device-has-nothing")) {
    return FailedPrecondition(
        "DEVICE_GONE",
        absl::StrCat("this agent does not see all of device ", name,
                     " now, and cannot say whether there is a DAX device of ",
                     TextOf(name, offset_bytes, length_bytes)),
        "have `daxctl list -R` show the device again, see that [shared] devices in agent.toml "
        "names it, and restart the agent; a reboot of this host ends what it had there, too");
  }
  return Refuse(
      absl::StatusCode::kNotFound, "NO_DAX_DEVICE",
      absl::StrCat("there is no DAX device of ", TextOf(name, offset_bytes, length_bytes)),
      "make it first");
}

// Whether all that the pool may give away is zero; false also where that takes too long to say.
bool SharedMachine::IsAllZero(const SpaceDevice& device, const v1::DeviceMark& mark) {
  const SystemClock clock;
  const absl::Duration end = clock.Elapsed() + zero_patience_;
  for (uint64_t at = mark.reserved_bytes(); at < device.size_bytes; at += kZeroStep) {
    if (clock.Elapsed() > end) return false;
    const uint64_t length = std::min(kZeroStep, device.size_bytes - at);
    bool zero = false;
    const auto look = [&](const OpenPiece& open, size_t size) -> absl::Status {
      if (zero = IsHole(open, size); zero) return absl::OkStatus();
      return OnBytes([&](char* bytes, size_t mapped) {
        uint64_t lost = 0;
        zero = IsZeroInMemory(bytes, mapped, at, lost) && lost == 0;
        return absl::OkStatus();
      })(open, size);
    };
    const absl::Status looked = OnWorkPiece({device.name, at, length}, look);
    if (!looked.ok() || !zero) return false;
  }
  return true;
}

std::optional<Granted> SharedMachine::FindGranted(uint64_t serial) {
  MutexLock lock(mutex_);
  const Granted* granted = table_.FindSerial(serial);
  if (granted == nullptr) return std::nullopt;
  return *granted;
}

}  // namespace cxlpool::agent
