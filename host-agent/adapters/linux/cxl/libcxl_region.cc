#include "host-agent/adapters/linux/cxl/libcxl_region.h"

#include <cxl/libcxl.h>

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// Owns a libcxl context. What the library writes to its log goes neither to stderr nor to our log:
// the last line is kept for the error that a caller then returns.
//
// A context caches what it has read: open a new one to see what the kernel has now. Not
// thread-safe; contexts are independent of each other.
class CxlContext {
 public:
  // INTERNAL/LIBCXL: no memory, or the library cannot start.
  static absl::StatusOr<CxlContext> Open() {
    CxlContext opened;
    cxl_ctx* context = nullptr;
    if (const int error = cxl_new(&context); error < 0) {
      return Refuse(absl::StatusCode::kInternal, "LIBCXL",
                    absl::StrCat("libcxl does not start: ", ErrnoText(-error)),
                    "check the host's free memory and open files");
    }
    opened.context_.reset(context);
    cxl_set_userdata(context, opened.complaint_.get());
    cxl_set_log_fn(context, &KeepComplaint);
    return opened;
  }

  cxl_ctx* get() const { return context_.get(); }

  // The last thing libcxl complained about; "" if it did not.
  const std::string& complaint() const { return *complaint_; }

 private:
  CxlContext() : complaint_(std::make_unique<std::string>()) {}

  static void KeepComplaint(cxl_ctx* context, int /*priority*/, const char* /*file*/, int /*line*/,
                            const char* /*function*/, const char* format, va_list arguments) {
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    auto* complaint = static_cast<std::string*>(cxl_get_userdata(context));
    if (complaint == nullptr) return;
    complaint->assign(text);
    absl::StripTrailingAsciiWhitespace(complaint);
  }

  std::unique_ptr<std::string> complaint_;  // Outlives the context, which points to it.
  std::unique_ptr<cxl_ctx, void (*)(cxl_ctx*)> context_{nullptr, [](cxl_ctx* c) { cxl_unref(c); }};
};

cxl_region* FindByName(cxl_ctx* context, const std::string& name) {
  cxl_bus* bus = nullptr;
  cxl_bus_foreach(context, bus) {
    cxl_decoder* window = nullptr;
    cxl_decoder_foreach(cxl_bus_get_port(bus), window) {
      cxl_region* region = nullptr;
      cxl_region_foreach(window, region) {
        if (name == cxl_region_get_devname(region)) return region;
      }
    }
  }
  return nullptr;
}

}  // namespace

// Tries every step, whatever the ones before came to: some of them fail where they have nothing to
// do. The first error is kept for the message.
absl::Status TakeRegionAway(const HostFiles& files, const std::string& name) {
  absl::StatusOr<CxlContext> context = CxlContext::Open();
  if (!context.ok()) return context.status();
  cxl_region* const region = FindByName(context->get(), name);
  int error = 0;
  const auto keep = [&error](int result) { error = error == 0 && result < 0 ? result : error; };
  if (region != nullptr) {
    std::vector<cxl_decoder*> targets;
    const unsigned int ways = cxl_region_get_interleave_ways(region);
    const int positions = ways > kMaxInterleaveWays ? 0 : static_cast<int>(ways);
    for (int i = 0; i < positions; ++i) {
      cxl_decoder* const target = cxl_region_get_target_decoder(region, i);
      if (target != nullptr) targets.push_back(target);
    }
    keep(cxl_region_disable(region));
    if (cxl_region_decode_is_committed(region) == 1) keep(cxl_region_decode_reset(region));
    for (int i = 0; i < positions; ++i) cxl_region_clear_target(region, i);
    for (auto it = targets.rbegin(); it != targets.rend(); ++it) {
      keep(cxl_decoder_set_dpa_size(*it, 0));
    }
    keep(cxl_region_delete(region));
  }
  if (!files.Exists(absl::StrCat(kCxlDevices, "/", name))) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kInternal, "REGION_DESTROY",
      absl::StrCat("host region ", name,
                   " is still there: ", error < 0 ? ErrnoText(-error) : "no effect",
                   context->complaint().empty() ? "" : "; libcxl: ", context->complaint()),
      "look at the kernel's log for cxl messages; it is tried again");
}

}  // namespace cxlpool::agent
