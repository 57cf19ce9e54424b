// What a call inside libpool answers: OK, or why not in the words of docs/errors.md.
//
// libpool links into other people's programs, so it has neither Abseil's nor protobuf's types, in
// its interface or within (ADR 32). This is as much of absl::Status as it needs.
#ifndef CXLPOOL_LIBPOOL_SRC_STATUS_H_
#define CXLPOOL_LIBPOOL_SRC_STATUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace cxlpool::libpool {

// google.rpc.Code, as in local.proto.
enum class Code : int32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// What went wrong, for programs (code, reason, sys_errno) and for people (message, remedy).
struct Failure {
  Code code = Code::kUnknown;
  std::string reason = {};   // UPPER_SNAKE; "": none was given.
  std::string message = {};  // Without the remedy.
  std::string remedy = {};   // One imperative sentence, or "".
  int sys_errno = 0;         // Of the system call that failed; 0: none did.
};

// OK is a null pointer. Copies share the Failure, which does not change.
class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(Failure failure)
      : failure_(std::make_shared<const Failure>(std::move(failure))) {}

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return ok() ? Code::kOk : failure_->code; }
  std::string_view reason() const { return ok() ? std::string_view() : failure_->reason; }
  // Only where it is not OK.
  const Failure& failure() const { return *failure_; }

 private:
  std::shared_ptr<const Failure> failure_;
};

// A value, or a Status that is not OK.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : result_(std::move(status)) {}
  StatusOr(T value) : result_(std::move(value)) {}

  bool ok() const { return result_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<0>(result_); }
  T& operator*() & { return std::get<1>(result_); }
  const T& operator*() const& { return std::get<1>(result_); }
  T&& operator*() && { return std::get<1>(std::move(result_)); }
  T* operator->() { return &std::get<1>(result_); }
  const T* operator->() const { return &std::get<1>(result_); }

 private:
  std::variant<Status, T> result_;
};

Status Refuse(Code code, std::string reason, std::string message, std::string remedy);

// The same for a system call that failed: `message` gets ": EACCES, permission denied".
Status ErrnoError(Code code, std::string reason, std::string message, std::string remedy,
                  int error);

// INVALID_ARGUMENT/BAD_ARGUMENT.
Status BadArgument(std::string message, std::string remedy);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_STATUS_H_
