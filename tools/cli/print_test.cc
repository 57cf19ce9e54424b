#include "tools/cli/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(PrintTest, YamlHasTheFieldsOfJson) {
  v1::ListHostsResponse hosts;
  hosts.add_hosts()->set_name("hosts/host-a");
  std::ostringstream out;
  Printer printer{.out = out, .err = out, .format = OutputFormat::kYaml};
  EXPECT_TRUE(printer.for_programs());
  ASSERT_TRUE(Print(printer, hosts, "for people").ok());
  EXPECT_THAT(out.str(), StartsWith("hosts:\n- name: hosts/host-a\n  identity: \"\"\n"));
  EXPECT_THAT(out.str(), HasSubstr("\n  memory_block_bytes: \"0\"\n"));
}

TEST(PrintTest, NamesOfWhatHasNone) {
  v1::ListRoleBindingsResponse bindings;
  bindings.add_role_bindings()->set_identity("cxlpool://token/scraper");
  bindings.add_role_bindings()->set_identity("spiffe://site/ci");
  v1::ListRevocationsResponse revocations;
  revocations.add_revocations()->set_subject("7A01");
  revocations.add_revocations()->set_subject("cxlpool://operator/alice");
  std::ostringstream out;
  Printer printer{.out = out, .err = out, .format = OutputFormat::kName};
  ASSERT_TRUE(Print(printer, bindings, "").ok());
  ASSERT_TRUE(Print(printer, revocations, "").ok());
  EXPECT_EQ(out.str(),
            "cxlpool://token/scraper\nspiffe://site/ci\n7A01\ncxlpool://operator/alice\n");
}

TEST(PrintTest, OneOfManyIsALineOrBeginsWithOne) {
  v1::SilentHost host;
  host.set_host("hosts/host-a");
  std::ostringstream out;
  Printer printer{.out = out, .err = out, .format = OutputFormat::kJson, .one_of_many = true};
  ASSERT_TRUE(Print(printer, host, "").ok());
  printer.format = OutputFormat::kYaml;
  ASSERT_TRUE(Print(printer, host, "").ok());
  EXPECT_EQ(out.str(),
            "{\"host\":\"hosts/host-a\",\"reason\":\"\"}\n"
            "---\nhost: hosts/host-a\nreason: \"\"\n");
}

TEST(PrintTest, ErrorsAreInTheFormatThatWasAskedFor) {
  const absl::Status status = absl::InternalError("no: way");
  EXPECT_THAT(ErrorAs(OutputFormat::kTable, status), StartsWith("cxlpool: error: no: way\n"));
  EXPECT_THAT(ErrorAs(OutputFormat::kJson, status), StartsWith("{\"error\": "));
  EXPECT_THAT(ErrorAs(OutputFormat::kYaml, status),
              StartsWith("error:\n  code: INTERNAL\n  reason: INTERNAL\n  message: \"no: way\"\n"));
}

}  // namespace
}  // namespace cxlpool::cli
