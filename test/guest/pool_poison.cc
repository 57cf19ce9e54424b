// pool-poison: loses bytes of its own maps by the kernel's true way, and says what libpool makes of
// it.
//
//   pool-poison REGION OTHER
//
// Maps both, and poisons units (2 MiB, one page of a DAX device) of REGION by
// madvise(MADV_HWPOISON), for which it needs CAP_SYS_ADMIN. The kernel then raises a SIGBUS
// (BUS_MCEERR_AR) in the thread that asked, once; the memory itself is sound, and later loads find
// what was there. So the poison has to come in the midst of a copy: the copy's other end is memory
// that may not be touched, and the handler of that SIGSEGV poisons.
//
// Says, one a line, "STEP ok", or the error's reason and the range that is lost: "get DATA_LOST
// 2097152 2097152". Of the program's own handler of SIGBUS, which was there before libpool's: how
// often it was called, and the code of the last signal. Exit: 0 whatever was lost, 1 a load that
// nobody poisoned met SIGSEGV, 2 usage, 3 the pool or the kernel refused.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"
#include "libpool/examples/pattern.h"

namespace cxlpool {
namespace {

constexpr char kProgram[] = "pool-poison";
constexpr size_t kUnit = size_t{2} << 20;
constexpr size_t kUnits = 8;  // That have a pattern.
constexpr size_t kPage = 4096;

// What the handlers know.
std::byte* g_poison = nullptr;           // To be poisoned at the next SIGSEGV.
std::span<std::byte> g_untouchable;      // That the SIGSEGV is of.
volatile std::sig_atomic_t g_calls = 0;  // Of the program's own handler.
volatile std::sig_atomic_t g_code = 0;

void PoisonOrDie(std::byte* address) {
  if (::madvise(address, kPage, MADV_HWPOISON) == 0) return;
  std::fprintf(stderr, "%s: madvise: %s\n", kProgram, std::strerror(errno));
  ::_exit(examples::kRefused);
}

void OnSegv(int) {
  if (g_poison == nullptr) ::_exit(examples::kMismatch);
  std::byte* const poison = std::exchange(g_poison, nullptr);
  ::mprotect(g_untouchable.data(), g_untouchable.size(), PROT_READ | PROT_WRITE);
  PoisonOrDie(poison);  // Left here, where the copy is guarded.
}

// The program's own. A page that went with its file is replaced, so that the load comes back.
void OnBusError(int, siginfo_t* info, void*) {
  g_calls = g_calls + 1;
  g_code = info->si_code;
  if (info->si_code != BUS_ADRERR) return;
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(info->si_addr) & -kPage);
  ::mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void Handle(int signal, void (*handler)(int), void (*with_info)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_flags = SA_NODEFER | (with_info != nullptr ? SA_SIGINFO : 0);
  if (with_info != nullptr) {
    action.sa_sigaction = with_info;
  } else {
    action.sa_handler = handler;
  }
  ::sigaction(signal, &action, nullptr);
}

void Say(const char* step, int code, const cxlpool_lost& lost, const cxlpool_error& error) {
  if (code == 0) {
    std::printf("%s ok\n", step);
  } else {
    std::printf("%s %s %" PRIu64 " %" PRIu64 "\n", step, error.reason, lost.region_offset_bytes,
                lost.length_bytes);
  }
}

void SayHandler(const char* step) {
  std::printf("%s %d calls, code %d\n", step, static_cast<int>(g_calls), static_cast<int>(g_code));
}

// The copies and guards of one map.
class Trial {
 public:
  Trial(const Mapping& mapping, std::span<std::byte> memory)
      : map_(mapping.handle()), begin_(mapping.data()), memory_(memory) {}

  std::byte* unit(size_t index) const { return begin_ + index * kUnit; }

  // Stores the pattern into all units that have one.
  void Fill() {
    for (size_t index = 0; index < kUnits; ++index) Put("fill", index, nullptr, index == 0);
  }

  // Puts a unit; `poison`, if any, is lost meanwhile.
  void Put(const char* step, size_t index, std::byte* poison, bool says = true) {
    examples::FillPattern(memory_, index);
    Expect(poison);
    const int code = cxlpool_put(map_, index * kUnit, memory_.data(), kUnit, &lost_, &error_);
    if (says || code != 0) Say(step, code, lost_, error_);
  }

  // Gets a unit and sees whether it is as it was filled.
  void Get(const char* step, size_t index, std::byte* poison) {
    std::memset(memory_.data(), 0, memory_.size());
    Expect(poison);
    const int code = cxlpool_get(map_, index * kUnit, memory_.data(), kUnit, &lost_, &error_);
    if (code == 0 && examples::VerifyPattern(memory_, index).words != 0) {
      std::printf("%s other bytes\n", step);
    } else {
      Say(step, code, lost_, error_);
    }
  }

  // A unit is lost under a guard of the program's own.
  void Guard(const char* step, size_t index) {
    const int code = cxlpool_guard(
        map_, [](void* address) { PoisonOrDie(static_cast<std::byte*>(address)); }, unit(index),
        &lost_, &error_);
    Say(step, code, lost_, error_);
  }

 private:
  void Expect(std::byte* poison) {
    lost_ = CXLPOOL_LOST_INIT;
    error_ = CXLPOOL_ERROR_INIT;
    g_poison = poison;
    g_untouchable = memory_;
    if (poison != nullptr) ::mprotect(memory_.data(), memory_.size(), PROT_NONE);
  }

  const cxlpool_map* const map_;
  std::byte* const begin_;
  const std::span<std::byte> memory_;  // One unit of the process's own.
  cxlpool_lost lost_ = CXLPOOL_LOST_INIT;
  cxlpool_error error_ = CXLPOOL_ERROR_INIT;
};

// A load of a file's page that was truncated away.
bool LoadBehindTheEnd() {
  const int fd = ::memfd_create(kProgram, MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, kPage) != 0) return false;
  void* const page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED || ::ftruncate(fd, 0) != 0) return false;
  return *static_cast<volatile char*>(page) == 0;
}

int Run(const char* name, const char* other_name) {
  auto client = Pool::Connect();
  if (!client.ok()) return examples::Refuse(kProgram, client.error());
  auto region = client->Open(name);
  if (!region.ok()) return examples::Refuse(kProgram, region.error());
  auto other_region = client->Open(other_name);
  if (!other_region.ok()) return examples::Refuse(kProgram, other_region.error());
  auto mapping = region->Map();
  if (!mapping.ok()) return examples::Refuse(kProgram, mapping.error());
  auto other_mapping = other_region->Map();
  if (!other_mapping.ok()) return examples::Refuse(kProgram, other_mapping.error());
  void* const memory =
      ::mmap(nullptr, kUnit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return examples::kRefused;

  Handle(SIGBUS, nullptr, OnBusError);
  Handle(SIGSEGV, OnSegv, nullptr);
  Trial trial(*mapping, {static_cast<std::byte*>(memory), kUnit});
  Trial other(*other_mapping, {static_cast<std::byte*>(memory), kUnit});
  trial.Fill();
  other.Fill();
  trial.Get("get", 1, trial.unit(1));
  trial.Put("put", 2, trial.unit(2));
  trial.Guard("guard", 3);
  // Whom it does not concern.
  trial.Get("next-get", 4, nullptr);
  trial.Put("next-put", 5, nullptr);
  other.Get("other-get", 1, nullptr);
  // A copy of the other Region goes on, for what is lost is not of its map.
  SayHandler("own-handler");
  other.Get("other-meanwhile", 1, trial.unit(6));
  SayHandler("own-handler-lost");
  if (!LoadBehindTheEnd()) return examples::kRefused;
  SayHandler("own-handler-truncated");
  return examples::kOk;
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s REGION OTHER\n", kProgram);
    return examples::kUsage;
  }
  return Run(argv[1], argv[2]);
}

}  // namespace
}  // namespace cxlpool

int main(int argc, char** argv) { return cxlpool::Main(argc, argv); }
