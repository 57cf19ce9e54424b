#include "libpool/src/status.h"

#include <cctype>
#include <cstring>

namespace cxlpool::libpool {
namespace {

// "EACCES, permission denied".
std::string DescribeErrno(int error) {
  const char* const name = strerrorname_np(error);
  const char* const text = strerrordesc_np(error);
  if (name == nullptr || text == nullptr) return "error " + std::to_string(error);
  std::string described = std::string(name) + ", " + text;
  char& first = described[std::strlen(name) + 2];
  first = static_cast<char>(std::tolower(static_cast<unsigned char>(first)));
  return described;
}

}  // namespace

Status Refuse(Code code, std::string reason, std::string message, std::string remedy) {
  return Status({.code = code,
                 .reason = std::move(reason),
                 .message = std::move(message),
                 .remedy = std::move(remedy)});
}

Status ErrnoError(Code code, std::string reason, std::string message, std::string remedy,
                  int error) {
  return Status({.code = code,
                 .reason = std::move(reason),
                 .message = std::move(message) + ": " + DescribeErrno(error),
                 .remedy = std::move(remedy),
                 .sys_errno = error});
}

Status BadArgument(std::string message, std::string remedy) {
  return Refuse(Code::kInvalidArgument, "BAD_ARGUMENT", std::move(message), std::move(remedy));
}

}  // namespace cxlpool::libpool
