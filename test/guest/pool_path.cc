// pool-path: a program that knows nothing of pools, and opens a DAX device by its path.
//
//   pool-path PATH
//
// Says of each way to it "ok", or the error's name, one a line:
//   open-r    open O_RDONLY           map-r   loads of a map of that
//   map-rw    a writable map of that  reopen  O_RDWR of what /proc/self/fd shows of it
//   open-rw   open O_RDWR             store   stores to a map of that, loaded again
// Then says "held", and keeps what it has open until its standard input ends.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr size_t kBytes = size_t{2} << 20;
constexpr char kText[] = "stored by its path";

void Say(const char* what, bool well) {
  std::printf("%s: %s\n", what, well ? "ok" : strerrorname_np(errno));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s PATH\n", argv[0]);
    return 2;
  }
  const int reader = ::open(argv[1], O_RDONLY | O_CLOEXEC);
  Say("open-r", reader >= 0);
  if (reader >= 0) {
    void* const map = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, reader, 0);
    Say("map-r", map != MAP_FAILED);
    if (map != MAP_FAILED) {
      volatile const char* const byte = static_cast<const char*>(map);
      (void)byte[kBytes - 1];
    }
    Say("map-rw",
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0) != MAP_FAILED);
    const std::string again = "/proc/self/fd/" + std::to_string(reader);
    Say("reopen", ::open(again.c_str(), O_RDWR | O_CLOEXEC) >= 0);
  }
  const int writer = ::open(argv[1], O_RDWR | O_CLOEXEC);
  Say("open-rw", writer >= 0);
  if (writer >= 0) {
    void* const map = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
    if (map != MAP_FAILED) std::memcpy(map, kText, sizeof kText);
    Say("store", map != MAP_FAILED && std::memcmp(map, kText, sizeof kText) == 0);
  }
  std::printf("held\n");
  std::fflush(stdout);
  char ignored[64];
  while (::read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
  }
  return 0;
}
