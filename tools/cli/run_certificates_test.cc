#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>

#include "proto/support/refusal.h"
#include "tools/cli/execute.h"
#include "tools/cli/testing.h"
#include "tools/pki/pki.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class RunCertificatesTest : public testing::Test {
 protected:
  RunCertificatesTest() : before_(std::filesystem::current_path()) {
    dir_ = testing::TempDir() + "run-certificates-XXXXXX";
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    std::filesystem::current_path(dir_);
  }
  ~RunCertificatesTest() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(dir_);
  }

  absl::Status Revoke(const std::string& subject) {
    RevokeCertificate command;
    command.request.set_subject(subject);
    fake_.manager.RevokeCertificate_calls.answers = {v1::Revocation()};
    return Run(std::move(command));
  }
  absl::Status Run(PoolCommand command) {
    Printer printer{.out = out_, .err = err_, .format = OutputFormat::kTable};
    return Execute(std::move(command), fake_.connection, printer);
  }
  // What the manager was asked for last.
  std::string Revoked() { return fake_.manager.RevokeCertificate_calls.requests.back().subject(); }

  const std::filesystem::path before_;
  std::string dir_;
  FakeConnection fake_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(RunCertificatesTest, WhatIsRevokedIsAnIdentityASerialNumberOrAFile) {
  ASSERT_TRUE(Revoke("cxlpool://operator/ada").ok());
  EXPECT_EQ(Revoked(), "cxlpool://operator/ada");
  ASSERT_TRUE(Revoke("0x40:0A:0b:0c:0d:0e:0f:10").ok());
  EXPECT_EQ(Revoked(), "400a0b0c0d0e0f10");
  ASSERT_TRUE(pki::InitAuthority(dir_, false).ok());
  pki::LeafRequest request;
  request.role = pki::LeafRole::kOperator;
  request.name = "ada";
  const auto ada = pki::IssueLeaf(dir_, request);
  ASSERT_TRUE(ada.ok()) << ada.status();
  ASSERT_TRUE(Revoke(ada->cert).ok());
  EXPECT_EQ(Revoked(), pki::ShowCertificate(ada->cert)->serial);
  // A file goes before what could be a number.
  std::filesystem::rename(ada->cert, dir_ + "/ada");
  ASSERT_TRUE(Revoke("ada").ok());
  EXPECT_EQ(Revoked(), pki::ShowCertificate("ada")->serial);
}

TEST_F(RunCertificatesTest, ANameOfHexadecimalDigitsIsNoSerialNumber) {
  for (const char* name : {"ada", "dee", "a1", "deadbeefcafe123"}) {
    const absl::Status refused = Revoke(name);
    EXPECT_EQ(ReasonOf(refused), "BAD_SERIAL_NUMBER") << name;
    EXPECT_THAT(RefusalOf(refused)->remedy, HasSubstr(std::string("cxlpool://operator/") + name));
    EXPECT_THAT(RefusalOf(refused)->remedy, HasSubstr("whole serial number"));
  }
  EXPECT_THAT(RefusalOf(Revoke("0x7A:01"))->remedy, HasSubstr("cxlpool://operator/NAME"));
  EXPECT_TRUE(fake_.manager.RevokeCertificate_calls.requests.empty());
}

TEST_F(RunCertificatesTest, OtherNamesAreNoFilesAndNobodyIsToldToIssueOne) {
  const absl::Status name = Revoke("alice");
  EXPECT_EQ(ReasonOf(name), "NO_FILE");
  EXPECT_THAT(RefusalOf(name)->remedy, HasSubstr("cxlpool://operator/alice"));
  const absl::Status path = Revoke("pki/operator-alice.pem");
  EXPECT_EQ(ReasonOf(path), "NO_FILE");
  EXPECT_EQ(RefusalOf(path)->remedy, "check the path");
  for (const absl::Status& refused : {name, path}) {
    EXPECT_THAT(RefusalOf(refused)->remedy, Not(HasSubstr("pki issue")));
  }
  EXPECT_TRUE(fake_.manager.RevokeCertificate_calls.requests.empty());
}

// What was revoked by mistake, or by another program.
TEST_F(RunCertificatesTest, AShortSerialNumberThatIsListedIsRestored) {
  RestoreCertificate command;
  command.request.set_subject("ada");
  fake_.manager.RestoreCertificate_calls.answers = {v1::RestoreCertificateResponse()};
  ASSERT_TRUE(Run(std::move(command)).ok());
  EXPECT_EQ(fake_.manager.RestoreCertificate_calls.requests.back().subject(), "ada");
}

}  // namespace
}  // namespace cxlpool::cli
