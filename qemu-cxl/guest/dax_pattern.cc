// dax-pattern: stores a pattern over a mapped DAX device, or loads and checks
// it. A DAX device cannot be read or written, only mapped, so no shell tool
// will do. For the rack's own proof (qemu-cxl/prove).
//
//   dax-pattern store|load DEVICE BYTES SEED     BYTES is a multiple of 2 MiB
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Exits 0 once all words were stored, or if all that were loaded are as they were stored under this
// seed; 1 otherwise, and 2 for a wrong command line.
int main(int argc, char **argv) {
  bool store = argc == 5 && std::strcmp(argv[1], "store") == 0;
  if (argc != 5 || (!store && std::strcmp(argv[1], "load") != 0)) {
    std::fprintf(stderr, "usage: dax-pattern store|load DEVICE BYTES SEED\n");
    return 2;
  }
  size_t bytes = std::strtoull(argv[3], nullptr, 0);
  size_t words = bytes / sizeof(uint64_t);
  uint64_t seed = std::strtoull(argv[4], nullptr, 0);
  int fd = open(argv[2], O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    std::perror(argv[2]);
    return 1;
  }
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  volatile uint64_t *word = static_cast<uint64_t *>(memory);
  size_t wrong = 0;
  for (size_t i = 0; i < words; ++i) {
    if (store) {
      word[i] = seed ^ i;
    } else if (word[i] != (seed ^ i)) {
      ++wrong;
    }
  }
  if (wrong != 0) std::fprintf(stderr, "%zu of %zu words are wrong\n", wrong, words);
  return wrong == 0 ? 0 : 1;
}
