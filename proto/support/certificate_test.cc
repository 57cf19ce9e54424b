#include "proto/support/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "proto/support/refusal.h"
#include "tools/pki/certificate.h"

namespace cxlpool {
namespace {

using ::testing::ElementsAre;

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

pki::CertificateRequest Request() {
  pki::CertificateRequest request;
  request.common_name = "fm";
  request.uri = "cxlpool://manager/fm";
  request.dns = {"fm.cxlpool", "*.rack7.example"};
  request.ips = {"192.0.2.7", "2001:db8::7"};
  request.server = true;
  request.not_before = kStart;
  request.not_after = kStart + absl::Hours(24 * 90);
  return request;
}

CertificateFacts FactsOf(const pki::CertificateRequest& request) {
  const auto authority =
      pki::MakeAuthority("test", kStart - absl::Hours(1), kStart + absl::Hours(24 * 1000));
  const auto leaf = pki::MakeLeaf(*authority, request);
  EXPECT_TRUE(leaf.ok()) << leaf.status();
  return ReadCertificates(leaf->cert)->front();
}

TEST(CertificateTest, EveryFieldOfACertificateIsRead) {
  const CertificateFacts facts = FactsOf(Request());
  // A field that is added has to be looked at here, too.
  const auto& [common_name, serial, uris, dns, ips, server_auth, client_auth, authority, not_before,
               not_after] = facts;
  EXPECT_EQ(common_name, "fm");
  EXPECT_EQ(serial.size(), 32u);
  EXPECT_EQ(*CanonicalSerial(serial), serial);
  EXPECT_THAT(uris, ElementsAre("cxlpool://manager/fm"));
  EXPECT_THAT(dns, ElementsAre("fm.cxlpool", "*.rack7.example"));
  EXPECT_THAT(ips, ElementsAre("192.0.2.7", "2001:db8::7"));
  EXPECT_TRUE(server_auth);
  EXPECT_FALSE(client_auth);
  EXPECT_FALSE(authority);
  EXPECT_EQ(not_before, kStart);
  EXPECT_EQ(not_after, kStart + absl::Hours(24 * 90));
}

TEST(CertificateTest, ClientsAreNoServers) {
  pki::CertificateRequest request = Request();
  request.server = false;
  EXPECT_FALSE(FactsOf(request).server_auth);
  EXPECT_TRUE(FactsOf(request).client_auth);
}

TEST(CertificateTest, AllCertificatesOfAFileAreRead) {
  const auto one = pki::MakeAuthority("one", kStart, kStart + absl::Hours(1));
  const auto two = pki::MakeAuthority("two", kStart, kStart + absl::Hours(2));
  const auto both = ReadCertificates("text before\n" + one->cert + two->cert + one->key);
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ(both->size(), 2u);
  EXPECT_EQ((*both)[1].common_name, "two");
  EXPECT_TRUE((*both)[1].authority);
  EXPECT_EQ(ReasonOf(ReadCertificates("nothing").status()), "TLS_NOT_PEM");
}

TEST(CertificateTest, NamesStandForWhatTheyNameAndNothingElse) {
  const CertificateFacts facts = FactsOf(Request());
  EXPECT_TRUE(HasDnsName(facts, "fm.cxlpool"));
  EXPECT_TRUE(HasDnsName(facts, "FM.cxlpool"));
  EXPECT_TRUE(HasDnsName(facts, "fm2.rack7.example"));
  for (const char* other : {"fm.cxlpool.example", "x.fm.cxlpool", "rack7.example",
                            "a.b.rack7.example", ".rack7.example", "", "cxlpool"}) {
    EXPECT_FALSE(HasDnsName(facts, other)) << other;
  }
}

TEST(CertificateTest, SerialsAreComparedInOneForm) {
  for (const char* text : {"7a01", "7A01", "0x7a01", "007A01", "7A:01", "00:7a:01"}) {
    EXPECT_EQ(*CanonicalSerial(text), "7a01") << text;
  }
  EXPECT_TRUE(CanonicalSerial(std::string(40, 'f')).ok());
  for (const std::string& bad : {std::string(), std::string("0"), std::string("xyz"),
                                 std::string("7a 01"), std::string(41, 'f'), std::string("-1")}) {
    EXPECT_EQ(ReasonOf(CanonicalSerial(bad).status()), "BAD_SERIAL_NUMBER") << bad;
  }
}

TEST(CertificateTest, TheEndIsSaidThirtyDaysBefore) {
  const CertificateFacts facts = FactsOf(Request());
  const absl::Time end = facts.not_after;
  EXPECT_FALSE(facts.EndsSoonAt(end - absl::Hours(24 * 30 + 1)));
  EXPECT_TRUE(facts.EndsSoonAt(end - absl::Hours(24 * 30)));
  EXPECT_TRUE(facts.EndsSoonAt(end - absl::Seconds(1)));
  EXPECT_FALSE(facts.EndsSoonAt(end));
  EXPECT_FALSE(facts.ExpiredAt(end - absl::Seconds(1)));
  EXPECT_TRUE(facts.ExpiredAt(end));
  EXPECT_EQ(EndText(facts, end - absl::Hours(24 * 9)), "ends on " + DateText(end) + ", in 9 days");
  EXPECT_EQ(EndText(facts, end - absl::Hours(30)), "ends on " + DateText(end) + ", in 30 hours");
  EXPECT_EQ(EndText(facts, end), "EXPIRED on " + DateText(end));
  EXPECT_EQ(DateText(kStart), "2027-01-15 08:00 UTC");
}

}  // namespace
}  // namespace cxlpool
