#include "proto/support/certificate_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tools/pki/pki.h"

namespace cxlpool {
namespace {

using ::testing::HasSubstr;

class CertificateKeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cxlpool-keeper-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    ASSERT_TRUE(pki::InitAuthority(directory_ + "/pki", false).ok());
    Issue(100);
    auto source = TlsSource::Load(files_, CertificateUse::Agent("host-a"));
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Issue(int days) {
    pki::LeafRequest leaf;
    leaf.name = "host-a";
    leaf.days = days;
    leaf.force = true;
    const auto files = pki::IssueLeaf(directory_ + "/pki", leaf);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = {files->ca, files->cert, files->key};
  }

  // What the keeper logs on an occasion.
  template <typename Occasion>
  static std::string Said(Occasion occasion) {
    testing::internal::CaptureStderr();
    occasion();
    return testing::internal::GetCapturedStderr();
  }

  std::string directory_;
  TlsFiles files_;
  std::shared_ptr<TlsSource> source_;
  absl::Time now_ = absl::Now();
};

TEST_F(CertificateKeeperTest, WarnsOnceADayFromThirtyDaysBeforeTheEnd) {
  CertificateKeeper keeper("test", source_, [this] { return now_; });
  EXPECT_EQ(Said([&] { keeper.Warn(); }), "");
  int days_warned = 0;
  for (int hour = 0; hour < 24 * 100; ++hour, now_ += absl::Hours(1)) {
    const std::string said = Said([&] { keeper.Warn(); });
    if (said.empty()) continue;
    ++days_warned;
    EXPECT_THAT(said, HasSubstr("ends on"));
    EXPECT_THAT(said, HasSubstr(files_.cert));
    EXPECT_THAT(said, HasSubstr("cxlpool pki renew host host-a"));
  }
  EXPECT_GE(days_warned, 29);
  EXPECT_LE(days_warned, 31);
  now_ += absl::Hours(24);
  EXPECT_THAT(Said([&] { keeper.Warn(); }), HasSubstr("EXPIRED on"));
  now_ -= absl::Hours(48);  // The clock was set.
  EXPECT_THAT(Said([&] { keeper.Warn(); }), HasSubstr("ends on"));
}

TEST_F(CertificateKeeperTest, ReloadSaysWhatIsInUse) {
  CertificateKeeper keeper("test", source_, [this] { return now_; });
  const std::string old = source_->current()->leaf.serial;
  Issue(300);
  EXPECT_TRUE(keeper.Reload());
  const std::string fresh = source_->current()->leaf.serial;
  EXPECT_NE(fresh, old);
  Issue(300);
  const std::string logged = Said([&] { keeper.Reload(); });
  EXPECT_THAT(logged, HasSubstr(source_->current()->leaf.serial));
  // What will not do is said, and not used.
  const std::string in_use = source_->current()->leaf.serial;
  std::ofstream(files_.cert) << "nonsense";
  bool reloaded = true;
  const std::string said = Said([&] { reloaded = keeper.Reload(); });
  EXPECT_FALSE(reloaded);
  EXPECT_THAT(said, HasSubstr("stay in use"));
  EXPECT_THAT(said, HasSubstr(files_.cert));
  EXPECT_EQ(source_->current()->leaf.serial, in_use);
}

TEST_F(CertificateKeeperTest, WarnsOfThoseThatAreReadOnceToo) {
  CertificateEnd other{"the certificate for etcd", source_->current()->leaf, "restart it"};
  CertificateKeeper keeper("test", nullptr, [this] { return now_; }, {other});
  EXPECT_EQ(Said([&] { keeper.Warn(); }), "");
  now_ += absl::Hours(24 * 80);
  EXPECT_THAT(Said([&] { keeper.Warn(); }), HasSubstr("the certificate for etcd ends on"));
  EXPECT_EQ(Said([&] { keeper.Warn(); }), "");
}

TEST_F(CertificateKeeperTest, WithoutTlsThereIsNothingToDo) {
  CertificateKeeper keeper("test", nullptr);
  EXPECT_TRUE(keeper.Reload());
  EXPECT_EQ(Said([&] { keeper.Warn(); }), "");
}

}  // namespace
}  // namespace cxlpool
