#include "host-agent/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "proto/support/refusal.h"
#include "tools/pki/pki.h"

namespace cxlpool::agent {
namespace {

using ::testing::HasSubstr;

class CredentialsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cxlpool-credentials-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    ASSERT_TRUE(pki::InitAuthority(directory_, false).ok());
    Issue(pki::LeafRole::kHost, "host-a");
    Issue(pki::LeafRole::kHost, "host-b");
    Issue(pki::LeafRole::kOperator, "alice");
    Issue(pki::LeafRole::kManager, "fm");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Issue(pki::LeafRole role, const std::string& name) {
    pki::LeafRequest leaf;
    leaf.role = role;
    leaf.name = name;
    ASSERT_TRUE(pki::IssueLeaf(directory_, leaf).ok());
  }

  // Of host-a, with the certificate and key of this stem.
  absl::StatusOr<std::shared_ptr<TlsSource>> Load(const std::string& stem) {
    const auto config = ParseAgentConfig(
        "host = \"host-a\"\nadapter = \"linux\"\n[manager]\naddress = \"fm:7600\"\n[tls]\nca = \"" +
            directory_ + "/ca.pem\"\ncert = \"" + directory_ + "/" + stem + ".pem\"\nkey = \"" +
            directory_ + "/" + stem + ".key\"\n",
        "agent.toml");
    EXPECT_TRUE(config.ok()) << config.status();
    return LoadTlsOf(*config);
  }

  std::string directory_;
};

TEST_F(CredentialsTest, TheHostsOwnCertificateWillDo) {
  const auto source = Load("host-host-a");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->current()->cert_file, directory_ + "/host-host-a.pem");
}

TEST_F(CredentialsTest, AnothersWillNotAndIsToldWithItsPlace) {
  for (const char* stem : {"host-host-b", "operator-alice", "manager-fm"}) {
    const absl::Status status = Load(stem).status();
    EXPECT_EQ(ReasonOf(status), "TLS_WRONG_ROLE") << stem;
    EXPECT_THAT(std::string(status.message()), HasSubstr("agent.toml:7: tls.cert: ")) << stem;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cxlpool pki issue host host-a")) << stem;
  }
  const absl::Status missing = Load("host-host-c").status();
  EXPECT_EQ(ReasonOf(missing), "TLS_FILE");
}

TEST(CredentialsOfNobodyTest, WithoutTlsThereAreNone) {
  const auto source = LoadTlsOf(AgentConfig());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(*source, nullptr);
}

}  // namespace
}  // namespace cxlpool::agent
