// A tree of files in a temporary folder that looks like a host's sysfs and procfs, removed with
// the object.
#ifndef CXLPOOL_TEST_RIGS_FAKE_HOST_FOR_TEST_H_
#define CXLPOOL_TEST_RIGS_FAKE_HOST_FOR_TEST_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

class FakeHost {
 public:
  FakeHost() : root_(MakeRoot()), files_(root_.string()) {}
  ~FakeHost() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  const HostFiles& files() const { return files_; }
  std::string Path(const std::string& path) const { return (root_ / path).string(); }

  void Put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }
  void Folder(const std::string& path) const { std::filesystem::create_directories(root_ / path); }
  // A link at `path` to `target`, which is below the root too and need not exist.
  void Link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_symlink(root_ / target, root_ / path);
  }

 private:
  static std::filesystem::path MakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "cxlpool-host-XXXXXX").string();
    return mkdtemp(name.data());
  }

  std::filesystem::path root_;
  HostFiles files_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_FAKE_HOST_FOR_TEST_H_
