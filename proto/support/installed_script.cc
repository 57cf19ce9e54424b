#include "proto/support/installed_script.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool {

absl::Status BecomeScript(const std::string& name, std::vector<std::string> words) {
  char self[PATH_MAX] = {};
  std::string script;
  if (::readlink("/proc/self/exe", self, sizeof(self) - 1) > 0) {
    const std::string path = self;
    script = absl::StrCat(path.substr(0, path.rfind('/')), "/../libexec/cxlpool/", name);
    std::vector<char*> argv = {script.data()};
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(script.c_str(), argv.data());
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_INSTALLED",
                absl::StrCat(name, " cannot be run: ", script, ": ", std::strerror(errno)),
                "install the package (docs/install.md), and run the program that it brings");
}

}  // namespace cxlpool
