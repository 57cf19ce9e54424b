// pool-objects: writers of a Directory that are killed, and a reader who looks at what they leave.
//
//   pool-objects make REGION           makes a Directory of two partitions, with an object for each
//                                      name
//   pool-objects kill REGION COUNT     so many writers of partition 0, one after the other, each of
//                                      which is killed at any moment
//   pool-objects read REGION           borrows and gets the objects, with partition 1, until
//   SIGTERM pool-objects clear REGION [take-over]  as the owner of partition 0, removes all, and
//   sees that
//                                      all of its room is free again
//
// What is put says of itself what all of its bytes have to be, and gets a higher number each time:
// a reader finds half of one, or one that was replaced before what it found last. `read` says
// "reading" at first, and each says at the end what it saw. Exit: 0, 1 an object or the Directory
// is not as it should be, 2 usage, 3 the pool or the kernel refused.
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/examples/outcome.h"
#include "libpool/examples/pattern.h"

namespace cxlpool {
namespace {

constexpr char kProgram[] = "pool-objects";
// Always there, and there at times.
constexpr std::array kKept = {"a", "b", "c"};
constexpr char kFleeting[] = "d";
constexpr size_t kMaxBytes = 8192;
constexpr uint64_t kPutsOfOne = uint64_t{1} << 32;  // More than a writer lives for.
constexpr int kOpensWithinMs = 30'000;
constexpr int kLivesForMs = 20;

volatile std::sig_atomic_t g_ended = 0;

void OnTerminate(int) { g_ended = 1; }

int Fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "%s: %s: %s\n", kProgram, what, why.c_str());
  return examples::kMismatch;
}

// ---- What is put -------------------------------------------------------------------------------

size_t SizeOf(uint64_t number) { return 1024 + number % 7 * 1016; }

// The object of that number: the number, and a pattern that it makes.
std::span<const std::byte> ObjectOf(uint64_t number, std::span<std::byte> room) {
  const std::span<std::byte> bytes = room.first(SizeOf(number));
  std::memcpy(bytes.data(), &number, sizeof number);
  examples::FillPattern(bytes.subspan(sizeof number), number);
  return bytes;
}

// Its number; nothing if it is no object as it was put.
std::optional<uint64_t> NumberOf(std::span<const std::byte> bytes) {
  uint64_t number = 0;
  if (bytes.size() < sizeof number) return std::nullopt;
  std::memcpy(&number, bytes.data(), sizeof number);
  if (bytes.size() != SizeOf(number)) return std::nullopt;
  if (examples::VerifyPattern(bytes.subspan(sizeof number), number).words != 0) return std::nullopt;
  return number;
}

// ---- A Region with a Directory -----------------------------------------------------------------

Result<Mapping> MapRegion(const std::string& name) {
  auto client = Pool::Connect();
  if (!client.ok()) return client.error();
  auto region = client->Open(name);
  if (!region.ok()) return region.error();
  return region->Map();
}

int Make(const std::string& region) {
  auto mapping = MapRegion(region);
  if (!mapping.ok()) return examples::Refuse(kProgram, mapping.error());
  auto made = Directory::Create(*mapping, {.partitions = 2, .entries = 256, .pins = 8});
  if (!made.ok()) return examples::Refuse(kProgram, made.error());
  auto directory = Directory::Open(*mapping, {.partition = 0});
  if (!directory.ok()) return examples::Refuse(kProgram, directory.error());
  alignas(uint64_t) std::array<std::byte, kMaxBytes> room;
  for (const char* name : kKept) {
    auto put = directory->Put(name, ObjectOf(0, room));
    if (!put.ok()) return examples::Refuse(kProgram, put.error());
  }
  return examples::kOk;
}

// ---- Writers -----------------------------------------------------------------------------------

// Puts and removes until it is killed. Says by `tell` that the partition is its own; returns only
// what went wrong.
int Write(const std::string& region, uint64_t writer, int tell, std::atomic<uint64_t>& puts) {
  auto mapping = MapRegion(region);
  if (!mapping.ok()) return examples::Refuse(kProgram, mapping.error());
  auto directory = Directory::Open(*mapping, {.partition = 0});
  if (!directory.ok()) return examples::Refuse(kProgram, directory.error());
  if (::write(tell, "x", 1) != 1) return examples::kRefused;
  alignas(uint64_t) std::array<std::byte, kMaxBytes> room;
  for (uint64_t number = writer * kPutsOfOne;; ++number) {
    auto done = directory->Put(kKept[number % kKept.size()], ObjectOf(number, room));
    if (done.ok() && number % 7 == 0) done = directory->Put(kFleeting, ObjectOf(number, room));
    if (done.ok() && number % 7 == 3) {
      done = directory->Remove(kFleeting);
      // The writer before may have been killed before it put one.
      if (!done.ok() && done.error().reason == "OBJECT_UNKNOWN") done = Result<void>();
    }
    if (!done.ok()) return examples::Refuse(kProgram, done.error());
    ++puts;
  }
}

// Waits for `fd`; false: not within so many milliseconds.
bool Readable(int fd, int within_ms) {
  pollfd poll = {.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, within_ms) > 0;
}

// One writer, which is killed `lives_for_ms` after the partition is its own.
int KillOne(const std::string& region, uint64_t writer, int lives_for_ms,
            std::atomic<uint64_t>& puts) {
  const std::string what = "writer " + std::to_string(writer);
  int tell[2];
  if (::pipe(tell) != 0) return examples::kRefused;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(tell[0]);
    ::_exit(Write(region, writer, tell[1], puts));
  }
  ::close(tell[1]);
  char x = 0;
  const bool opened = Readable(tell[0], kOpensWithinMs) && ::read(tell[0], &x, 1) == 1;
  const bool ended = opened && Readable(tell[0], lives_for_ms);  // It closes its end only so.
  ::close(tell[0]);
  int status = 0;
  ::kill(child, SIGKILL);
  if (::waitpid(child, &status, 0) != child) return examples::kRefused;
  if (!opened) return Fail(what.c_str(), "it did not get the partition");
  if (ended || !WIFSIGNALED(status)) return Fail(what.c_str(), "it ended before it was killed");
  return examples::kOk;
}

int Kill(const std::string& region, int count) {
  void* const shared = ::mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return examples::kRefused;
  auto& puts = *new (shared) std::atomic<uint64_t>(0);
  const examples::Stopwatch stopwatch;
  std::minstd_rand random(19);
  for (int i = 0; i < count; ++i) {
    const int lives_for_ms = static_cast<int>(random() % kLivesForMs);
    const int code = KillOne(region, static_cast<uint64_t>(i) + 1, lives_for_ms, puts);
    if (code != examples::kOk) return code;
  }
  std::printf("%d writers killed in %.1f s, after %" PRIu64 " puts\n", count, stopwatch.Seconds(),
              puts.load());
  return puts > 0 ? examples::kOk : Fail("kill", "nobody put anything");
}

// ---- A reader ----------------------------------------------------------------------------------

// What a reader has seen of one name.
class Seen {
 public:
  explicit Seen(std::string name) : name_(std::move(name)) {}

  // Looks at the object by Borrow, then by Get. Why it is not as it should be; nothing: it is.
  std::optional<std::string> Look(Directory& directory) {
    {
      const auto object = directory.Borrow(name_);
      if (!object.ok()) return JudgeError(object.error());
      if (auto wrong = Judge(object->bytes())) return wrong;
    }
    alignas(uint64_t) std::array<std::byte, kMaxBytes> room;
    const auto size = directory.Get(name_, room);
    if (!size.ok()) return JudgeError(size.error());
    return Judge(std::span(room).first(*size));
  }

  uint64_t looks() const { return looks_; }
  uint64_t objects() const { return objects_; }
  uint64_t writers() const { return writers_; }

 private:
  std::optional<std::string> Judge(std::span<const std::byte> bytes) {
    const std::optional<uint64_t> number = NumberOf(bytes);
    ++looks_;
    if (!number.has_value()) return "object \"" + name_ + "\" is none that was put";
    if (*number < last_) return "object \"" + name_ + "\" is one that was replaced";
    objects_ += *number > last_ ? 1 : 0;
    writers_ += *number / kPutsOfOne > last_ / kPutsOfOne ? 1 : 0;
    last_ = *number;
    return std::nullopt;
  }

  std::optional<std::string> JudgeError(const Error& error) const {
    if (name_ == kFleeting && error.reason == "OBJECT_UNKNOWN") return std::nullopt;
    return error.text();
  }

  const std::string name_;
  uint64_t last_ = 0;
  uint64_t looks_ = 0;
  uint64_t objects_ = 0;  // That differ.
  uint64_t writers_ = 0;  // Whose they were.
};

int Read(const std::string& region) {
  auto mapping = MapRegion(region);
  if (!mapping.ok()) return examples::Refuse(kProgram, mapping.error());
  auto directory = Directory::Open(*mapping, {.partition = 1});
  if (!directory.ok()) return examples::Refuse(kProgram, directory.error());
  std::signal(SIGTERM, OnTerminate);
  std::vector<Seen> names(kKept.begin(), kKept.end());
  names.emplace_back(kFleeting);
  bool said = false;
  while (g_ended == 0) {
    for (Seen& name : names) {
      if (const auto wrong = name.Look(*directory)) return Fail("read", *wrong);
    }
    if (!std::exchange(said, true)) {
      std::printf("reading\n");
      std::fflush(stdout);
    }
  }
  uint64_t looks = 0;
  uint64_t objects = 0;
  uint64_t writers = 0;
  for (const Seen& name : names) {
    looks += name.looks();
    objects += name.objects();
    writers = std::max(writers, name.writers());
  }
  std::printf("%" PRIu64 " looks at %" PRIu64 " objects of %" PRIu64 " writers\n", looks, objects,
              writers);
  return examples::kOk;
}

// ---- The end -----------------------------------------------------------------------------------

int Clear(const std::string& region, bool take_over) {
  auto mapping = MapRegion(region);
  if (!mapping.ok()) return examples::Refuse(kProgram, mapping.error());
  auto directory = Directory::Open(*mapping, {.partition = 0, .take_over = take_over});
  if (!directory.ok()) return examples::Refuse(kProgram, directory.error());
  alignas(uint64_t) std::array<std::byte, kMaxBytes> room;
  for (const char* name : kKept) {
    const auto size = directory->Get(name, room);
    if (!size.ok()) return examples::Refuse(kProgram, size.error());
    if (!NumberOf(std::span(room).first(*size))) return Fail(name, "it is none that was put");
    if (auto gone = directory->Remove(name); !gone.ok()) {
      return examples::Refuse(kProgram, gone.error());
    }
  }
  const auto left = directory->Remove(kFleeting);
  if (!left.ok() && left.error().reason != "OBJECT_UNKNOWN") {
    return examples::Refuse(kProgram, left.error());
  }
  const cxlpool_directory_info info = directory->Describe();
  if (info.objects != 0 || info.free_bytes != info.largest_free_bytes) {
    return Fail("clear", "not all of the room is free");
  }
  std::printf("%" PRIu64 " bytes are free\n", info.free_bytes);
  return examples::kOk;
}

int Main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[1] : "";
  const std::string_view more = argc > 3 ? argv[3] : "";
  if (what == "make" && argc == 3) return Make(argv[2]);
  if (what == "kill" && argc == 4 && std::atoi(argv[3]) > 0)
    return Kill(argv[2], std::atoi(argv[3]));
  if (what == "read" && argc == 3) return Read(argv[2]);
  if (what == "clear" && (argc == 3 || (argc == 4 && more == "take-over"))) {
    return Clear(argv[2], argc == 4);
  }
  std::fprintf(stderr,
               "usage: %s make REGION | kill REGION COUNT | read REGION | clear REGION "
               "[take-over]\n",
               kProgram);
  return examples::kUsage;
}

}  // namespace
}  // namespace cxlpool

int main(int argc, char** argv) { return cxlpool::Main(argc, argv); }
