// Copies in the background, for programs in C++20: a copier, and the copies that are under way.
// Header-only, on pool.h.
//
//   auto copier = cxlpool::Copier::Start().value();
//   cxlpool::Copy next = copier.GetAsync(mapping, offset, buffer).value();
//   Compute(current);
//   if (auto got = next.Wait(std::chrono::seconds(10)); !got.ok()) return got.error();
//
// What calls do, which errors they give, and what threads may do stands in cxlpool.h, "Copies".
// Objects are moved, not copied; a moved-from one may only be assigned to or destroyed.
#ifndef CXLPOOL_COPIER_H_
#define CXLPOOL_COPIER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "cxlpool/cxlpool.h"
#include "cxlpool/pool.h"

namespace cxlpool {
inline namespace CXLPOOL_EXCEPTIONS {

// As cxlpool_copier_options.
struct CopierOptions {
  uint32_t threads = 1;
  uint32_t max_waiting = CXLPOOL_MAX_WAITING_COPIES;
};

// As cxlpool_copy_options.
struct CopyOptions {
  int32_t priority = 0;
  int eventfd = -1;
  // Called once, with how the copy ended, by a thread of the copier. It must not throw, and must
  // not wait for other copies nor destroy them.
  std::function<void(const Result<void>&)> on_copied = nullptr;
};

// A copy that was submitted. Destroying it cancels it if it has not ended, and waits, for about as
// long as a MiB takes, until its memory is touched no more.
class Copy {
 public:
  // cxlpool_op_wait: how it ended. A timeout of 0 or less only asks.
  Result<void> Wait(std::chrono::milliseconds timeout) const {
    const uint32_t timeout_ms = timeout.count() > 0 ? internal::Milliseconds(timeout) : 0;
    internal::ErrorOut error;
    if (cxlpool_op_wait(op_.get(), timeout_ms, nullptr, error.out()) != 0) {
      return error.Take();
    }
    return {};
  }
  bool Done() const { return cxlpool_op_done(op_.get()) != 0; }
  void Cancel() const { cxlpool_op_cancel(op_.get()); }

 private:
  friend class Copier;
  struct Free {
    void operator()(cxlpool_op* op) const { cxlpool_op_free(op); }
  };
  explicit Copy(cxlpool_op* op) : op_(op) {}

  std::unique_ptr<cxlpool_op, Free> op_;
};

// Threads that copy. Destroying it cancels what has not ended. const functions: any thread.
class Copier {
 public:
  static Result<Copier> Start(const CopierOptions& options = {}) {
    const cxlpool_copier_options c = {sizeof c, options.threads, options.max_waiting};
    internal::ErrorOut error;
    cxlpool_copier* copier = nullptr;
    if (cxlpool_copier_start(&c, &copier, error.out()) != 0) return error.Take();
    return Copier(copier);
  }

  // The memory has to stay until the Copy has ended. The Mapping may go.
  Result<Copy> PutAsync(const Mapping& mapping, uint64_t offset, std::span<const std::byte> from,
                        CopyOptions options = {}) const {
    return Submit(std::move(options), [&](auto* c, cxlpool_op** op, cxlpool_error* error) {
      return cxlpool_put_async(copier_.get(), mapping.handle(), offset, from.data(), from.size(), c,
                               op, error);
    });
  }
  Result<Copy> GetAsync(const Mapping& mapping, uint64_t offset, std::span<std::byte> into,
                        CopyOptions options = {}) const {
    return Submit(std::move(options), [&](auto* c, cxlpool_op** op, cxlpool_error* error) {
      return cxlpool_get_async(copier_.get(), mapping.handle(), offset, into.data(), into.size(), c,
                               op, error);
    });
  }
  Result<Copy> PrefetchAsync(const Mapping& mapping, uint64_t offset, size_t bytes,
                             CopyOptions options = {}) const {
    return Submit(std::move(options), [&](auto* c, cxlpool_op** op, cxlpool_error* error) {
      return cxlpool_prefetch_async(copier_.get(), mapping.handle(), offset, bytes, c, op, error);
    });
  }

 private:
  using OnCopied = std::function<void(const Result<void>&)>;
  struct Stop {
    void operator()(cxlpool_copier* copier) const { cxlpool_copier_stop(copier); }
  };
  explicit Copier(cxlpool_copier* copier) : copier_(copier) {}

  // The function lives until it was called, which is once.
  static void Call(const cxlpool_error* error, void* context) noexcept {
    const std::unique_ptr<OnCopied> on_copied(static_cast<OnCopied*>(context));
    if (error == nullptr) return (*on_copied)({});
    (*on_copied)(internal::ErrorOut(*error).Take());
  }

  template <typename SubmitCall>
  static Result<Copy> Submit(CopyOptions options, const SubmitCall& call) {
    cxlpool_copy_options c = CXLPOOL_COPY_OPTIONS_INIT;
    c.priority = options.priority;
    c.eventfd = options.eventfd;
    std::unique_ptr<OnCopied> on_copied;
    if (options.on_copied != nullptr) {
      on_copied = std::make_unique<OnCopied>(std::move(options.on_copied));
      c.on_copied = &Copier::Call;
      c.context = on_copied.get();
    }
    internal::ErrorOut error;
    cxlpool_op* op = nullptr;
    if (call(&c, &op, error.out()) != 0) return error.Take();
    on_copied.release();  // It is the call's from now on.
    return Copy(op);
  }

  std::unique_ptr<cxlpool_copier, Stop> copier_;
};

}  // namespace CXLPOOL_EXCEPTIONS
}  // namespace cxlpool

#endif  // CXLPOOL_COPIER_H_
