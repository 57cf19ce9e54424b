#include "libpool/src/pin.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/reason_for_test.h"
#include "test/rigs/fake_agent.h"

namespace cxlpool {
namespace {

using libpool::FakeAgent;

constexpr size_t kNever = SIZE_MAX;

// An accelerator's runtime, as far as pinning goes: what is registered, in order, and what fails.
class FakeRuntime {
 public:
  struct Chunk {
    std::byte* address = nullptr;
    size_t bytes = 0;
    bool read_only = false;
    bool operator==(const Chunk&) const = default;
  };

  // The calls with these numbers, counted from 0, fail with 700 and 800.
  size_t failing_register = kNever;
  size_t failing_unregister = kNever;

  std::vector<Chunk> registered = {};  // In the order of their registration.
  size_t register_calls = 0;
  size_t unregister_calls = 0;
  bool in_order = true;  // What was registered last was always unregistered first.

  PinOptions Options(uint64_t chunk_bytes) {
    return {.register_fn = &Register,
            .unregister_fn = &Unregister,
            .context = this,
            .chunk_bytes = chunk_bytes};
  }

 private:
  static int Register(void* address, size_t bytes, int read_only, void* context) {
    auto* const runtime = static_cast<FakeRuntime*>(context);
    if (runtime->register_calls++ == runtime->failing_register) return 700;
    runtime->registered.push_back({static_cast<std::byte*>(address), bytes, read_only != 0});
    return 0;
  }
  static int Unregister(void* address, size_t bytes, void* context) {
    auto* const runtime = static_cast<FakeRuntime*>(context);
    if (runtime->unregister_calls++ == runtime->failing_unregister) return 800;
    for (size_t i = runtime->registered.size(); i-- > 0;) {
      const Chunk& chunk = runtime->registered[i];
      if (chunk.address != address || chunk.bytes != bytes) continue;
      runtime->in_order = runtime->in_order && i + 1 == runtime->registered.size();
      runtime->registered.erase(runtime->registered.begin() + static_cast<ptrdiff_t>(i));
      return 0;
    }
    return 801;  // It never was.
  }
};

class PinTest : public ::testing::Test {
 protected:
  PinTest() {
    // Nine MiB: chunks of 2 MiB are four whole ones and a half.
    agent_.Add({.name = "regions/kv", .segment_bytes = {9_MiB}});
    client_ = Pool::Connect({.socket_path = agent_.socket_path()});
  }
  Mapping Map(Access access = Access::kReadWrite) {
    return client_->Open("kv", {.access = access}).value().Map().value();
  }

  FakeAgent agent_;
  FakeRuntime runtime_;
  Result<Pool> client_ = Error{.message = "not connected"};
};

TEST_F(PinTest, RegistersInChunksInOrderAndUnregistersInReverse) {
  const Mapping mapping = Map();
  Result<Pin> pin = mapping.Pin(runtime_.Options(2_MiB));
  ASSERT_TRUE(pin.ok()) << pin.error().text();
  std::vector<FakeRuntime::Chunk> expected;
  for (size_t i = 0; i < 4; ++i) expected.push_back({mapping.data() + i * 2_MiB, 2_MiB});
  expected.push_back({mapping.data() + 8_MiB, 1_MiB});
  EXPECT_EQ(runtime_.registered, expected);
  ASSERT_TRUE(pin->Unpin().ok());
  EXPECT_TRUE(runtime_.registered.empty());
  EXPECT_TRUE(runtime_.in_order);
  EXPECT_EQ(runtime_.unregister_calls, 5u);
}

TEST_F(PinTest, WhereACallFailsNothingStaysRegistered) {
  const Mapping mapping = Map();
  for (size_t k = 0; k < 5; ++k) {
    FakeRuntime runtime;
    runtime.failing_register = k;
    const Result<Pin> pin = mapping.Pin(runtime.Options(2_MiB));
    ASSERT_EQ(ReasonOf(pin), "PIN_FAILED") << k;
    EXPECT_EQ(pin.error().code, CXLPOOL_INTERNAL);
    EXPECT_EQ(pin.error().sys_errno, 0);
    EXPECT_NE(pin.error().message.find("chunk " + std::to_string(k + 1) + " of 5"),
              std::string::npos)
        << pin.error().message;
    EXPECT_NE(pin.error().message.find("code 700"), std::string::npos) << pin.error().message;
    EXPECT_TRUE(runtime.registered.empty()) << k;
    EXPECT_TRUE(runtime.in_order) << k;
    EXPECT_EQ(runtime.unregister_calls, k);
  }
}

TEST_F(PinTest, SaysWhatCouldNotBeGivenBackEither) {
  runtime_.failing_register = 3;
  runtime_.failing_unregister = 1;
  const Result<Pin> pin = Map().Pin(runtime_.Options(2_MiB));
  ASSERT_EQ(ReasonOf(pin), "PIN_FAILED");
  EXPECT_NE(pin.error().message.find("give back 2"), std::string::npos) << pin.error().message;
  EXPECT_NE(pin.error().message.find("code 800"), std::string::npos) << pin.error().message;
  ASSERT_EQ(runtime_.registered.size(), 2u);
  *runtime_.registered[1].address = std::byte{7};  // The device may go on using them: they stay.
  EXPECT_EQ(agent_.Opens("regions/kv"), 1);
}

TEST_F(PinTest, AChunkMayBeLargerThanAnyMap) {
  Result<Pin> pin = Map().Pin(runtime_.Options(-2_MiB));
  ASSERT_TRUE(pin.ok()) << pin.error().text();
  ASSERT_EQ(runtime_.registered.size(), 1u);
  EXPECT_EQ(runtime_.registered[0].bytes, 9_MiB);
}

TEST_F(PinTest, UnpinningGoesOnWhereItFailed) {
  const Mapping mapping = Map();
  for (size_t k = 0; k < 5; ++k) {
    FakeRuntime runtime;
    Result<Pin> pin = mapping.Pin(runtime.Options(2_MiB));
    ASSERT_TRUE(pin.ok());
    runtime.failing_unregister = k;
    const Result<void> undone = pin->Unpin();
    EXPECT_EQ(ReasonOf(undone), "UNPIN_FAILED") << k;
    EXPECT_EQ(runtime.registered.size(), 5 - k);
    EXPECT_TRUE(pin->Unpin().ok());
    EXPECT_TRUE(runtime.registered.empty());
    EXPECT_TRUE(runtime.in_order);
  }
}

TEST_F(PinTest, KeepsTheRangeMappedAndItsRegionInUse) {
  {
    Mapping mapping = Map();
    std::byte* const begin = mapping.data();
    const Result<Pin> pin = mapping.Pin(runtime_.Options(4_MiB));
    ASSERT_TRUE(pin.ok());
    mapping.Unmap();
    begin[9_MiB - 1] = std::byte{7};
    EXPECT_EQ(agent_.Opens("regions/kv"), 1);
  }
  EXPECT_TRUE(runtime_.registered.empty()) << "the pin has gone";
  EXPECT_TRUE(agent_.AwaitOpens("regions/kv", 0));
}

TEST_F(PinTest, IsReadOnlyWhereTheMapIsOrTheCallerSaysSo) {
  PinOptions options = runtime_.Options(16_MiB);
  { const Result<Pin> pin = Map().Pin(options); }
  Result<Pin> writable = Map().Pin(options);
  EXPECT_FALSE(runtime_.registered.back().read_only);
  Result<Pin> of_a_read_only_map = Map(Access::kReadOnly).Pin(options);
  EXPECT_TRUE(runtime_.registered.back().read_only);
  options.read_only = true;
  Result<Pin> asked_for = Map().Pin(options);
  EXPECT_TRUE(runtime_.registered.back().read_only);
}

TEST_F(PinTest, RefusesBadArguments) {
  const Mapping mapping = Map();
  for (uint64_t chunk : {uint64_t{0}, uint64_t{4096}, 3_MiB}) {
    EXPECT_EQ(ReasonOf(mapping.Pin(runtime_.Options(chunk))), "BAD_ARGUMENT") << chunk;
  }
  PinOptions options = runtime_.Options(2_MiB);
  options.unregister_fn = nullptr;
  EXPECT_EQ(ReasonOf(mapping.Pin(options)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(mapping.Pin({})), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(Mapping().Pin(runtime_.Options(2_MiB))), "BAD_ARGUMENT");
  EXPECT_EQ(runtime_.register_calls, 0u);
  EXPECT_EQ(cxlpool_unpin(nullptr, nullptr), 0);
}

TEST_F(PinTest, AForkedChildPinsNothingOfItsParents) {
  const Mapping mapping = Map();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = ReasonOf(mapping.Pin(runtime_.Options(2_MiB))) == "FORKED";
    ::_exit(refused && runtime_.register_calls == 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(mapping.Pin(runtime_.Options(2_MiB)).ok());
}

TEST_F(PinTest, AForkedChildLeavesItsParentsPinAlone) {
  Result<Pin> pin = Map().Pin(runtime_.Options(2_MiB));
  ASSERT_TRUE(pin.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = ReasonOf(pin->Unpin()) == "FORKED";
    ::_exit(refused && runtime_.unregister_calls == 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(pin->Unpin().ok());
}

}  // namespace
}  // namespace cxlpool
