#include "libpool/src/directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cxlpool/pool_directory.h"
#include "libpool/src/crc32c.h"
#include "libpool/src/free_ranges.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool {
namespace {

using libpool::FakeAgent;

constexpr char kShared[] = "regions/kv";
constexpr uint64_t kSize = 8 << 20;

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::string Text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Of both kinds of fabric.
class DirectoryTest : public testing::TestWithParam<v1::Coherence> {
 protected:
  DirectoryTest() {
    agent_.Add({.name = kShared, .coherence = GetParam(), .segment_bytes = {kSize}});
  }
  Mapping Map(Access access = Access::kReadWrite) {
    return Pool::Connect({.socket_path = agent_.socket_path()})
        .value()
        .Open(kShared, {.access = access})
        .value()
        .Map()
        .value();
  }
  static void Make(const Mapping& mapping, DirectoryCreateOptions options = {}) {
    if (options.partitions == 1) options.partitions = 2;
    options.entries = 256;
    options.pins = 8;
    Directory::Create(mapping, options).value();
  }
  static std::string Got(const Directory& directory, const std::string& name) {
    std::vector<std::byte> into(kSize);
    const auto size = directory.Get(name, into);
    if (!size.ok()) return size.error().reason;
    return Text(std::span(into).first(*size));
  }

  FakeAgent agent_;
};

INSTANTIATE_TEST_SUITE_P(Fabrics, DirectoryTest, testing::Values(v1::HARDWARE, v1::SOFTWARE),
                         [](const auto& info) { return v1::Coherence_Name(info.param); });

TEST_P(DirectoryTest, WhatIsPutIsFoundByAllWhoOpenIt) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  ASSERT_TRUE(owner.Put("a", Bytes("first")).ok());
  ASSERT_TRUE(owner.Put("empty", {}).ok());
  auto other = Directory::Open(Map(), {.partition = 1}).value();
  const auto reader = Directory::Open(Map(Access::kReadOnly)).value();
  for (const Directory* directory :
       std::initializer_list<const Directory*>{&owner, &other, &reader}) {
    EXPECT_EQ(Got(*directory, "a"), "first");
    EXPECT_EQ(Got(*directory, "empty"), "");
    EXPECT_EQ(Got(*directory, "b"), "OBJECT_UNKNOWN");
    EXPECT_EQ(directory->Find("a").value().size_bytes, 5u);
    EXPECT_TRUE(directory->Check().ok());
  }
  EXPECT_EQ(Text(other.Borrow("a").value().bytes()), "first");
  // A name of both partitions is one's own first.
  ASSERT_TRUE(other.Put("a", Bytes("other")).ok());
  EXPECT_EQ(Got(other, "a"), "other");
  EXPECT_EQ(Got(owner, "a"), "first");
  EXPECT_EQ(Got(reader, "a"), "first");
}

TEST_P(DirectoryTest, APutReplaces) {
  const Mapping mapping = Map();
  Make(mapping);
  auto directory = Directory::Open(mapping, {.partition = 0}).value();
  const uint64_t before = directory.Describe().free_bytes;
  uint64_t generation = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(directory.Put("a", Bytes(std::to_string(i))).ok());
    EXPECT_EQ(Got(directory, "a"), std::to_string(i));
    EXPECT_GT(directory.Find("a").value().generation, generation);
    generation = directory.Find("a").value().generation;
  }
  EXPECT_EQ(directory.Describe().objects, 1u);
  ASSERT_TRUE(directory.Remove("a").ok());
  EXPECT_EQ(Got(directory, "a"), "OBJECT_UNKNOWN");
  EXPECT_EQ(directory.Remove("a").error().reason, "OBJECT_UNKNOWN");
  EXPECT_EQ(directory.Describe().free_bytes, before);
}

TEST_P(DirectoryTest, WhatIsBorrowedStaysAsItIs) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  auto other = Directory::Open(Map(), {.partition = 1}).value();
  const std::string large(1 << 20, 'x');
  ASSERT_TRUE(owner.Put("a", Bytes(large)).ok());
  {
    const Object first = other.Borrow("a").value();
    const Object again = other.Borrow("a").value();  // With one pin.
    EXPECT_EQ(other.Describe().borrowed_objects, 1u);
    ASSERT_TRUE(owner.Remove("a").ok());
    EXPECT_EQ(owner.Describe().removed_objects, 1u);
    while (owner.Put("b" + std::to_string(owner.Describe().objects), Bytes(large)).ok()) {
    }
    EXPECT_EQ(Text(first.bytes()), large);
    const auto full = owner.Put("c", Bytes(large));
    EXPECT_EQ(full.error().reason, "DIRECTORY_FULL");
    EXPECT_NE(full.error().message.find(std::to_string(getpid()) + " of partition 1"),
              std::string::npos)
        << full.error().message;
  }
  EXPECT_TRUE(owner.Put("c", Bytes(large)).ok());
}

TEST_P(DirectoryTest, ANameIsNotCutAtItsNul) {
  const Mapping mapping = Map();
  Make(mapping);
  auto directory = Directory::Open(mapping, {.partition = 0}).value();
  ASSERT_TRUE(directory.Put("a", Bytes("kept")).ok());
  const std::string name("a\0b", 3);
  std::vector<std::byte> into(10);
  EXPECT_EQ(ReasonOf(directory.Put(name, Bytes("other"))), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(directory.CreateObject(name, 5)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(directory.Get(name, into)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(directory.Borrow(name)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(directory.Find(name)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(directory.Remove(name)), "BAD_ARGUMENT");
  EXPECT_EQ(Got(directory, "a"), "kept");
}

TEST_P(DirectoryTest, AnObjectIsMadeInPlace) {
  const Mapping mapping = Map();
  Make(mapping);
  auto directory = Directory::Open(mapping, {.partition = 0}).value();
  const uint64_t before = directory.Describe().free_bytes;
  {
    Object object = directory.CreateObject("a", 4).value();
    std::memcpy(object.mutable_bytes().data(), "abcd", 4);
    EXPECT_EQ(Got(directory, "a"), "OBJECT_UNKNOWN");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(object.bytes().data()) % 64, 0u);
    ASSERT_TRUE(object.Seal().ok());
    EXPECT_EQ(object.Seal().error().reason, "OBJECT_SEALED");
    EXPECT_TRUE(object.bytes().empty());  // Its room is the Directory's, and soon another's.
  }
  EXPECT_EQ(Got(directory, "a"), "abcd");
  { const Object given_up = directory.CreateObject("b", 4000).value(); }
  ASSERT_TRUE(directory.Remove("a").ok());
  EXPECT_EQ(directory.Describe().free_bytes, before);
}

TEST_P(DirectoryTest, APartitionHasOneOwner) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = std::make_unique<Directory>(Directory::Open(mapping, {.partition = 0}).value());
  // By the same handle, and by another.
  const Mapping another = Map();
  for (const Mapping* again : {&mapping, &another}) {
    const auto refused = Directory::Open(*again, {.partition = 0});
    EXPECT_EQ(refused.error().reason, "PARTITION_TAKEN");
    EXPECT_NE(refused.error().message.find("process " + std::to_string(getpid())),
              std::string::npos);
  }
  EXPECT_EQ(Directory::Open(Map(), {.partition = 0, .take_over = true}).error().reason,
            "PARTITION_TAKEN");
  ASSERT_TRUE(owner->Put("a", Bytes("kept")).ok());
  owner.reset();
  const auto next = Directory::Open(Map(), {.partition = 0}).value();
  EXPECT_EQ(Got(next, "a"), "kept");
}

// Who has followed a Region as it grew and who has opened it since look at the same lock, also for
// a partition that lies in what was added.
TEST_P(DirectoryTest, APartitionOfWhatWasAddedHasOneOwner) {
  agent_.Add({.name = kShared, .coherence = GetParam(), .segment_bytes = {kSize / 2}});
  const auto open = [this] {
    return Pool::Connect({.socket_path = agent_.socket_path()}).value().Open(kShared).value();
  };
  Mapping grown = open().Map({.reserve_bytes = kSize}).value();
  agent_.Add({.name = kShared, .coherence = GetParam(), .segment_bytes = {kSize / 2, kSize / 2}});
  ASSERT_TRUE(grown.Extend(open()).ok());
  Make(grown);
  const Mapping fresh = Map();
  for (const uint32_t partition : {0u, 1u}) {  // One in each half.
    for (const bool grown_first : {true, false}) {
      const auto owner = Directory::Open(grown_first ? grown : fresh, {.partition = partition});
      ASSERT_TRUE(owner.ok()) << owner.error().text();
      const auto other = Directory::Open(grown_first ? fresh : grown, {.partition = partition});
      ASSERT_FALSE(other.ok()) << "partition " << partition << " has two owners";
      EXPECT_EQ(other.error().reason, "PARTITION_TAKEN");
    }
  }
}

TEST_P(DirectoryTest, AnotherHostsPartitionIsTakenOverOnPurposeOnly) {
  Make(Map());
  const pid_t child = fork();
  if (child == 0) {
    // A process that ends without a word.
    auto owner = Directory::Open(Map(), {.partition = 0});
    _exit(owner.ok() && owner->Put("a", Bytes("theirs")).ok() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  // The same bytes by another Attachment.
  agent_.Add({.name = kShared, .generation = 2, .coherence = GetParam(), .segment_bytes = {kSize}});
  const auto refused = Directory::Open(Map(), {.partition = 0});
  EXPECT_EQ(refused.error().reason, "PARTITION_TAKEN");
  EXPECT_NE(refused.error().message.find("another host"), std::string::npos);
  const auto next = Directory::Open(Map(), {.partition = 0, .take_over = true}).value();
  EXPECT_EQ(Got(next, "a"), "theirs");
}

TEST_P(DirectoryTest, AForkedChildIsNoOwner) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = std::make_unique<Directory>(Directory::Open(mapping, {.partition = 0}).value());
  ASSERT_TRUE(owner->Put("a", Bytes("x")).ok());
  auto room = std::make_unique<Object>(owner->CreateObject("room", 10).value());
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = room->Seal().error().reason == "FORKED" &&
                         owner->Put("b", Bytes("x")).error().reason == "FORKED" &&
                         owner->Borrow("a").error().reason == "FORKED" &&
                         owner->Remove("a").error().reason == "FORKED" &&
                         owner->Check().error().reason == "FORKED" &&
                         Directory::Open(mapping, {.partition = 1}).error().reason == "FORKED";
    room.reset();
    owner.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Directory::Open(Map(), {.partition = 0}).error().reason, "PARTITION_TAKEN");
  EXPECT_EQ(Got(*owner, "a"), "x");
}

TEST_P(DirectoryTest, AProcessThatWasKilledLeavesWhatItSealed) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(Map(), {.partition = 1}).value();
  ASSERT_TRUE(owner.Put("mine", Bytes("borrowed")).ok());
  int tell[2];
  ASSERT_EQ(pipe(tell), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto theirs = Directory::Open(Map(), {.partition = 0}).value();
    theirs.Put("sealed", Bytes("old")).value();
    const Object open = theirs.CreateObject("open", 100).value();
    const Object borrowed = theirs.Borrow("mine").value();
    for (int i = 0;; ++i) {
      theirs.Put("sealed", Bytes(std::string(3000, static_cast<char>('a' + i % 26)))).value();
      if (i == 100 && write(tell[1], "x", 1) != 1) _exit(1);
    }
  }
  char x = 0;
  ASSERT_EQ(read(tell[0], &x, 1), 1);
  ASSERT_TRUE(owner.Remove("mine").ok());
  EXPECT_EQ(owner.Describe().removed_objects, 1u);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  auto next = Directory::Open(mapping, {.partition = 0}).value();
  const std::string found = Got(next, "sealed");
  ASSERT_EQ(found.size(), 3000u);
  EXPECT_EQ(found, std::string(3000, found[0]));
  EXPECT_EQ(Got(next, "open"), "OBJECT_UNKNOWN");
  EXPECT_EQ(next.Describe().objects, 1u);
  // What the dead one looked at is looked at no more.
  ASSERT_TRUE(owner.Put("more", Bytes("x")).ok());
  ASSERT_TRUE(owner.Remove("more").ok());
  EXPECT_EQ(owner.Describe().removed_objects, 0u);
  ASSERT_TRUE(next.Remove("sealed").ok());
  const cxlpool_directory_info info = next.Describe();
  EXPECT_EQ(info.free_bytes, info.largest_free_bytes);
  close(tell[0]);
  close(tell[1]);
}

// Writers that are killed one after the other, at any moment: so many as CXLPOOL_KILLS says. Each
// takes the partition over from the one before. Readers look all the while, and have each object as
// it was before a put or as it is afterwards.
TEST_P(DirectoryTest, AWriterMayBeKilledAtAnyMoment) {
  const char* const text = std::getenv("CXLPOOL_KILLS");
  const int kills = text == nullptr ? 200 : std::atoi(text);
  const Mapping mapping = Map();
  Make(mapping);
  auto reader = Directory::Open(Map(), {.partition = 1}).value();
  {
    auto first = Directory::Open(mapping, {.partition = 0}).value();
    for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(first.Put(name, Bytes("begin")).ok());
  }
  Pool client = Pool::Connect({.socket_path = agent_.socket_path()}).value();
  uint64_t looks = 0;
  std::mt19937 random(19);
  for (int i = 0; i < kills; ++i) {
    int tell[2];
    ASSERT_EQ(pipe2(tell, O_CLOEXEC), 0);
    // The agent, which is a thread here, has closed what it handed the last one: a child has none
    // of it.
    ASSERT_TRUE(client.List().ok());
    const pid_t child = fork();
    if (child == 0) {
      auto writer = Directory::Open(Map(), {.partition = 0});
      if (!writer.ok()) std::cerr << writer.error().text() << "\n";
      if (!writer.ok() || write(tell[1], "x", 1) != 1) _exit(1);
      for (int n = 0;; ++n) {
        const std::string name(1, static_cast<char>('a' + n % 3));
        writer->Put(name, Bytes(name + std::string(1000 + n % 5000, static_cast<char>(n)))).value();
        if (n % 7 == 0) writer->Put("d", Bytes("d")).value();
        if (n % 7 == 3) writer->Remove("d").value();
      }
    }
    close(tell[1]);
    char x = 0;
    const bool began = read(tell[0], &x, 1) == 1;
    close(tell[0]);
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 3000);
    do {
      for (const char* name : {"a", "b", "c"}) {
        const Object object = reader.Borrow(name).value();
        const std::string found = Text(object.bytes());
        ++looks;
        if (found == "begin") continue;
        ASSERT_EQ(found, name + std::string(found.size() - 1, found[1]));
        ASSERT_EQ(Text(object.bytes()), found);
      }
    } while (std::chrono::steady_clock::now() < until);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(began) << "the partition cannot be taken over after kill " << i;
  }
  auto next = Directory::Open(mapping, {.partition = 0}).value();
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(next.Remove(name).ok());
  if (const auto left = next.Remove("d"); !left.ok()) {
    EXPECT_EQ(left.error().reason, "OBJECT_UNKNOWN");
  }
  EXPECT_EQ(next.Describe().objects, 0u);
  EXPECT_EQ(next.Describe().free_bytes, next.Describe().largest_free_bytes);
  std::cout << "directory-kills: " << kills << " trials, 0 torn in " << looks
            << " looks, where caches are " << (GetParam() == v1::HARDWARE ? "" : "not ")
            << "coherent\n";
}

TEST_P(DirectoryTest, WhatAnOldEntrySaysIsNotTakenFromWhoHasItNow) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = std::make_unique<Directory>(Directory::Open(mapping, {.partition = 0}).value());
  auto other = Directory::Open(Map(), {.partition = 1}).value();
  const std::string before(1000, 'b');
  for (int i = 0; i < 120; ++i) {
    ASSERT_TRUE(owner->Put("neighbour" + std::to_string(i), Bytes("x")).ok());
  }
  std::vector<Object> borrowed;
  for (int i = 0; i < 8; ++i) {
    // The new one has the room of the old one, whose entry still says so.
    ASSERT_TRUE(owner->Put("old" + std::to_string(i), Bytes(std::string(1000, 'a'))).ok());
    const uint64_t free = owner->Describe().largest_free_bytes;
    ASSERT_TRUE(owner->Put("behind" + std::to_string(i), Bytes("x")).ok());
    ASSERT_TRUE(owner->Remove("old" + std::to_string(i)).ok());
    ASSERT_TRUE(owner->Put("new" + std::to_string(i), Bytes(before)).ok());
    ASSERT_LT(owner->Describe().largest_free_bytes, free);
    borrowed.push_back(other.Borrow("new" + std::to_string(i)).value());
    ASSERT_TRUE(owner->Remove("new" + std::to_string(i)).ok());
  }
  owner.reset();
  auto next = Directory::Open(mapping, {.partition = 0}).value();
  EXPECT_EQ(next.Describe().removed_objects, 8u);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(next.Put("more" + std::to_string(i), Bytes(std::string(1000, 'c'))).ok());
  }
  for (const Object& object : borrowed) EXPECT_EQ(Text(object.bytes()), before);
}

TEST_P(DirectoryTest, OneThatKeepsItsObjectsLendsThemToAll) {
  const Mapping mapping = Map();
  Make(mapping, {.keeps_objects = true});
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  ASSERT_TRUE(owner.Put("weights", Bytes("w")).ok());
  EXPECT_EQ(owner.Put("weights", Bytes("v")).error().reason, "OBJECTS_STAY");
  EXPECT_EQ(owner.Remove("weights").error().reason, "OBJECTS_STAY");
  auto reader = Directory::Open(Map(Access::kReadOnly)).value();
  EXPECT_EQ(Text(reader.Borrow("weights").value().bytes()), "w");
}

TEST_P(DirectoryTest, RefusalsSayWhyAndChangeNothing) {
  const Mapping mapping = Map();
  EXPECT_EQ(Directory::Open(mapping).error().reason, "NOT_A_DIRECTORY");
  Make(mapping);
  EXPECT_EQ(Directory::Create(mapping).error().reason, "DIRECTORY_EXISTS");
  EXPECT_EQ(Directory::Create(mapping, {.partitions = 0}).error().reason, "BAD_ARGUMENT");
  EXPECT_EQ(Directory::Create(mapping, {.entries = 100}).error().reason, "BAD_ARGUMENT");
  EXPECT_EQ(Directory::Create(mapping, {.pins = 3}).error().reason, "BAD_ARGUMENT");
  EXPECT_EQ(Directory::Create(mapping, {.entries = 1 << 28}).error().reason, "BAD_ARGUMENT");
  EXPECT_EQ(Directory::Open(mapping, {.partition = 2}).error().reason, "BAD_ARGUMENT");
  const Mapping read_only = Map(Access::kReadOnly);
  EXPECT_EQ(Directory::Create(read_only).error().reason, "BAD_ARGUMENT");
  EXPECT_EQ(Directory::Open(read_only, {.partition = 0}).error().reason, "BAD_ARGUMENT");
  auto reader = Directory::Open(read_only).value();
  EXPECT_EQ(reader.Put("a", Bytes("x")).error().reason, "NO_PARTITION");
  EXPECT_EQ(reader.Borrow("a").error().reason, "NO_PARTITION");
  EXPECT_EQ(reader.Remove("a").error().reason, "NO_PARTITION");
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  EXPECT_EQ(owner.Put("", Bytes("x")).error().reason, "BAD_ARGUMENT");
  EXPECT_EQ(owner.Put(std::string(1024, 'n'), Bytes("x")).error().reason, "BAD_ARGUMENT");
  EXPECT_EQ(owner.CreateObject("a", ~size_t{0}).error().reason, "DIRECTORY_FULL");
  const std::string longest(1023, 'n');
  ASSERT_TRUE(owner.Put(longest, Bytes("x")).ok());
  EXPECT_EQ(Got(reader, longest), "x");
  std::byte small[1];
  ASSERT_TRUE(owner.Put("a", Bytes("two")).ok());
  EXPECT_EQ(owner.Get("a", small).error().reason, "OBJECT_TOO_LARGE");
  auto other = Directory::Open(Map(), {.partition = 1}).value();
  EXPECT_EQ(other.Remove("a").error().reason, "NOT_OWNER");
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(owner.Put("o" + std::to_string(i), Bytes("x")).ok());
  std::vector<Object> borrowed;
  for (int i = 0; i < 8; ++i) borrowed.push_back(other.Borrow("o" + std::to_string(i)).value());
  EXPECT_EQ(other.Borrow("a").error().reason, "TOO_MANY_BORROWED");
  // As many as there are entries, or nearly.
  int put = 0;
  while (owner.Put("many" + std::to_string(put), Bytes("x")).ok()) ++put;
  EXPECT_EQ(owner.Put("many" + std::to_string(put), Bytes("x")).error().reason, "DIRECTORY_FULL");
  EXPECT_GT(put, 128);
  for (int i = 0; i < put; ++i) ASSERT_EQ(Got(reader, "many" + std::to_string(i)), "x") << i;
  Directory::Create(mapping, {.partitions = 1, .entries = 256, .replace = true}).value();
  EXPECT_EQ(reader.Check().error().reason, "DIRECTORY_REPLACED");
}

TEST_P(DirectoryTest, WhatSomebodyElseStoredToIsNoObject) {
  Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  ASSERT_TRUE(owner.Put("a", Bytes(std::string(100, 'a'))).ok());
  const Object object = owner.Borrow("a").value();
  const auto at = static_cast<size_t>(object.bytes().data() - mapping.bytes().data());
  mapping.mutable_bytes()[at] = std::byte{'b'};
  if (GetParam() == v1::SOFTWARE) {
    EXPECT_EQ(Got(owner, "a"), "NOT_VISIBLE");
    EXPECT_EQ(owner.Borrow("a").error().reason, "NOT_VISIBLE");
  }
  // All entries at once: whatever they say, nobody is led out of the map.
  for (size_t i = 4096 + 64 + 64; i < 4096 + 64 + 64 + 256 * 64; ++i) {
    mapping.mutable_bytes()[i] = std::byte{0x01};
  }
  EXPECT_EQ(Got(owner, "b"), "OBJECT_UNKNOWN");
  mapping.mutable_bytes()[17] ^= std::byte{1};
  EXPECT_EQ(Directory::Open(mapping).error().reason, "NOT_A_DIRECTORY");
}

// Entries as a process leaves them that dies while it stores: the words of two objects.
TEST_P(DirectoryTest, HalfAnEntryIsNobodys) {
  Mapping mapping = Map();
  Make(mapping);
  auto owner = std::make_unique<Directory>(Directory::Open(mapping, {.partition = 0}).value());
  auto other = Directory::Open(Map(), {.partition = 1}).value();
  ASSERT_TRUE(owner->Put("a", Bytes(std::string(1000, 'a'))).ok());
  ASSERT_TRUE(owner->Put("b", Bytes(std::string(1000, 'b'))).ok());
  const Object kept = other.Borrow("b").value();
  ASSERT_TRUE(owner->Remove("b").ok());
  ASSERT_TRUE(owner->Put("a", Bytes(std::string(1000, 'a'))).ok());  // The last.
  const uint64_t generation = owner->Find("a").value().generation;
  owner.reset();
  // The sizes of all entries are of those that were to be there next.
  auto* const words = reinterpret_cast<uint64_t*>(mapping.mutable_bytes().data());
  const size_t first = (4096 + 64 + 64) / 8;
  for (size_t entry = first; entry < first + 256 * 8; entry += 8) {
    if (words[entry + 3] == 1000 && words[entry] % 256 == 1) words[entry + 3] = 5000;
  }
  auto next = Directory::Open(mapping, {.partition = 0}).value();
  EXPECT_EQ(Got(next, "a"), "OBJECT_UNKNOWN");
  EXPECT_EQ(next.Describe().objects, 0u);
  // Its generation was an object's once.
  ASSERT_TRUE(next.Put("a", Bytes("again")).ok());
  EXPECT_GT(next.Find("a").value().generation, generation);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(next.Put("more" + std::to_string(i), Bytes(std::string(1000, 'c'))).ok());
  }
  EXPECT_EQ(Text(kept.bytes()), std::string(1000, 'b'));
}

// A reader that dies between its pin and its second look leaves a pin of what had gone before.
TEST_P(DirectoryTest, APinOfWhatHadGoneTakesNobodysRoom) {
  Mapping mapping = Map();
  Make(mapping);
  auto owner = std::make_unique<Directory>(Directory::Open(mapping, {.partition = 0}).value());
  auto other = Directory::Open(Map(), {.partition = 1}).value();
  for (int i = 0; i < 120; ++i) {
    ASSERT_TRUE(owner->Put("neighbour" + std::to_string(i), Bytes("x")).ok());
  }
  std::vector<Object> borrowed;
  std::vector<uint64_t> gone;
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    ASSERT_TRUE(owner->Put("old" + number, Bytes(std::string(1000, 'a'))).ok());
    gone.push_back(owner->Find("old" + number).value().generation);
    ASSERT_TRUE(owner->Put("behind" + number, Bytes("x")).ok());
    ASSERT_TRUE(owner->Remove("old" + number).ok());
    ASSERT_TRUE(owner->Put("new" + number, Bytes(std::string(1000, 'b'))).ok());
    borrowed.push_back(other.Borrow("new" + number).value());
    ASSERT_TRUE(owner->Remove("new" + number).ok());
  }
  owner.reset();
  auto* const words = reinterpret_cast<uint64_t*>(mapping.mutable_bytes().data());
  const auto pins = static_cast<size_t>(4096 + (kSize - 4096) / 2 / 4096 * 4096 + 64) / 8;
  for (size_t i = 0; i < 4; ++i) words[pins + 4 + i] = gone[i] << 16 | 1;
  {
    auto next = Directory::Open(mapping, {.partition = 0}).value();
    for (size_t i = 0; i < 4; ++i) words[pins + 4 + i] = 0;
    ASSERT_TRUE(next.Remove("neighbour0").ok());  // Now the pins are looked at again.
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(next.Put("more" + std::to_string(i), Bytes(std::string(1000, 'c'))).ok());
    }
    for (const Object& object : borrowed) EXPECT_EQ(Text(object.bytes()), std::string(1000, 'b'));
  }
}

TEST_P(DirectoryTest, LostBytesEndNoProcess) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  ASSERT_TRUE(owner.Put("a", Bytes("x")).ok());
  std::filesystem::resize_file(agent_.FilePath(kShared, 0), 4096);
  EXPECT_EQ(Got(owner, "a"), "REVOKED");
  EXPECT_EQ(owner.Put("b", Bytes("x")).error().reason, "REVOKED");
  EXPECT_EQ(owner.Borrow("a").error().reason, "REVOKED");
  EXPECT_EQ(owner.Remove("a").error().reason, "REVOKED");
}

// A page of another file, which has no bytes, lies where the object's room is.
TEST_P(DirectoryTest, RoomWithLostBytesIsNotGivenToTheNextObject) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  constexpr size_t kPage = 4096;
  const std::string large(64 * kPage, 'x');
  const auto lose = [&] {
    const std::byte* const room = owner.CreateObject("a", large.size()).value().bytes().data();
    const auto offset = static_cast<size_t>(room - mapping.data()) / kPage * kPage + 32 * kPage;
    const int empty = ::memfd_create("empty", MFD_CLOEXEC);
    ASSERT_NE(::mmap(mapping.data() + offset, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     empty, 0),
              MAP_FAILED);
    ::close(empty);
  };
  lose();
  EXPECT_EQ(owner.Put("a", Bytes(large)).error().reason, "REVOKED");
  const auto again = owner.Put("a", Bytes(large));
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(Got(owner, "a"), large);
  if (GetParam() == v1::HARDWARE) return;  // Only a checksum looks at the bytes as it is sealed.
  lose();
  EXPECT_EQ(owner.CreateObject("b", large.size()).value().Seal().error().reason, "REVOKED");
  EXPECT_TRUE(owner.Put("b", Bytes(large)).ok());
}

// What a process had borrowed that has died is given back by whoever opens its partition.
TEST_P(DirectoryTest, WhoFindsNoRoomIsToldHowToGetBackWhatADeadProcessHadBorrowed) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  const std::string large(3 << 20, 'x');
  ASSERT_TRUE(owner.Put("a", Bytes(large)).ok());
  const pid_t child = fork();
  if (child == 0) {
    auto reader = Directory::Open(Map(), {.partition = 1});
    const auto borrowed = reader->Borrow("a");
    _exit(borrowed.ok() ? 0 : 1);  // Without a word.
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(owner.Remove("a").ok());
  const auto full = owner.Put("b", Bytes(large));
  ASSERT_EQ(full.error().reason, "DIRECTORY_FULL");
  EXPECT_NE(full.error().remedy.find("open partition 1"), std::string::npos) << full.error().text();
  const auto next = Directory::Open(Map(), {.partition = 1});
  ASSERT_TRUE(next.ok()) << next.error().text();
  EXPECT_TRUE(owner.Put("b", Bytes(large)).ok());
}

TEST_P(DirectoryTest, ThreadsPutAndGetSideBySide) {
  const Mapping mapping = Map();
  Make(mapping);
  auto owner = Directory::Open(mapping, {.partition = 0}).value();
  auto other = Directory::Open(Map(), {.partition = 1}).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string name = "t" + std::to_string(t) + "/" + std::to_string(i % 8);
        owner.Put(name, Bytes(name + " " + std::to_string(i))).value();
        const Object object = other.Borrow(name).value();
        EXPECT_EQ(Text(object.bytes()), name + " " + std::to_string(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(owner.Describe().objects, 32u);
  EXPECT_EQ(other.Describe().borrowed_objects, 0u);
}

TEST(FreeRangesTest, TakesTheSmallestThatFitsAndJoinsWhatIsGivenBack) {
  libpool::FreeRanges ranges;
  ranges.Give(0, 1000);
  EXPECT_EQ(ranges.Take(100), 0u);
  EXPECT_EQ(ranges.Take(100), 100u);
  EXPECT_EQ(ranges.Take(100), 200u);
  ranges.Give(100, 100);
  EXPECT_EQ(ranges.Take(80), 100u);  // And not of the 700.
  EXPECT_EQ(ranges.Take(701), std::nullopt);
  EXPECT_FALSE(ranges.TakeAt(180, 200));
  EXPECT_TRUE(ranges.TakeAt(500, 10));
  EXPECT_EQ(ranges.largest(), 490u);
  ranges.Give(500, 10);
  ranges.Give(100, 80);
  ranges.Give(0, 100);
  ranges.Give(200, 100);
  EXPECT_EQ(ranges.largest(), 1000u);
  EXPECT_EQ(ranges.free_bytes(), 1000u);
}

TEST(Crc32cTest, IsThatOfTheRfc) {
  const std::string digits = "123456789";
  EXPECT_EQ(libpool::Crc32c(0, digits.data(), digits.size()), 0xe3069283u);
  EXPECT_EQ(libpool::Crc32c(libpool::Crc32c(0, digits.data(), 4), digits.data() + 4, 5),
            0xe3069283u);
  EXPECT_EQ(libpool::Crc32c(0, nullptr, 0), 0u);
}

}  // namespace
}  // namespace cxlpool
