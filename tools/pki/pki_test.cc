#include "tools/pki/pki.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/time/clock.h"
#include "proto/support/refusal.h"
#include "tools/pki/certificate.h"
#include "tools/pki/pem_file.h"

namespace cxlpool::pki {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;

X509Ptr Load(const std::string& path) {
  FILE* const file = std::fopen(path.c_str(), "re");
  X509Ptr certificate(PEM_read_X509(file, nullptr, nullptr, nullptr), X509_free);
  std::fclose(file);
  return certificate;
}

std::string Print(const std::string& path) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  X509_print(bio.get(), Load(path).get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

class PkiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-pki-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    dir_ = directory_ + "/pki";
  }
  void TearDown() override { fs::remove_all(directory_); }

  IssuedFiles Issue(LeafRole role, const std::string& name) {
    LeafRequest request;
    request.role = role;
    request.name = name;
    const auto files = IssueLeaf(dir_, request);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *files : IssuedFiles{};
  }

  std::string directory_, dir_;
};

mode_t ModeOf(const std::string& path) {
  struct stat found = {};
  EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
  return found.st_mode & 0777;
}

TEST_F(PkiTest, AuthorityIsPrivateAndLastsTenYears) {
  const auto files = InitAuthority(dir_, false);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(ModeOf(dir_), 0700u);
  EXPECT_EQ(ModeOf(files->key), 0600u);
  EXPECT_EQ(ModeOf(files->cert), 0644u);
  const std::string text = Print(files->cert);
  EXPECT_THAT(text, HasSubstr("CA:TRUE, pathlen:0"));
  EXPECT_THAT(text, HasSubstr("ASN1 OID: prime256v1"));
  const X509Ptr ca = Load(files->cert);
  int days = 0, seconds = 0;
  ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(ca.get()));
  EXPECT_NEAR(days, 3649, 1);
  ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(ca.get()), nullptr);
  EXPECT_EQ(days, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2);
}

TEST_F(PkiTest, AuthorityIsNeverOverwrittenUnlessForced) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  const auto before = ReadPemFile(dir_ + "/ca.key");
  const auto again = InitAuthority(dir_, false);
  EXPECT_EQ(ReasonOf(again.status()), "CA_EXISTS");
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("--force"));
  EXPECT_EQ(*ReadPemFile(dir_ + "/ca.key"), *before);
  EXPECT_TRUE(InitAuthority(dir_, true).ok());
  EXPECT_NE(*ReadPemFile(dir_ + "/ca.key"), *before);
}

TEST_F(PkiTest, LeavesCarryTheirIdentityAndVerify) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  const IssuedFiles host = Issue(LeafRole::kHost, "host-a");
  const IssuedFiles manager = Issue(LeafRole::kManager, "fm");
  const IssuedFiles person = Issue(LeafRole::kOperator, "alice");
  EXPECT_EQ(host.cert, dir_ + "/host-host-a.pem");
  EXPECT_THAT(Print(host.cert), HasSubstr("URI:cxlpool://host/host-a"));
  EXPECT_THAT(Print(person.cert), HasSubstr("URI:cxlpool://operator/alice"));
  const std::string text = Print(manager.cert);
  for (const char* part : {"URI:cxlpool://manager/fm", "DNS:fm.cxlpool", "DNS:localhost",
                           "IP Address:127.0.0.1", "TLS Web Server Authentication"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const X509Ptr ca = Load(manager.ca);
  for (const IssuedFiles& files : {host, manager, person}) {
    const X509Ptr leaf = Load(files.cert);
    EXPECT_EQ(X509_verify(leaf.get(), X509_get0_pubkey(ca.get())), 1) << files.cert;
    EXPECT_EQ(ModeOf(files.key), 0600u);
    int days = 0, seconds = 0;
    ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(leaf.get()));
    EXPECT_NEAR(days, 364, 1);
  }
}

TEST_F(PkiTest, HostCannotPassForAServer) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  EXPECT_EQ(Print(Issue(LeafRole::kHost, "host-a").cert).find("Server Authentication"),
            std::string::npos);
}

TEST_F(PkiTest, GivenNamesAreAdded) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  LeafRequest request;
  request.role = LeafRole::kManager;
  request.name = "fm";
  request.dns = {"rack7.example.com"};
  request.ips = {"192.0.2.7", "2001:db8::7"};
  const auto files = IssueLeaf(dir_, request);
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string text = Print(files->cert);
  EXPECT_THAT(text, HasSubstr("DNS:rack7.example.com"));
  EXPECT_THAT(text, HasSubstr("IP Address:192.0.2.7"));
  EXPECT_THAT(text, HasSubstr("IP Address:2001:DB8:0:0:0:0:0:7"));
}

TEST_F(PkiTest, BadNamesAreRefusedAndLeaveNothing) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  LeafRequest request;
  for (const char* name : {"", "Host", "../x", "a,URI:cxlpool://operator/root"}) {
    request.name = name;
    EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "BAD_NAME") << name;
  }
  request.role = LeafRole::kManager;
  request.name = "fm";
  request.dns = {"a,URI:cxlpool://operator/root"};
  EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "BAD_DNS_NAME");
  request.dns = {};
  request.ips = {"192.0.2.300"};
  EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "BAD_IP");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2);
}

TEST_F(PkiTest, IssuingNeedsAnAuthorityThatIsWhole) {
  LeafRequest request;
  request.name = "host-a";
  EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "NO_CA");
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  const auto other = MakeAuthority("other", absl::Now(), absl::Now() + absl::Hours(1));
  ASSERT_TRUE(WritePemFile(dir_ + "/ca.key", other->key, 0600, true).ok());
  EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "BAD_CA");
  ASSERT_TRUE(WritePemFile(dir_ + "/ca.key", "nonsense", 0600, true).ok());
  EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "BAD_CA");
}

// As `cxlpool-fm init` leaves /etc/cxlpool/pki. To make an authority there would break the pool.
TEST_F(PkiTest, WhereTheKeyIsElsewhereNobodyIsToldToMakeAnAuthority) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  fs::remove(dir_ + "/ca.key");
  LeafRequest request;
  request.name = "host-a";
  for (const absl::Status& refused :
       {IssueLeaf(dir_, request).status(), RenewLeaf(dir_, LeafRole::kHost, "host-a").status()}) {
    EXPECT_EQ(ReasonOf(refused), "NO_CA");
    EXPECT_THAT(RefusalOf(refused)->message, HasSubstr("kept elsewhere"));
    EXPECT_THAT(RefusalOf(refused)->remedy, HasSubstr("--dir"));
    EXPECT_THAT(RefusalOf(refused)->remedy, Not(HasSubstr("pki init")));
  }
  const absl::Status again = InitAuthority(dir_, false).status();
  EXPECT_EQ(ReasonOf(again), "CA_EXISTS");
  EXPECT_THAT(RefusalOf(again)->remedy, Not(HasSubstr("--force")));
}

TEST_F(PkiTest, TheAuthorityIsWhereInitMadeItOrInPki) {
  ASSERT_TRUE(PrepareDirectory(dir_).ok());
  EXPECT_EQ(AuthorityDirectory(dir_), dir_ + "/pki");
  ASSERT_TRUE(InitAuthority(dir_ + "/authority", false).ok());
  EXPECT_EQ(AuthorityDirectory(dir_), dir_ + "/authority");
  fs::remove(dir_ + "/authority/ca.key");
  EXPECT_EQ(AuthorityDirectory(dir_), dir_ + "/pki") << "it is kept elsewhere";
}

TEST_F(PkiTest, ExpiredAuthorityIssuesNothing) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  const auto old =
      MakeAuthority("old", absl::Now() - absl::Hours(48), absl::Now() - absl::Hours(24));
  ASSERT_TRUE(WritePemFile(dir_ + "/ca.pem", old->cert, 0644, true).ok());
  ASSERT_TRUE(WritePemFile(dir_ + "/ca.key", old->key, 0600, true).ok());
  LeafRequest request;
  request.name = "host-a";
  EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "CA_EXPIRED");
}

TEST_F(PkiTest, LeafNeverOutlivesItsAuthority) {
  const absl::Time end = absl::FromTimeT(absl::ToTimeT(absl::Now() + absl::Hours(100)));
  const auto authority = MakeAuthority("short", absl::Now(), end);
  ASSERT_TRUE(authority.ok());
  CertificateRequest request;
  request.common_name = "x";
  request.not_before = absl::Now();
  request.not_after = absl::Now() + absl::Hours(10000);
  const auto leaf = MakeLeaf(*authority, request);
  ASSERT_TRUE(leaf.ok()) << leaf.status();
  EXPECT_EQ(*EndOf(leaf->cert), end);
}

TEST_F(PkiTest, LeafIsNeverOverwrittenUnlessForced) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  Issue(LeafRole::kHost, "host-a");
  LeafRequest request;
  request.name = "host-a";
  EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "CERT_EXISTS");
  request.force = true;
  EXPECT_TRUE(IssueLeaf(dir_, request).ok());
}

// There is room for a key, and not for a certificate: a new key beside the old certificate would be
// of no use to anybody.
TEST_F(PkiTest, WhatCannotBeReplacedStaysAsItWas) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  const IssuedFiles files = Issue(LeafRole::kHost, "host-a");
  const std::string key = *ReadPemFile(files.key);
  const std::string cert = *ReadPemFile(files.cert);
  LeafRequest request;
  request.name = "host-a";
  request.force = true;
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = (key.size() + cert.size()) / 2;
  const auto former = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status leaf = IssueLeaf(dir_, request).status();
  const absl::Status authority = InitAuthority(dir_, true).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, former);
  EXPECT_EQ(ReasonOf(leaf), "NO_ACCESS");
  EXPECT_EQ(ReasonOf(authority), "NO_ACCESS");
  EXPECT_EQ(*ReadPemFile(files.key), key);
  EXPECT_EQ(*ReadPemFile(files.cert), cert);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 4);
  EXPECT_TRUE(IssueLeaf(dir_, request).ok()) << "its authority is as it was, too";
  EXPECT_NE(*ReadPemFile(files.key), key);
}

TEST_F(PkiTest, EachRoleMayDoItsPartAndNoMore) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  const CertificateFacts manager = *ShowCertificate(Issue(LeafRole::kManager, "fm").cert);
  EXPECT_TRUE(manager.server_auth);
  EXPECT_FALSE(manager.client_auth);
  for (const LeafRole role : {LeafRole::kHost, LeafRole::kOperator}) {
    const CertificateFacts client = *ShowCertificate(Issue(role, "a").cert);
    EXPECT_FALSE(client.server_auth);
    EXPECT_TRUE(client.client_auth);
  }
}

TEST_F(PkiTest, NamesToDialAreForManagersOnly) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  for (const LeafRole role : {LeafRole::kHost, LeafRole::kOperator}) {
    LeafRequest request;
    request.role = role;
    request.name = "x";
    request.dns = {"fm.cxlpool"};
    EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "NOT_A_SERVER");
    request.dns = {};
    request.ips = {"127.0.0.1"};
    EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "NOT_A_SERVER");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2);
}

TEST_F(PkiTest, DaysAreTheTermAndHaveBounds) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  LeafRequest request;
  request.name = "host-a";
  request.days = 7;
  const absl::StatusOr<IssuedFiles> files = IssueLeaf(dir_, request);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_NEAR(absl::ToDoubleHours(ShowCertificate(files->cert)->not_after - absl::Now()), 24 * 7,
              0.1);
  request.force = true;
  for (const int days : {0, -1, kMaxLeafDays + 1}) {
    request.days = days;
    EXPECT_EQ(ReasonOf(IssueLeaf(dir_, request).status()), "BAD_DAYS") << days;
  }
  request.days = kMaxLeafDays;
  EXPECT_TRUE(IssueLeaf(dir_, request).ok());
}

TEST_F(PkiTest, RenewingKeepsIdentityNamesAndKey) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  LeafRequest request;
  request.role = LeafRole::kManager;
  request.name = "fm";
  request.dns = {"rack7.example.com"};
  request.ips = {"192.0.2.7"};
  request.days = 1;
  const absl::StatusOr<IssuedFiles> files = IssueLeaf(dir_, request);
  ASSERT_TRUE(files.ok()) << files.status();
  const CertificateFacts before = *ShowCertificate(files->cert);
  const std::string key = *ReadPemFile(files->key);
  const X509Ptr old = Load(files->cert);

  ASSERT_TRUE(RenewLeaf(dir_, LeafRole::kManager, "fm", 100).ok());
  const CertificateFacts after = *ShowCertificate(files->cert);
  EXPECT_EQ(after.uris, before.uris);
  EXPECT_EQ(after.dns, before.dns);
  EXPECT_EQ(after.ips, before.ips);
  EXPECT_EQ(after.common_name, before.common_name);
  EXPECT_EQ(after.server_auth, before.server_auth);
  EXPECT_EQ(after.client_auth, before.client_auth);
  EXPECT_NE(after.serial, before.serial);
  EXPECT_NEAR(absl::ToDoubleHours(after.not_after - absl::Now()), 24 * 100, 0.1);
  EXPECT_EQ(*ReadPemFile(files->key), key);
  const X509Ptr renewed = Load(files->cert);
  EXPECT_EQ(EVP_PKEY_eq(X509_get0_pubkey(old.get()), X509_get0_pubkey(renewed.get())), 1);
  EXPECT_EQ(X509_verify(renewed.get(), X509_get0_pubkey(Load(files->ca).get())), 1);
}

TEST_F(PkiTest, RenewingNeedsTheRightCertificate) {
  ASSERT_TRUE(InitAuthority(dir_, false).ok());
  EXPECT_EQ(ReasonOf(RenewLeaf(dir_, LeafRole::kHost, "host-a").status()), "NO_FILE");
  const IssuedFiles alice = Issue(LeafRole::kOperator, "alice");
  const std::string text = *ReadPemFile(alice.cert);
  ASSERT_TRUE(WritePemFile(dir_ + "/host-host-a.pem", text, 0644, false).ok());
  EXPECT_EQ(ReasonOf(RenewLeaf(dir_, LeafRole::kHost, "host-a").status()), "TLS_WRONG_ROLE");
  EXPECT_EQ(*ReadPemFile(dir_ + "/host-host-a.pem"), text);
  EXPECT_EQ(ReasonOf(RenewLeaf(dir_, LeafRole::kOperator, "alice", 0).status()), "BAD_DAYS");
  EXPECT_EQ(ReasonOf(RenewLeaf(dir_, LeafRole::kOperator, "../alice").status()), "BAD_NAME");
  EXPECT_EQ(ReasonOf(ShowCertificate(alice.key).status()), "TLS_NOT_PEM");
}

TEST_F(PkiTest, DirectoryThatOthersCanWriteIsRefused) {
  fs::create_directory(dir_);
  chmod(dir_.c_str(), 0777);
  EXPECT_EQ(ReasonOf(InitAuthority(dir_, false).status()), "UNSAFE_DIRECTORY");
}

}  // namespace
}  // namespace cxlpool::pki
