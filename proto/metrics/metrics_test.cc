#include "proto/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/metrics/metrics_settings.h"
#include "proto/support/refusal.h"

namespace cxlpool::metrics {
namespace {

TEST(MetricsTextTest, AGaugeHasHelpTypeAndSamples) {
  MetricsText out;
  out.Gauge("pool_bytes", "Bytes by state.");
  out.Sample({{"state", "free"}}, 4611686018427387904.0);
  out.Sample({{"state", "held"}, {"device", "cmm-0"}}, 0.25);
  EXPECT_EQ(out.text(),
            "# HELP pool_bytes Bytes by state.\n# TYPE pool_bytes gauge\n"
            "pool_bytes{state=\"free\"} 4.611686018e+18\n"
            "pool_bytes{state=\"held\",device=\"cmm-0\"} 0.25\n");
}

TEST(MetricsTextTest, WholeNumbersLoseNothing) {
  MetricsText out;
  out.Gauge("bytes", "x", 281474976710655.0);
  EXPECT_THAT(out.text(), testing::HasSubstr("\nbytes 281474976710655\n"));
}

TEST(MetricsTextTest, LabelsAreEscaped) {
  MetricsText out;
  out.Gauge("g", "x");
  out.Sample({{"name", "a\"b\\c\nd"}}, 1);
  EXPECT_THAT(out.text(), testing::HasSubstr("g{name=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(MetricsTextTest, AHistogramCountsUpToEachBound) {
  class Histogram seconds({0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0, -1.0}) seconds.Observe(value);
  MetricsText out;
  out.Histogram("d", "x");
  out.Sample({{"rung", "bind"}}, seconds);
  EXPECT_EQ(out.text(),
            "# HELP d x\n# TYPE d histogram\n"
            "d_bucket{rung=\"bind\",le=\"0.1\"} 3\nd_bucket{rung=\"bind\",le=\"1\"} 4\n"
            "d_bucket{rung=\"bind\",le=\"+Inf\"} 5\n"
            "d_sum{rung=\"bind\"} 7.65\nd_count{rung=\"bind\"} 5\n");
}

TEST(MetricsTextTest, AProcessSaysWhatItIs) {
  MetricsText out;
  AddProcess(out);
  for (const char* name : {"cxlpool_build_info{version=", "process_cpu_seconds_total ",
                           "process_resident_memory_bytes ", "process_open_fds "}) {
    EXPECT_THAT(out.text(), testing::HasSubstr(absl::StrCat("\n", name)));
  }
}

TEST(CounterByLabelTest, CountsEachValueFromManyThreads) {
  CounterByLabel counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) counter.Add(absl::StrCat("reason-", i % 20));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto values = counter.Values();
  EXPECT_EQ(values.size(), 20u);
  for (const auto& [value, count] : values) EXPECT_EQ(count, 4000u) << value;
}

TEST(CounterByLabelTest, TooManyValuesAreOther) {
  CounterByLabel counter;
  for (size_t i = 0; i < CounterByLabel::kMaxValues + 50; ++i) counter.Add(absl::StrCat(i));
  const auto values = counter.Values();
  EXPECT_EQ(values.size(), CounterByLabel::kMaxValues + 1);
  EXPECT_EQ(values.at("other"), 50u);
}

// What ReadMetricsSettings makes of a file.
absl::StatusOr<MetricsSettings> Read(const std::string& text, bool has_tls) {
  auto toml = TomlReader::Parse(text, "fm.toml");
  if (!toml.ok()) return toml.status();
  const MetricsSettings settings = ReadMetricsSettings(*toml, has_tls);
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return settings;
}

TEST(MetricsSettingsTest, AreOffUnlessSet) { EXPECT_FALSE(Read("", true)->on()); }

TEST(MetricsSettingsTest, ALoopbackAddressNeedsNoTls) {
  for (const char* listen : {"127.0.0.1:9464", "[::1]:9464", "localhost:9464"}) {
    const auto settings = Read(absl::StrCat("[metrics]\nlisten = \"", listen, "\"\n"), false);
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_TRUE(settings->on());
    EXPECT_FALSE(settings->tls());
  }
}

TEST(MetricsSettingsTest, EveryOtherAddressNeedsTls) {
  const std::string text = "[metrics]\nlisten = \"0.0.0.0:9464\"\n";
  const auto refused = Read(text, false);
  EXPECT_EQ(ReasonOf(refused.status()), "BAD_CONFIG");
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("fm.toml:2: metrics.listen: is wrong: \"0.0.0.0:9464\" is no "
                                 "loopback address, so it needs TLS, and there is no [tls]"));
  EXPECT_TRUE(Read(text, true)->tls());
}

TEST(MetricsSettingsTest, WhatIsNoAddressIsRefused) {
  for (const char* listen : {"9464", "unix:/run/m.sock", "fm.example:9464", "127.0.0.1:0"}) {
    const auto refused = Read(absl::StrCat("[metrics]\nlisten = \"", listen, "\"\n"), true);
    EXPECT_EQ(ReasonOf(refused.status()), "BAD_CONFIG") << listen;
  }
}

}  // namespace
}  // namespace cxlpool::metrics
