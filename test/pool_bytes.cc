// pool-bytes: whether the bytes that pool-write wrote to a Region lie where the API says that they
// do, in the files that are the pool's devices.
//
//   pool-bytes SEED WAYS GRANULARITY FILE:OFFSET:LENGTH...
//
// The extents, in Region order. Each WAYS of them are a stripe set: bytes [i * GRANULARITY,
// (i + 1) * GRANULARITY) of the set are in its extent i mod WAYS. Exit: 0 every word is in its
// place, 1 one is not, 2 usage.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "libpool/examples/pattern.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {
namespace {

struct Piece {
  std::string file;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  const uint64_t* words = nullptr;  // Mapped until the program ends.
};

bool Parse(const std::string& text, Piece& piece) {
  const size_t length_at = text.rfind(':');
  if (length_at == std::string::npos || length_at == 0) return false;
  const size_t offset_at = text.rfind(':', length_at - 1);
  if (offset_at == std::string::npos) return false;
  piece.file = text.substr(0, offset_at);
  piece.offset_bytes = std::strtoull(text.c_str() + offset_at + 1, nullptr, 10);
  piece.length_bytes = std::strtoull(text.c_str() + length_at + 1, nullptr, 10);
  return piece.length_bytes != 0;
}

bool Map(Piece& piece) {
  const UniqueFd fd(::open(piece.file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat file = {};
  if (!fd.valid() || ::fstat(fd.get(), &file) != 0) {
    std::perror(piece.file.c_str());
    return false;
  }
  if (static_cast<uint64_t>(file.st_size) < piece.offset_bytes + piece.length_bytes) {
    std::fprintf(stderr, "%s has %jd bytes only\n", piece.file.c_str(), intmax_t{file.st_size});
    return false;
  }
  void* at = ::mmap(nullptr, piece.length_bytes, PROT_READ, MAP_SHARED, fd.get(),
                    static_cast<off_t>(piece.offset_bytes));
  if (at == MAP_FAILED) {
    std::perror("mmap");
    return false;
  }
  piece.words = static_cast<const uint64_t*>(at);
  return true;
}

// Goes through one stripe set whose first word is `first_word` of the Region. False: a mismatch,
// said on stderr.
bool CheckSet(const Piece* set, uint64_t ways, uint64_t stripe_words, uint64_t seed,
              uint64_t first_word) {
  const uint64_t words = set[0].length_bytes / sizeof(uint64_t) * ways;
  for (uint64_t i = 0; i < words; ++i) {
    const uint64_t stripe = i / stripe_words;
    const uint64_t at = stripe / ways * stripe_words + i % stripe_words;
    const uint64_t found = set[stripe % ways].words[at];
    const uint64_t expected = examples::PatternWord(seed, first_word + i);
    if (found == expected) continue;
    std::fprintf(stderr,
                 "byte %" PRIu64 " of the Region should be byte %" PRIu64
                 " of extent %s: %016" PRIx64 " is expected there, %016" PRIx64 " is found\n",
                 (first_word + i) * sizeof(uint64_t), at * sizeof(uint64_t),
                 set[stripe % ways].file.c_str(), expected, found);
    return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: pool-bytes SEED WAYS GRANULARITY FILE:OFFSET:LENGTH...\n");
    return 2;
  }
  const uint64_t seed = std::strtoull(argv[1], nullptr, 0);
  const uint64_t ways = std::strtoull(argv[2], nullptr, 10);
  const uint64_t granularity = std::strtoull(argv[3], nullptr, 10);
  std::vector<Piece> pieces(static_cast<size_t>(argc - 4));
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!Parse(argv[i + 4], pieces[i])) {
      std::fprintf(stderr, "pool-bytes: %s is not FILE:OFFSET:LENGTH\n", argv[i + 4]);
      return 2;
    }
    if (!Map(pieces[i])) return 1;
  }
  if (ways == 0 || granularity < sizeof(uint64_t) || pieces.size() % ways != 0) {
    std::fprintf(stderr, "pool-bytes: the extents are no stripe sets of %" PRIu64 "\n", ways);
    return 2;
  }
  uint64_t first_word = 0;
  for (size_t i = 0; i < pieces.size(); i += ways) {
    for (size_t k = 1; k < ways; ++k) {
      if (pieces[i + k].length_bytes != pieces[i].length_bytes) {
        std::fprintf(stderr, "pool-bytes: the extents of a stripe set differ in length\n");
        return 2;
      }
    }
    if (!CheckSet(&pieces[i], ways, granularity / sizeof(uint64_t), seed, first_word)) return 1;
    first_word += pieces[i].length_bytes / sizeof(uint64_t) * ways;
  }
  std::printf("%" PRIu64 " bytes lie where they should, in %zu extents\n",
              first_word * sizeof(uint64_t), pieces.size());
  return 0;
}

}  // namespace
}  // namespace cxlpool

int main(int argc, char** argv) { return cxlpool::Main(argc, argv); }
