#include "fabric-manager/config.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kGood[] = R"(
[[listen]]
address = "unix:/run/cxlpool/fm.sock"
insecure = true

[store]
path = "/var/lib/cxlpool/pool.db"

[fabric]
driver = "emulated"
root = "/run/cxlpool/fabric"

[[device]]
id = "cmm-0"
capacity = "2GiB"

[[host]]
id = "host-a"
slots = [1, 2]
)";

TEST(FmConfigTest, ReadsAGoodFile) {
  const auto config = ParseFmConfig(kGood, "fm.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices.at(0).capacity_bytes, 2ull << 30);
  EXPECT_EQ(config->devices.at(0).granule_bytes, 256ull << 20);
  EXPECT_EQ(config->hosts.at(0).slots, (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(config->listen.at(0).insecure);
  EXPECT_FALSE(config->tls.has_value());
}

TEST(FmConfigTest, SaysWhatIsWrongAndWhere) {
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> cases = {
      {{"\"2GiB\"", "\"1.9GiB\""}, "fm.toml:15: device[0].capacity: is not a"},
      {{"\"2GiB\"", "\"300MiB\""}, "is not a multiple of the granule"},
      {{"[1, 2]", "[1, 1]"}, "host[0].slots"},
      {{"\"emulated\"", "\"cci\""}, "fabric.driver: is no fabric driver"},
      {{"host-a", "Host A"}, "host[0].id: is not well formed"},
      {{"insecure = true", "insecure = 1"}, "is not a boolean"},
      {{"[store]", "[shop]"}, "store.path: is missing"},
      {{"root =", "rood ="}, "fabric.root: is missing"},
      {{"slots =", "uid = 5\nodd = 1\nslots ="}, "host[0].odd: is not a key"},
  };
  for (const auto& [edit, expected] : cases) {
    const std::string text = absl::StrReplaceAll(kGood, {{edit.first, edit.second}});
    const absl::Status status = ParseFmConfig(text, "fm.toml").status();
    EXPECT_EQ(ReasonOf(status), "BAD_CONFIG") << edit.second;
    EXPECT_TRUE(absl::StrContains(status.message(), expected)) << status;
  }
}

TEST(FmConfigTest, AMissingFileIsNamed) {
  EXPECT_EQ(ReasonOf(LoadFmConfig("/nowhere/fm.toml").status()), "NO_CONFIG");
}

}  // namespace
}  // namespace cxlpool::fm
