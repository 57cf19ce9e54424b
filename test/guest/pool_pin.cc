// pool-pin: keeps memory of a host so that the kernel or the agent must deal with it.
//
//   pool-pin mlock NODE MIB               anonymous memory on the node, locked
//   pool-pin vmsplice NODE MIB            the same, not locked; four of its pages are in a pipe
//   pool-pin pipes NODE COUNT             so many pipes, full of pages of the kernel's own
//   pool-pin devdax [--ignore-signals] DEVICE   a mapping of a DAX device
//
// Says "pinned" when it does, then goes on until it is killed. At SIGUSR1 it looks at its memory
// and says "intact" or "damaged". Exit: 2 usage, 3 the kernel refused.
//
// What each means to an offlining kernel: locked pages can be moved; pages that a pipe refers to
// cannot for as long as it does, though their zone says so, and the kernel tries until a signal
// ends it; pages of the kernel's own make it refuse at once.
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"
#include "libpool/examples/pattern.h"

namespace cxlpool {
namespace {

constexpr char kProgram[] = "pool-pin";
constexpr uint64_t kSeed = 5;
constexpr size_t kPage = 4096;
constexpr size_t kDaxBytes = 2 << 20;  // The alignment of DAX devices: the least one can map.

int Refused(const char* what) {
  std::fprintf(stderr, "%s: %s: %s\n", kProgram, what, std::strerror(errno));
  return examples::kRefused;
}

void Say(const char* word) {
  std::printf("%s\n", word);
  std::fflush(stdout);
}

// Goes on until it is killed. Blocked signals are taken one at a time: no handler runs.
[[noreturn]] void Hold(std::span<const std::byte> bytes) {
  sigset_t look;
  sigemptyset(&look);
  sigaddset(&look, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &look, nullptr);
  Say("pinned");
  while (true) {
    if (::sigwaitinfo(&look, nullptr) != SIGUSR1) continue;
    Say(examples::VerifyPattern(bytes, kSeed).words == 0 ? "intact" : "damaged");
  }
}

int PinPages(std::string_view how, int node, size_t size) {
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return Refused("mmap");
  if (const auto bound = BindToNode(address, size, node); !bound.ok()) {
    return examples::Refuse(kProgram, bound.error());
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(address), size);
  examples::FillPattern(bytes, kSeed);
  if (how == "mlock") {
    if (::mlock(address, size) != 0) return Refused("mlock");
  } else {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) return Refused("pipe2");
    iovec some = {address, 4 * kPage};
    if (::vmsplice(pipe[1], &some, 1, 0) < 0) return Refused("vmsplice");
  }
  Hold(bytes);
}

int FillPipes(int node, size_t count) {
  if (node < 0 || node > 63) return examples::kUsage;
  const unsigned long nodes = 1UL << node;
  if (::syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 8 * sizeof(nodes)) != 0) {
    return Refused("set_mempolicy");
  }
  const char page[kPage] = {};
  for (size_t i = 0; i < count; ++i) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) return Refused("pipe2");
    while (::write(pipe[1], page, sizeof(page)) > 0) {
    }
  }
  Hold({});
}

int MapDevice(const char* path, bool ignore_signals) {
  if (ignore_signals) {
    for (int number = 1; number < SIGRTMIN; ++number) std::signal(number, SIG_IGN);
    std::signal(SIGUSR1, SIG_DFL);
  }
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return Refused(path);
  void* address = ::mmap(nullptr, kDaxBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return Refused("mmap");
  ::close(fd);  // The mapping alone keeps it.
  const std::span<std::byte> bytes(static_cast<std::byte*>(address), kDaxBytes);
  examples::FillPattern(bytes, kSeed);
  Hold(bytes);
}

int Main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  const auto number = [argv](int i) { return std::strtoul(argv[i], nullptr, 10); };
  if (how == "devdax" && argc == 3) return MapDevice(argv[2], false);
  if (how == "devdax" && argc == 4 && argv[2] == std::string_view("--ignore-signals")) {
    return MapDevice(argv[3], true);
  }
  if (argc == 4 && number(3) > 0) {
    const int node = static_cast<int>(number(2));
    if (how == "mlock" || how == "vmsplice") return PinPages(how, node, number(3) << 20);
    if (how == "pipes") return FillPipes(node, number(3));
  }
  std::fprintf(stderr,
               "usage: %s mlock|vmsplice NODE MIB | pipes NODE COUNT | devdax [--ignore-signals] "
               "DEVICE\n",
               kProgram);
  return examples::kUsage;
}

}  // namespace
}  // namespace cxlpool

int main(int argc, char** argv) { return cxlpool::Main(argc, argv); }
