// Reports of lost bytes, and of sizes that change: cxlpool_fault_watch_start of cxlpool.h, in
// C++20.
#ifndef CXLPOOL_POOL_FAULTS_H_
#define CXLPOOL_POOL_FAULTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cxlpool/cxlpool.h"
#include "cxlpool/pool.h"

namespace cxlpool {
inline namespace CXLPOOL_EXCEPTIONS {

// As cxlpool_fault.
struct Fault {
  std::string name = {};
  std::string tag = {};
  uint64_t region_offset_bytes = 0;
  uint64_t length_bytes = 0;
  std::string message = {};
};

// As cxlpool_region_size.
struct RegionSize {
  std::string name = {};
  std::string tag = {};
  uint64_t size_bytes = 0;
};

// Reports lost bytes and sizes until it is destroyed, which waits for a call that is under way.
// The functions are called from a thread of the watch's own, one call at a time; they must not
// throw, and must not destroy the watch. One of them may be empty.
class FaultWatch {
 public:
  static Result<FaultWatch> Start(const ConnectOptions& options,
                                  std::function<void(const Fault&)> on_fault,
                                  std::function<void(const RegionSize&)> on_size = {}) {
    const cxlpool_connect_options c = {sizeof c, options.socket_path.c_str(),
                                       internal::Milliseconds(options.timeout)};
    auto running = std::make_unique<Running>();
    running->on_fault = std::move(on_fault);
    running->on_size = std::move(on_size);
    const cxlpool_fault_watch_options calls = {
        sizeof calls, running->on_fault == nullptr ? nullptr : &Running::DeliverFault,
        running->on_size == nullptr ? nullptr : &Running::DeliverSize, running.get()};
    internal::ErrorOut error;
    if (cxlpool_fault_watch_start(&c, &calls, &running->watch, error.out()) != 0) {
      return error.Take();
    }
    return FaultWatch(std::move(running));
  }

  // cxlpool_fault_watch_check.
  Result<void> Check() const {
    internal::ErrorOut error;
    if (cxlpool_fault_watch_check(running_->watch, error.out()) != 0) return error.Take();
    return {};
  }

 private:
  // At one address for as long as the watch runs.
  struct Running {
    std::function<void(const Fault&)> on_fault;
    std::function<void(const RegionSize&)> on_size;
    cxlpool_fault_watch* watch = nullptr;
    ~Running() { cxlpool_fault_watch_stop(watch); }

    static void DeliverFault(const cxlpool_fault* fault, void* context) noexcept {
      static_cast<Running*>(context)->on_fault({.name = fault->name,
                                                .tag = fault->tag,
                                                .region_offset_bytes = fault->region_offset_bytes,
                                                .length_bytes = fault->length_bytes,
                                                .message = fault->message});
    }
    static void DeliverSize(const cxlpool_region_size* now, void* context) noexcept {
      static_cast<Running*>(context)->on_size(
          {.name = now->name, .tag = now->tag, .size_bytes = now->size_bytes});
    }
  };
  explicit FaultWatch(std::unique_ptr<Running> running) : running_(std::move(running)) {}

  std::unique_ptr<Running> running_;
};

}  // namespace CXLPOOL_EXCEPTIONS
}  // namespace cxlpool

#endif  // CXLPOOL_POOL_FAULTS_H_
