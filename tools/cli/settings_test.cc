#include "tools/cli/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

constexpr char kWhole[] =
    "manager = \"fm.example:7443\"\nca = \"ca.pem\"\ncert = \"/abs/op.pem\"\nkey = \"op.key\"\n"
    "server_name = \"fm.other\"\n";

class SettingsTest : public testing::Test {
 protected:
  SettingsTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cxlpool-cli-XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  ~SettingsTest() override { std::filesystem::remove_all(dir_); }

  std::string File(const std::string& name, const std::string& text) {
    const std::string path = (dir_ / name).string();
    std::ofstream(path) << text;
    return path;
  }

  std::filesystem::path dir_;
};

TEST_F(SettingsTest, ReadsTheFile) {
  const std::string path = File("cli.toml", kWhole);
  const auto settings = ResolveSettings({.config = path}, {});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->manager, "fm.example:7443");
  EXPECT_EQ(settings->ca, (dir_ / "ca.pem").string());
  EXPECT_EQ(settings->cert, "/abs/op.pem");
  EXPECT_EQ(settings->key, (dir_ / "op.key").string());
  EXPECT_EQ(settings->server_name, "fm.other");
  EXPECT_FALSE(settings->insecure);
}

TEST_F(SettingsTest, FlagsOutweighTheEnvironmentAndThatTheFile) {
  const std::string path = File("cli.toml", kWhole);
  Environment environment{.manager = "env:1", .config = path, .config_files = {}};
  EXPECT_EQ(ResolveSettings({}, environment)->manager, "env:1");
  const auto settings = ResolveSettings({.manager = "flag:1", .ca = "flag.pem"}, environment);
  EXPECT_EQ(settings->manager, "flag:1");
  EXPECT_EQ(settings->ca, "flag.pem");
  EXPECT_EQ(settings->cert, "/abs/op.pem");
}

TEST_F(SettingsTest, TheFirstFileFoundCountsAlone) {
  const std::string first = File("first.toml", "manager = \"unix:/a\"");
  const std::string second = File("second.toml", kWhole);
  const Environment environment{
      .manager = "", .config = "", .config_files = {(dir_ / "none").string(), first, second}};
  const auto settings = ResolveSettings({}, environment);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->manager, "unix:/a");
  EXPECT_EQ(settings->ca, "");
}

TEST_F(SettingsTest, AFileThatIsNamedMustBeThere) {
  const auto settings = ResolveSettings({.config = (dir_ / "none").string()}, {});
  EXPECT_EQ(ReasonOf(settings.status()), "NO_CONFIG");
}

TEST_F(SettingsTest, AFileThatIsThereAndCannotBeReadIsNotPassedOver) {
  const std::string second = File("second.toml", "manager = \"unix:/b\"");
  const std::string link = (dir_ / "link.toml").string();
  std::filesystem::create_symlink(dir_ / "gone.toml", link);
  const std::string loop = (dir_ / "loop.toml").string();
  std::filesystem::create_symlink(loop, loop);
  for (const std::string& first : {link, loop}) {
    const auto settings =
        ResolveSettings({}, {.manager = "", .config = "", .config_files = {first, second}});
    EXPECT_EQ(ReasonOf(settings.status()), "NO_CONFIG") << first;
    EXPECT_THAT(settings.status().message(), HasSubstr(first));
  }
}

TEST_F(SettingsTest, SaysWhatIsMissing) {
  EXPECT_EQ(ReasonOf(ResolveSettings({}, {}).status()), "NO_MANAGER");
  const auto settings = ResolveSettings({.manager = "fm:1", .ca = "ca.pem"}, {});
  EXPECT_EQ(ReasonOf(settings.status()), "NO_TLS");
  EXPECT_THAT(settings.status().message(), HasSubstr("no cert file"));
}

TEST_F(SettingsTest, ATokenTakesTheCertificatesPlace) {
  const auto token = [](const ConnectionFlags& flags, const std::string& environment) {
    const auto settings = ResolveSettings(flags, {.token_file = environment});
    return settings.ok() ? settings->token_file : ReasonOf(settings.status());
  };
  EXPECT_EQ(token({.manager = "fm:1", .ca = "ca.pem"}, "/t"), "/t");
  EXPECT_EQ(token({.manager = "fm:1", .ca = "ca.pem", .token_file = "/u"}, "/t"), "/u");
  EXPECT_EQ(token({.manager = "fm:1"}, "/t"), "NO_TLS");
  EXPECT_EQ(token({.manager = "fm:1", .ca = "ca.pem", .cert = "c.pem"}, "/t"), "NO_TLS");
  EXPECT_EQ(token({.manager = "fm:1", .ca = "ca.pem", .cert = "c.pem", .key = "k"}, "/t"), "");
  const std::string path = File("token.toml", "manager = \"fm:1\"\nca = \"c\"\ntoken_file = \"t\"");
  EXPECT_EQ(token({.config = path}, ""), (dir_ / "t").string());
  EXPECT_EQ(token({.config = path}, "/t"), "/t");
}

TEST_F(SettingsTest, AnAddressIsHostAndPort) {
  for (const char* address : {"foo", "fm.example:0", "fm.example:99999", "unix:relative", ":"}) {
    const auto settings = ResolveSettings({.manager = address, .insecure = true}, {});
    EXPECT_EQ(ReasonOf(settings.status()), "BAD_ADDRESS") << address;
  }
}

TEST_F(SettingsTest, NoTlsOnlyWhereItIsAskedForOrASocket) {
  EXPECT_TRUE(ResolveSettings({.manager = "unix:/run/x"}, {})->insecure);
  EXPECT_TRUE(ResolveSettings({.manager = "127.0.0.1:1", .insecure = true}, {})->insecure);
  EXPECT_FALSE(ResolveSettings({.manager = "127.0.0.1:1"}, {}).ok());
  const auto tls =
      ResolveSettings({.manager = "unix:/run/x", .ca = "a", .cert = "b", .key = "c"}, {});
  EXPECT_FALSE(tls->insecure);
  EXPECT_EQ(tls->server_name, "fm.cxlpool");
}

// The way back in for root of a manager's machine, whose file has certificates that may be refused.
TEST_F(SettingsTest, ASocketOnTheCommandLineNeedsNoneOfTheFilesCertificates) {
  const std::string whole = File("cli.toml", kWhole);
  const std::string token =
      File("token.toml", "manager = \"fm:1\"\nca = \"c\"\ntoken_file = \"t\"");
  for (const std::string& path : {whole, token}) {
    const auto socket = ResolveSettings({.config = path, .manager = "unix:/run/x"}, {});
    ASSERT_TRUE(socket.ok()) << socket.status();
    EXPECT_TRUE(socket->insecure);
    EXPECT_EQ(socket->ca + socket->cert + socket->key + socket->token_file, "");
  }
  // A flag says that the socket is one with TLS; the file has the rest.
  const auto tls =
      ResolveSettings({.config = whole, .manager = "unix:/run/x", .ca = "flag.pem"}, {});
  ASSERT_TRUE(tls.ok()) << tls.status();
  EXPECT_FALSE(tls->insecure);
  EXPECT_EQ(tls->cert, "/abs/op.pem");
  // So does a file that names the socket and the certificates.
  const std::string both =
      File("both.toml", "manager = \"unix:/run/x\"\nca = \"a\"\ncert = \"b\"\nkey = \"c\"\n");
  EXPECT_FALSE(ResolveSettings({.config = both}, {})->insecure);
  EXPECT_EQ(ResolveSettings({.config = whole, .manager = "unix:/a,fm:1"}, {})->cert, "/abs/op.pem");
}

TEST_F(SettingsTest, SeveralManagersStandInOneText) {
  const auto settings = ResolveSettings({}, {.manager = "unix:/a, unix:/b"});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->manager, "unix:/a, unix:/b");
  EXPECT_TRUE(settings->insecure) << "all are Unix sockets";
  EXPECT_EQ(ReasonOf(ResolveSettings({.manager = "unix:/a,fm:1"}, {}).status()), "NO_TLS");
  EXPECT_EQ(ReasonOf(ResolveSettings({.manager = "fm:1,,fm:2"}, {}).status()), "BAD_ADDRESS");
  EXPECT_EQ(ReasonOf(ResolveSettings({.manager = "fm:1,fm:1"}, {}).status()), "BAD_ADDRESS");
}

TEST_F(SettingsTest, AFlagOutweighsTheFilesInsecure) {
  const std::string path = File("cli.toml", "manager = \"127.0.0.1:1\"\ninsecure = true\n");
  EXPECT_TRUE(ResolveSettings({.config = path}, {})->insecure);
  const auto tls = ResolveSettings({.config = path, .ca = "a", .cert = "b", .key = "c"}, {});
  EXPECT_FALSE(tls->insecure);
}

TEST(ConfigFileTest, NamesFileLineAndKey) {
  const auto unknown = ParseSettings("manager = \"a:1\"\nmanger = \"b\"\n", "/etc/x.toml");
  EXPECT_EQ(ReasonOf(unknown.status()), "BAD_CONFIG");
  EXPECT_THAT(unknown.status().message(), HasSubstr("/etc/x.toml:2: manger"));
  EXPECT_THAT(ParseSettings("\n\nmanager = \n", "x").status().message(), HasSubstr("x:3"));
}

TEST(ConfigFileTest, RefusesWrongTypesAndContradictions) {
  for (const char* text : {"manager = 1", "manager = \"\"", "insecure = \"yes\"", "insecure = 1",
                           "[manager]", "ca = [\"a\"]", "insecure = true\nca = \"x\"",
                           "= =", "\xff\xfe", "key = \"\"", "other = 1"}) {
    EXPECT_EQ(ReasonOf(ParseSettings(text, "x").status()), "BAD_CONFIG") << text;
  }
}

constexpr char kContexts[] =
    "manager = \"unix:/top\"\n[contexts.prod]\nmanager = \"fm.prod:1\"\nca = \"ca.pem\"\n"
    "cert = \"op.pem\"\nkey = \"op.key\"\n[contexts.lab]\nmanager = \"unix:/lab\"\n";

TEST_F(SettingsTest, AContextCountsAloneAndTakesOverNothing) {
  const std::string path = File("cli.toml", kContexts);
  EXPECT_EQ(ResolveSettings({.config = path}, {})->manager, "unix:/top");
  const auto prod = ResolveSettings({.context = "prod", .config = path}, {});
  ASSERT_TRUE(prod.ok()) << prod.status();
  EXPECT_EQ(prod->manager, "fm.prod:1");
  EXPECT_EQ(prod->ca, (dir_ / "ca.pem").string());
  const auto lab = ResolveSettings({.context = "lab", .config = path}, {});
  EXPECT_EQ(lab->manager, "unix:/lab");
  EXPECT_TRUE(lab->insecure && lab->ca.empty());

  const std::string chosen = File("chosen.toml", absl::StrCat("current = \"lab\"\n", kContexts));
  EXPECT_EQ(ResolveSettings({.config = chosen}, {})->manager, "unix:/lab");
  EXPECT_EQ(ResolveSettings({.context = "prod", .config = chosen}, {})->manager, "fm.prod:1");
}

TEST_F(SettingsTest, TheContextThatIsNamedIsNotTheEnvironmentsManager) {
  const std::string path = File("cli.toml", kContexts);
  const Environment environment{.manager = "env:1", .config = path, .config_files = {}};
  EXPECT_EQ(ResolveSettings({.context = "lab"}, environment)->manager, "unix:/lab");
  EXPECT_EQ(ResolveSettings({.context = "lab", .manager = "unix:/flag"}, environment)->manager,
            "unix:/flag");
  EXPECT_EQ(
      ResolveSettings({}, {.manager = "unix:/env", .config = path, .config_files = {}})->manager,
      "unix:/env");
}

TEST_F(SettingsTest, AnUnknownContextIsRefusedWithThoseThereAre) {
  const std::string path = File("cli.toml", kContexts);
  const absl::Status status = ResolveSettings({.context = "prodd", .config = path}, {}).status();
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_CONTEXT");
  EXPECT_THAT(status.message(), HasSubstr("did you mean \"prod\"?"));
  EXPECT_EQ(RefusalOf(status)->remedy, "use one of lab, prod");
  EXPECT_EQ(ReasonOf(ResolveSettings({.context = "x"}, {}).status()), "UNKNOWN_CONTEXT");
  // Of a script whose variable is not set; the current one is not what it meant.
  EXPECT_EQ(ReasonOf(ResolveSettings({.context = "", .config = path}, {}).status()),
            "UNKNOWN_CONTEXT");
}

TEST_F(SettingsTest, TheRemedyForAnUnknownContextIsRightToml) {
  const std::string path = File("cli.toml", "manager = \"unix:/top\"\n");
  const auto remedy = [&](const char* name) {
    const auto settings = ResolveSettings({.context = name, .config = path}, {});
    const auto refusal = RefusalOf(settings.status());
    return refusal.has_value() ? refusal->remedy : "";
  };
  EXPECT_THAT(remedy("lab"), HasSubstr("write [contexts.lab] with"));
  EXPECT_THAT(remedy("rack7.lab"), HasSubstr("write [contexts.\"rack7.lab\"] with"));
  EXPECT_THAT(remedy("a b"), HasSubstr("write [contexts.NAME] with"));
}

TEST(ConfigFileTest, RefusesBadContexts) {
  for (const char* text : {"current = \"x\"", "current = \"\"", "contexts = 1", "contexts.a = 1",
                           "[contexts.a]\nmanger = \"x\"", "[contexts.\"a b\"]", "[contexts.-a]",
                           "[contexts.a]\ncurrent = \"a\""}) {
    EXPECT_EQ(ReasonOf(ParseSettings(text, "x").status()), "BAD_CONFIG") << text;
  }
}

TEST(ConfigFileTest, TheTableOfASlurmCluster) {
  const auto file = ParseSettings(
      "manager = \"fm:7600\"\n[slurm]\npool = \"far\"\nprefix = \"east\"\ntenant = \"ml\"\n"
      "granule = \"16MiB\"\nlease = \"1h\"\nwait = \"30s\"\nstate = \"/s\"\n",
      "/etc/cli.toml");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->slurm, (SlurmSettings{.pool = "far",
                                        .prefix = "east",
                                        .tenant = "ml",
                                        .granule_bytes = 16 << 20,
                                        .lease = absl::Hours(1),
                                        .wait = absl::Seconds(30),
                                        .state = "/s"}));
  EXPECT_EQ(ParseSettings("", "/etc/cli.toml")->slurm, SlurmSettings());
  for (const char* line :
       {"pool = \"a b\"", "pool = \"a\\\"b\"", "prefix = \"slurm-1\"", "prefix = \"\"",
        "granule = 0", "lease = \"5s\"", "wait = \"0s\"", "state = \"here\"", "pools = \"cxl\"",
        "tenant = \"ml\"\ntenant_is_account = true",
        "prefix = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""}) {
    const auto refused = ParseSettings(absl::StrCat("[slurm]\n", line, "\n"), "/etc/cli.toml");
    EXPECT_EQ(ReasonOf(refused.status()), "BAD_CONFIG") << line;
  }
}

TEST(ConfigFileTest, ANewCurrentContextChangesNothingElse) {
  EXPECT_EQ(*WithCurrent(kContexts, "x", "lab"), absl::StrCat("current = \"lab\"\n", kContexts));
  const std::string with = absl::StrCat("# Ours.\n current=\"lab\" # why\n", kContexts);
  EXPECT_EQ(*WithCurrent(with, "x", "prod"),
            absl::StrCat("# Ours.\ncurrent = \"prod\"  # why\n", kContexts));
  EXPECT_EQ(ReasonOf(WithCurrent(kContexts, "x", "nobody").status()), "UNKNOWN_CONTEXT");
  // In the way: a key that is quoted, so that there would be two.
  EXPECT_EQ(
      ReasonOf(
          WithCurrent(absl::StrCat("\"current\" = \"lab\"\n", kContexts), "x", "prod").status()),
      "CANNOT_EDIT");
}

TEST_F(SettingsTest, AHugeFileIsRefused) {
  const std::string path = File("cli.toml", std::string(2'000'000, '#'));
  EXPECT_EQ(ReasonOf(ReadSettingsFile(path).status()), "BAD_CONFIG");
}

TEST(ConfigFileTest, BoundsNesting) {
  EXPECT_EQ(ReasonOf(ParseSettings("a = " + std::string(60'000, '['), "x").status()), "BAD_CONFIG");
}

}  // namespace
}  // namespace cxlpool::cli
