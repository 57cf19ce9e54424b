#include "proto/support/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/support/log_limit.h"
#include "proto/support/log_sink.h"
#include "proto/support/names.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {
namespace {

using testing::HasSubstr;

constexpr char kRequest[] = "0b0e6a1c-0000-4000-8000-000000000001";

Uuid RequestNamed(absl::string_view text) {
  Uuid uuid;
  EXPECT_TRUE(ParseUuid(text, uuid));
  return uuid;
}

LogFields AllFields() {
  return {.region = "kv",
          .request_id = RequestNamed(kRequest),
          .host = "host-a",
          .tenant = "ml",
          .rung = "ONLINE"};
}

// What can be read there now.
std::string ReadNow(int fd) {
  std::string bytes(64 << 10, '\0');
  const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return bytes;
}

// A journal of its own: a socket for entries, and a stream that is the journal's.
class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/cxlpool-log-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    stream_.Reset(pair[0]);
    reader_.Reset(pair[1]);
    struct stat status = {};
    ASSERT_EQ(fstat(stream_.get(), &status), 0);
    named_ = absl::StrCat(status.st_dev, ":", status.st_ino);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/socket"; }

  void Listen() {
    journal_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(journal_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  LogSink Sink(const char* journal_stream) const {
    return LogSink(
        {.fd = stream_.get(), .journal_stream = journal_stream, .journal_socket = path()});
  }

  std::string directory_;
  std::string named_;  // The stream, as JOURNAL_STREAM names it.
  UniqueFd stream_;
  UniqueFd reader_;
  UniqueFd journal_;
};

TEST_F(JournalTest, AnEntryHasTheFieldsOfTheLine) {
  Listen();
  Sink(named_.c_str()).Write(LogLevel::kWarning, "reconciler", "regions/kv waits", AllFields());
  EXPECT_EQ(ReadNow(journal_.get()),
            absl::StrCat("MESSAGE=reconciler: regions/kv waits\nPRIORITY=4\nSYSLOG_IDENTIFIER=",
                         program_invocation_short_name,
                         "\nCXLPOOL_REGION=kv\nCXLPOOL_REQUEST_ID=", kRequest,
                         "\nCXLPOOL_HOST=host-a\nCXLPOOL_TENANT=ml\nCXLPOOL_RUNG=ONLINE\n"));
  EXPECT_EQ(ReadNow(reader_.get()), "");
}

// The journal cannot tell whose an entry is when its sender has ended.
TEST_F(JournalTest, AnErrorThatAProgramMayEndWithIsText) {
  Listen();
  const LogSink sink = Sink(named_.c_str());
  sink.Write(LogLevel::kError, "cxlpool-fm", "fm.toml: no such file", {});
  EXPECT_EQ(ReadNow(reader_.get()), "<3>cxlpool-fm: fm.toml: no such file\n");
  EXPECT_EQ(ReadNow(journal_.get()), "");
  sink.Write(LogLevel::kError, "reconciler", "regions/kv is lost", {.region = "kv"});
  EXPECT_THAT(ReadNow(journal_.get()), HasSubstr("CXLPOOL_REGION=kv"));
}

TEST_F(JournalTest, WithoutAJournalSocketALineIsText) {
  Sink(named_.c_str()).Write(LogLevel::kInfo, "agent", "hello", {.region = "kv"});
  EXPECT_EQ(ReadNow(reader_.get()), "<6>agent: hello (region=kv)\n");
}

TEST_F(JournalTest, AStreamThatIsNotTheJournalsGetsText) {
  Listen();
  for (const char* other : {static_cast<const char*>(nullptr), "", "1:2"}) {
    Sink(other).Write(LogLevel::kInfo, "agent", "hello", {});
    EXPECT_EQ(ReadNow(reader_.get()), "<6>agent: hello\n");
  }
  EXPECT_EQ(ReadNow(journal_.get()), "");
}

// Neither of the two is read, and both are full.
TEST_F(JournalTest, AJournalThatDoesNotReadHoldsNobodyUp) {
  Listen();
  const LogSink sink = Sink(named_.c_str());
  const std::string text(kMaxLogLine, 'x');
  for (int i = 0; i < 2000; ++i) sink.Write(LogLevel::kInfo, "agent", text, {});
  EXPECT_THAT(ReadNow(journal_.get()), HasSubstr("MESSAGE=agent: xxx"));
  EXPECT_THAT(ReadNow(reader_.get()), HasSubstr("<6>agent: xxx"));
}

// As of a daemon in a container whose log nobody takes.
TEST(LogSinkTest, APipeThatNobodyReadsHoldsNobodyUp) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  ASSERT_EQ(fcntl(reader.get(), F_SETFL, O_NONBLOCK), 0);
  const auto read_now = [&reader] {
    std::string all;
    char bytes[4096];
    for (ssize_t got = 0; (got = read(reader.get(), bytes, sizeof(bytes))) > 0;) {
      all.append(bytes, static_cast<size_t>(got));
    }
    return all;
  };
  const LogSink sink({.fd = writer.get()});
  std::atomic<bool> over = false;
  std::thread logs([&sink, &over] {
    const std::string text(kMaxLogLine, 'x');
    for (int i = 0; i < 200; ++i) sink.Write(LogLevel::kInfo, "agent", text, {});
    over = true;
  });
  for (int i = 0; i < 1000 && !over; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(over) << "it waits for its reader";
  EXPECT_THAT(read_now(), HasSubstr("<6>agent: xxx"));
  while (!over) read_now();
  logs.join();
  sink.Write(LogLevel::kInfo, "agent", "again", {});
  EXPECT_THAT(read_now(), testing::ContainsRegex("<4>log: 1[0-9][0-9] lines are lost: .*\n"
                                                 "<6>agent: again\n"));
  sink.Write(LogLevel::kInfo, "agent", "and again", {});
  EXPECT_EQ(read_now(), "<6>agent: and again\n");
}

TEST(JournalEntryTest, ALineBreakBeginsNoOtherField) {
  const std::string entry =
      JournalEntry(LogLevel::kError, "a", "one\nPRIORITY=0", {.host = "h\nX=1"});
  const std::string message = "a: one\nPRIORITY=0";
  EXPECT_THAT(entry,
              testing::StartsWith(absl::StrCat("MESSAGE\n", std::string("\x11\0\0\0\0\0\0\0", 8),
                                               message, "\nPRIORITY=3\n")));
  EXPECT_THAT(entry, HasSubstr(absl::StrCat("CXLPOOL_HOST\n", std::string("\x05\0\0\0\0\0\0\0", 8),
                                            "h\nX=1\n")));
}

TEST(JournalEntryTest, FitsIntoADatagramWhateverItSays) {
  const std::string long_text(1 << 20, 'x');
  const std::string entry =
      JournalEntry(LogLevel::kInfo, "a", long_text, {.region = long_text, .host = long_text});
  EXPECT_LT(entry.size(), kMaxLogLine + 3 * kMaxLogField + 512);
}

TEST(TextLineTest, SaysAtItsEndWhatTheTextDoesNot) {
  EXPECT_EQ(
      TextLine("<6>", "r", "regions/kv on host-a: ONLINE", AllFields()),
      absl::StrCat("<6>r: regions/kv on host-a: ONLINE (request=", kRequest, " tenant=ml)\n"));
  EXPECT_EQ(TextLine("", "r", "hello", {}), "r: hello\n");
  // A part of another name says nothing of it.
  for (const char* other : {"kv-2", "my-kv", "ml.kv", "kvm", "kv_"}) {
    EXPECT_EQ(TextLine("", "r", other, {.region = "kv"}),
              absl::StrCat("r: ", other, " (region=kv)\n"));
  }
  EXPECT_EQ(TextLine("", "r", "kv-2 and kv.", {.region = "kv"}), "r: kv-2 and kv.\n");
}

TEST(TextLineTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(TextLine("", "r", "a\nb\x7f", {.host = "c\rd"}), "r: a\\x0ab\\x7f (host=c\\x0dd)\n");
}

TEST(LogScopeTest, ScopesNestAndEnd) {
  EXPECT_EQ(LogScope::Now().region, "");
  const LogScope outer({.region = "kv", .host = "host-a"});
  {
    const LogScope inner({.host = "host-b", .rung = "BOUND"});
    const LogFields now = LogScope::Now();
    EXPECT_EQ(now.region, "kv");
    EXPECT_EQ(now.host, "host-b");
    EXPECT_EQ(now.rung, "BOUND");
  }
  EXPECT_EQ(LogScope::Now().host, "host-a");
  EXPECT_EQ(LogScope::Now().rung, "");
  std::thread([] { EXPECT_EQ(LogScope::Now().region, ""); }).join();
}

TEST(LogLimitTest, CountsWhatItLeavesOut) {
  LogLimit limit(2);
  EXPECT_EQ(limit.Take(absl::Seconds(10)), 0u);
  EXPECT_EQ(limit.Take(absl::Seconds(10.5)), 0u);
  EXPECT_EQ(limit.Take(absl::Seconds(10.9)), std::nullopt);
  EXPECT_EQ(limit.Take(absl::Seconds(10.9)), std::nullopt);
  EXPECT_EQ(limit.Take(absl::Seconds(11)), 2u);
  EXPECT_EQ(limit.Take(absl::Seconds(11)), 0u);
}

}  // namespace
}  // namespace cxlpool
