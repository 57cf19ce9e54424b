#include "host-agent/adapters/linux/cxl/libcxl_context.h"

#include <cstdarg>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

void KeepComplaint(cxl_ctx* context, int /*priority*/, const char* /*file*/, int /*line*/,
                   const char* /*function*/, const char* format, va_list arguments) {
  char text[512];
  vsnprintf(text, sizeof text, format, arguments);
  auto* complaint = static_cast<std::string*>(cxl_get_userdata(context));
  if (complaint == nullptr) return;
  complaint->assign(text);
  absl::StripTrailingAsciiWhitespace(complaint);
}

absl::Status CannotStart(absl::string_view library, int error) {
  return Refuse(absl::StatusCode::kInternal, "LIBCXL",
                absl::StrCat(library, " does not start: ", ErrnoText(-error)),
                "check the host's free memory and open files");
}

}  // namespace

absl::StatusOr<CxlContext> CxlContext::Open() {
  CxlContext opened;
  cxl_ctx* context = nullptr;
  if (const int error = cxl_new(&context); error < 0) return CannotStart("libcxl", error);
  opened.context_.reset(context);
  cxl_set_userdata(context, opened.complaint_.get());
  cxl_set_log_fn(context, &KeepComplaint);
  return opened;
}

}  // namespace cxlpool::agent
