// The Directory on caches that nothing keeps coherent, as processors may have them at worst.
//
// A host's stores and write-backs wait in a queue, in the order of the program, while its loads run
// ahead of them. What leaves the queue is in the host's caches: words in lines. A line comes into
// them when it is loaded or stored to, or read ahead at any moment, and stays as it was then,
// whatever the memory says. A line that was stored to goes to memory when it is written back, or by
// itself at any moment. A write-back that has left the queue may wait until the next fence of
// stores. So nothing happens earlier than an x86-64 processor may do it, and as late as it may
// (Intel SDM, volume 3A, 9.2 and 12.4; CLWB and CLFLUSHOPT, volume 2A).
//
// Hosts are threads of which one runs at a time: a seed says who, for how many accesses. A host may
// end at any access: its process, and its caches stay; or the machine, with what was in them. Then
// another process becomes the owner of its partition.
//
// Each object's words all say which Put they are of. Readers look at what they find; whether it may
// be that is known from what was sealed before they began and after they ended.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libpool/src/directory_format.h"
#include "libpool/src/directory_partition.h"

namespace cxlpool::libpool {
namespace {

constexpr uint32_t kHosts = 3;
constexpr uint32_t kNames = 3;  // Of each host.
constexpr uint64_t kObjectWords = 12;
constexpr DirectoryGeometry kGeometry = {
    .partitions = kHosts, .pins = 8, .entries = 8, .partition_bytes = 1536};

using Line = std::array<uint64_t, kEntryBytes / kWordBytes>;

struct Crashed {};  // Thrown where a host ends.

class Scheduler;

// One host's processor and caches.
class ModelHost {
 public:
  ModelHost(Scheduler* scheduler, std::vector<Line>* memory, std::mt19937_64* random, bool coherent)
      : scheduler_(*scheduler), memory_(*memory), random_(*random), coherent_(coherent) {}

  uint64_t Load(uint64_t at) {
    Step();
    for (auto op = queue_.rbegin(); op != queue_.rend(); ++op) {
      if (op->kind == Op::kStore && op->at == at) return op->word;
    }
    return Fetch(at / kEntryBytes).words[at % kEntryBytes / kWordBytes];
  }
  void Store(uint64_t at, uint64_t word) {
    Step();
    queue_.push_back({Op::kStore, at, word});
  }
  void Read(uint64_t at, void* into, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += kWordBytes) {
      const uint64_t word = Load(at + i);
      std::memcpy(static_cast<char*>(into) + i, &word, kWordBytes);
    }
  }
  void Write(uint64_t at, const void* from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += kWordBytes) {
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(from) + i, kWordBytes);
      Store(at + i, word);
    }
  }
  void Publish(uint64_t at, uint64_t bytes) {
    Step();
    if (coherent_) return;
    ForLines(at, bytes, [&](uint64_t line) { queue_.push_back({Op::kWriteBack, line, 0}); });
    queue_.push_back({Op::kStoreFence, 0, 0});
  }
  void Refresh(uint64_t at, uint64_t bytes) {
    Step();
    if (coherent_) return;
    Fence();
    std::vector<uint64_t> lines;
    ForLines(at, bytes, [&](uint64_t line) { lines.push_back(line); });
    std::shuffle(lines.begin(), lines.end(), random_);
    for (const uint64_t line : lines) {
      WriteBack(line);
      cache_.erase(line);
      Step();
    }
  }
  void Order() { Step(); }  // x86-64 keeps the order of stores by itself.
  void Fence() {
    Step();
    while (!queue_.empty()) Leave();
    ApplyPending();
  }
  template <typename Work>
  Status Guarded(const Work& work) {
    work();
    return Status();
  }

  // It ends at one of the accesses from now on; 0: at none.
  void EndAfter(int accesses) { ends_in_ = accesses; }
  // The process ends: what it stored is in the caches, or on its way to them.
  void EndProcess() {
    while (!queue_.empty()) Leave();
    ApplyPending();
  }
  // The machine ends: any of it may have come to the memory before, in the order of its queue.
  void EndMachine() {
    while (!queue_.empty() && random_() % 4 != 0) Leave();
    queue_.clear();
    for (const auto& [line, cached] : cache_) {
      if (random_() % 2 == 0) WriteBack(line);
    }
    pending_.clear();
    cache_.clear();
  }

 private:
  struct Op {
    enum Kind { kStore, kWriteBack, kStoreFence } kind;
    uint64_t at;  // kWriteBack: a line.
    uint64_t word;
  };
  struct Cached {
    Line words;
    bool dirty = false;
  };

  template <typename Work>
  static void ForLines(uint64_t at, uint64_t bytes, const Work& work) {
    if (bytes == 0) return;
    for (uint64_t line = at / kEntryBytes; line <= (at + bytes - 1) / kEntryBytes; ++line)
      work(line);
  }

  // Anything may happen before the next access of this host.
  void Step();

  Cached& Fetch(uint64_t line) {
    if (coherent_) cache_.erase(line);
    return cache_.try_emplace(line, Cached{memory_[line], false}).first->second;
  }
  void WriteBack(uint64_t line) {
    const auto cached = cache_.find(line);
    if (cached == cache_.end() || !cached->second.dirty) return;
    memory_[line] = cached->second.words;
    cached->second.dirty = false;
  }
  // The oldest of the queue.
  void Leave() {
    const Op op = queue_.front();
    queue_.pop_front();
    if (op.kind == Op::kStore) {
      Cached& cached = Fetch(op.at / kEntryBytes);
      cached.words[op.at % kEntryBytes / kWordBytes] = op.word;
      cached.dirty = true;
      if (coherent_) WriteBack(op.at / kEntryBytes);
    } else if (op.kind == Op::kWriteBack) {
      pending_.push_back(op.at);
    } else {
      ApplyPending();
    }
  }
  void ApplyPending() {
    std::shuffle(pending_.begin(), pending_.end(), random_);
    for (const uint64_t line : pending_) WriteBack(line);
    pending_.clear();
  }

  Scheduler& scheduler_;
  std::vector<Line>& memory_;
  std::mt19937_64& random_;
  const bool coherent_;
  int ends_in_ = 0;
  std::deque<Op> queue_;
  std::vector<uint64_t> pending_;
  std::map<uint64_t, Cached> cache_;
};

// Who runs.
class Scheduler {
 public:
  explicit Scheduler(std::mt19937_64* random) : random_(*random) {}

  // Runs each host's program until all have ended.
  void Run(std::vector<std::function<void()>> programs) {
    alive_.assign(programs.size(), true);
    turns_.clear();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < programs.size(); ++i) turns_.push_back(std::make_unique<Turn>(0));
    for (size_t i = 0; i < programs.size(); ++i) {
      threads.emplace_back([this, i, &programs] {
        turns_[i]->acquire();
        programs[i]();
        alive_[i] = false;
        if (const auto next = Choose()) Switch(*next);
      });
    }
    Switch(*Choose());
    for (std::thread& thread : threads) thread.join();
  }

  // Another's turn, perhaps.
  void Yield() {
    if (left_-- > 0) return;
    const size_t self = running_;
    const size_t next = *Choose();
    if (next == self) return;
    Switch(next);
    turns_[self]->acquire();
  }

 private:
  using Turn = std::binary_semaphore;

  // And for how long.
  std::optional<size_t> Choose() {
    std::vector<size_t> able;
    for (size_t i = 0; i < alive_.size(); ++i) {
      if (alive_[i]) able.push_back(i);
    }
    if (able.empty()) return std::nullopt;
    left_ = static_cast<int>(random_() % 4 == 0 ? random_() % 150 : random_() % 6);
    return able[random_() % able.size()];
  }
  void Switch(size_t next) {
    running_ = next;
    turns_[next]->release();
  }

  std::mt19937_64& random_;
  std::vector<std::unique_ptr<Turn>> turns_;
  std::vector<bool> alive_;
  size_t running_ = 0;
  int left_ = 0;
};

void ModelHost::Step() {
  scheduler_.Yield();
  if (ends_in_ > 0 && --ends_in_ == 0) throw Crashed();
  while (!queue_.empty() && random_() % 3 == 0) Leave();
  if (coherent_) return;
  if (!pending_.empty() && random_() % 4 == 0) {
    const size_t i = random_() % pending_.size();
    WriteBack(pending_[i]);
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
  }
  const uint64_t line = random_() % memory_.size();
  const uint64_t kind = random_() % 8;
  if (kind == 0) Fetch(line);
  if (kind == 1) {
    WriteBack(line);
    cache_.erase(line);
  }
}

// What happens on all hosts, and whether it may.
class Story {
 public:
  Story(uint64_t seed, bool coherent)
      : random_(seed),
        memory_((kGeometry.TotalBytes() + kEntryBytes - 1) / kEntryBytes),
        scheduler_(&random_) {
    for (uint32_t h = 0; h < kHosts; ++h) {
      hosts_.push_back(std::make_unique<ModelHost>(&scheduler_, &memory_, &random_, coherent));
    }
  }

  // Empty: nothing was wrong.
  std::string Run() {
    std::vector<std::function<void()>> programs;
    for (uint32_t h = 0; h < kHosts; ++h) programs.push_back([this, h] { Live(h); });
    scheduler_.Run(std::move(programs));
    if (wrong_.empty()) scheduler_.Run({[this] { EndAll(); }});
    return wrong_;
  }
  uint64_t objects_seen() const { return objects_seen_; }

 private:
  // What a name of a partition has meant. Numbers of Puts grow; 0: nothing.
  struct Truth {
    uint64_t sealed = 0;    // The last Put, or Remove, that has ended.
    uint64_t begun = 0;     // The last that was begun.
    bool is_there = false;  // After `sealed`.
    uint64_t changes = 0;   // Begun or ended.
    uint64_t removes = 0;   // Begun.
    bool removing = false;  // One of them has not ended.
  };

  uint64_t Below(uint64_t n) { return random_() % n; }
  void Wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  static ObjectName NameOf(uint32_t host, uint32_t number) {
    return ObjectName("object " + std::to_string(host) + "/" + std::to_string(number));
  }

  // A host's processes, one after the other.
  void Live(uint32_t h) {
    for (int life = 0; life < 3 && wrong_.empty(); ++life) {
      DirectoryPartition<ModelHost> partition(hosts_[h].get(), kGeometry, h);
      hosts_[h]->EndAfter(Below(3) == 0 ? 1 + static_cast<int>(Below(1500)) : 0);
      try {
        Recover(h, partition);
        for (int step = 0; step < 40 && wrong_.empty(); ++step) Act(h, partition);
        return;
      } catch (const Crashed&) {
        Below(2) == 0 ? hosts_[h]->EndProcess() : hosts_[h]->EndMachine();
      }
    }
  }

  // When all have ended, and others own what was theirs, nothing is looked at, and nothing is lost.
  void EndAll() {
    for (int round = 0; round < 2; ++round) {
      for (uint32_t h = 0; h < kHosts; ++h) {
        hosts_[h]->EndAfter(0);
        DirectoryPartition<ModelHost> partition(hosts_[h].get(), kGeometry, h);
        Recover(h, partition);
        hosts_[h]->Fence();
        const PartitionStats stats = partition.Stats();
        if (stats.free_bytes + stats.object_bytes + stats.retired_bytes != kGeometry.HeapBytes()) {
          Wrong("bytes of a heap are nobody's");
        }
        if (round == 1 && stats.retired != 0) Wrong("what nobody looks at is not free");
      }
    }
  }

  void Recover(uint32_t h, DirectoryPartition<ModelHost>& partition) {
    if (!partition.Recover().ok()) Wrong("it cannot be taken over");
    // What was under way when the one before died is done or not, from now on for ever.
    for (uint32_t n = 0; n < kNames; ++n) {
      Truth& truth = truth_[{h, n}];
      if (truth.begun == truth.sealed) continue;
      DirectoryMemory<ModelHost> memory(hosts_[h].get(), kGeometry);
      FoundObject found;
      const bool there = memory.Find(h, NameOf(h, n), found) == ReadResult::kOk;
      if (!there && truth.is_there && !truth.removing) Wrong("after a takeover the old is gone");
      truth.is_there = there;
      if (there) {
        const uint64_t is = memory.host().Load(found.entry.bytes_at());
        if (is != truth.begun && is != truth.sealed) {
          Wrong("after a takeover there is neither the old nor the new");
        }
        truth.sealed = truth.begun = is;
      } else {
        truth.sealed = truth.begun;
      }
      truth.removing = false;
      ++truth.changes;
    }
  }

  void Act(uint32_t h, DirectoryPartition<ModelHost>& partition) {
    const uint64_t kind = Below(10);
    if (kind < 4) return Put(h, partition);
    if (kind == 4) return Remove(h, partition);
    if (kind < 8) return Get(h);
    Borrow(h);
  }

  void Put(uint32_t h, DirectoryPartition<ModelHost>& partition) {
    const auto number = static_cast<uint32_t>(Below(kNames));
    const ObjectName name = NameOf(h, number);
    Entry entry;
    WriteResult result = WriteResult::kOk;
    if (!partition.Begin(name, kObjectWords * kWordBytes, entry, result).ok() ||
        result != WriteResult::kOk) {
      return;  // All is taken by what others look at.
    }
    Truth& truth = truth_[{h, number}];
    const uint64_t put = ++puts_;
    std::vector<uint64_t> words(kObjectWords, put);
    hosts_[h]->Write(entry.bytes_at(), words.data(), entry.size_bytes);
    truth.begun = put;
    ++truth.changes;
    if (!partition.Seal(name, entry, result).ok()) Wrong("it cannot be sealed");
    if (result == WriteResult::kNoEntry) {
      partition.Abandon(entry);
      truth.begun = truth.sealed;
      return;
    }
    hosts_[h]->Fence();  // Whoever hears of it hears of it later.
    truth.sealed = put;
    truth.is_there = true;
    ++truth.changes;
  }

  void Remove(uint32_t h, DirectoryPartition<ModelHost>& partition) {
    const auto number = static_cast<uint32_t>(Below(kNames));
    Truth& truth = truth_[{h, number}];
    truth.begun = ++puts_;
    truth.removing = true;
    ++truth.removes;
    ++truth.changes;
    WriteResult result = WriteResult::kOk;
    if (!partition.Remove(NameOf(h, number), result).ok()) Wrong("it cannot be removed");
    if ((result == WriteResult::kOk) != truth.is_there) Wrong("what is there is not known");
    hosts_[h]->Fence();  // Whoever hears of it hears of it later.
    truth.sealed = truth.begun;
    truth.is_there = false;
    truth.removing = false;
    ++truth.changes;
  }

  // What was found of a name, where `before` was true of it when the search began.
  void Judge(const char* how, uint32_t h, const Truth& before, const Truth& after, uint64_t put) {
    ++objects_seen_;
    // The one that was there, or any that was begun before it ended.
    const bool was_there = before.is_there && put == before.sealed;
    if (was_there || (put >= before.sealed && put <= after.begun && put != 0 &&
                      (before.changes != after.changes || before.begun != before.sealed))) {
      return;
    }
    Wrong(std::string(how) + " on host " + std::to_string(h) + " saw put " + std::to_string(put) +
          " where " + std::to_string(before.sealed) + " was sealed");
  }
  void JudgeMissing(uint32_t h, const Truth& before, const Truth& after) {
    // Puts alone: there was always one of them.
    if (!before.is_there || before.removing || before.removes != after.removes) return;
    Wrong("host " + std::to_string(h) + " did not find put " + std::to_string(before.sealed) +
          ", which is sealed");
  }

  void Get(uint32_t h) {
    const auto of = static_cast<uint32_t>(Below(kHosts));
    const auto number = static_cast<uint32_t>(Below(kNames));
    const ObjectName name = NameOf(of, number);
    const Truth before = truth_[{of, number}];
    DirectoryMemory<ModelHost> memory(hosts_[h].get(), kGeometry);
    std::vector<uint64_t> words(kObjectWords);
    for (int tries = 0; tries < 8; ++tries) {
      FoundObject found;
      const ReadResult there = memory.Find(of, name, found);
      if (there == ReadResult::kNotFound) {
        return JudgeMissing(h, before, truth_[{of, number}]);
      }
      if (there != ReadResult::kOk) continue;
      if (memory.Read(found, name, words.data(), words.size() * kWordBytes) != ReadResult::kOk) {
        continue;
      }
      for (const uint64_t word : words) {
        if (word != words[0]) return Wrong("a Get saw parts of two objects");
      }
      return Judge("a Get", h, before, truth_[{of, number}], words[0]);
    }
  }

  void Borrow(uint32_t h) {
    const auto of = static_cast<uint32_t>(Below(kHosts));
    const auto number = static_cast<uint32_t>(Below(kNames));
    const ObjectName name = NameOf(of, number);
    const Truth before = truth_[{of, number}];
    DirectoryMemory<ModelHost> memory(hosts_[h].get(), kGeometry);
    FoundObject found;
    if (memory.Find(of, name, found) != ReadResult::kOk) return;
    const auto pin = static_cast<uint32_t>(Below(kGeometry.pins));
    if (!memory.Pin(h, pin, found)) return;
    const Truth after = truth_[{of, number}];
    hosts_[h]->Refresh(found.entry.bytes_at(), found.entry.size_bytes);
    const uint64_t put = hosts_[h]->Load(found.entry.bytes_at());
    Judge("a Borrow", h, before, after, put);
    for (int i = 0; i < 4; ++i) {
      for (uint64_t word = 0; word < kObjectWords; ++word) {
        const uint64_t at = found.entry.bytes_at() + word * kWordBytes;
        if (hosts_[h]->Load(at) != put) return Wrong("what is borrowed changed");
      }
      if (i % 2 == 0) hosts_[h]->Refresh(found.entry.bytes_at(), found.entry.size_bytes);
    }
    memory.Unpin(h, pin);
  }

  std::mt19937_64 random_;
  std::vector<Line> memory_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<ModelHost>> hosts_;
  std::map<std::pair<uint32_t, uint32_t>, Truth> truth_;
  uint64_t puts_ = 0;
  uint64_t objects_seen_ = 0;
  std::string wrong_;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Turns change hands faster where nobody has to wake another processor.
void StayOnOneProcessor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(std::max(sched_getcpu(), 0)), &one);
  sched_setaffinity(0, sizeof one, &one);  // It works without, more slowly.
}

// Seeds from CXLPOOL_MODEL_FROM on, CXLPOOL_MODEL_SEEDS of them; a third of that where caches are
// coherent, and less can happen.
void RunSeeds(bool coherent) {
  const uint64_t from = FromEnvironment("CXLPOOL_MODEL_FROM", 1);
  const uint64_t count =
      FromEnvironment("CXLPOOL_MODEL_SEEDS", CXLPOOL_CACHE_MODEL_SEEDS) / (coherent ? 3 : 1);
  StayOnOneProcessor();
  uint64_t failed = 0;
  uint64_t seen = 0;
  std::string first;
  for (uint64_t seed = from; seed < from + count; ++seed) {
    Story story(seed, coherent);
    const std::string wrong = story.Run();
    seen += story.objects_seen();
    if (wrong.empty()) continue;
    if (first.empty()) first = "seed " + std::to_string(seed) + ": " + wrong;
    ++failed;
  }
  std::cout << "directory-model: " << count << " trials, " << failed
            << " failed, on caches that are " << (coherent ? "" : "not ") << "coherent; " << seen
            << " objects seen\n";
  EXPECT_EQ(failed, 0u) << first;
}

TEST(DirectoryModelTest, NothingKeepsCachesCoherent) { RunSeeds(false); }
TEST(DirectoryModelTest, CachesAreCoherentAndStoresAreLate) { RunSeeds(true); }

}  // namespace
}  // namespace cxlpool::libpool
