// Credentials and identities over real handshakes on loopback.
#include "proto/support/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/time/clock.h"
#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "proto/support/openssl.h"
#include "proto/support/peer_identity.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"
#include "proto/support/tls_diagnosis.h"
#include "proto/support/unique_fd.h"
#include "tools/pki/certificate.h"

namespace cxlpool {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Answers GetTopology with the caller's identity.
class WhoAmI final : public v1::InventoryService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context,
                                        const v1::GetTopologyRequest*,
                                        v1::Topology* answer) override {
    auto* reactor = context->DefaultReactor();
    const absl::StatusOr<PeerIdentity> identity = IdentityOf(*context->auth_context());
    if (identity.ok()) answer->set_fabric(identity->uri);
    reactor->Finish(ToWire(identity.status(), *context));
    return reactor;
  }
};

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-tls-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    authority_ = NewAuthority();
    Write("ca.pem", authority_.cert, 0644);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown();
    fs::remove_all(directory_);
  }

  static pki::PemPair NewAuthority() {
    return *pki::MakeAuthority("test", absl::Now() - absl::Hours(24),
                               absl::Now() + absl::Hours(24));
  }

  std::string Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  static pki::CertificateRequest Request(const std::string& uri, bool server = false) {
    pki::CertificateRequest request;
    request.common_name = "test";
    request.uri = uri;
    request.server = server;
    if (server) request.dns = {"fm.cxlpool"};
    request.not_before = absl::Now() - absl::Hours(24);
    request.not_after = absl::Now() + absl::Hours(24);
    return request;
  }

  // Files of a leaf called `name`, trusted by this test's authority unless another issues it.
  TlsFiles Leaf(const std::string& name, const pki::CertificateRequest& request,
                const pki::PemPair* issuer = nullptr) {
    const auto pair = pki::MakeLeaf(issuer == nullptr ? authority_ : *issuer, request);
    EXPECT_TRUE(pair.ok()) << pair.status();
    return {directory_ + "/ca.pem", Write(name + ".pem", pair->cert, 0644),
            Write(name + ".key", pair->key, 0600)};
  }

  // As Leaf, with the issuer's own CA file: the files agree with each other, not with the server.
  TlsFiles StrangersLeaf(const std::string& uri) {
    const pki::PemPair other = NewAuthority();
    TlsFiles files = Leaf("stranger", Request(uri), &other);
    files.ca = Write("other-ca.pem", other.cert + authority_.cert, 0644);
    return files;
  }

  void Serve(std::shared_ptr<grpc::ServerCredentials> credentials,
             const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = address.substr(0, 5) == "unix:" ? address : "127.0.0.1:" + std::to_string(port_);
  }

  void ServeTls() {
    const auto credentials =
        ServerTls(Leaf("manager", Request("cxlpool://manager/fm", /*server=*/true)));
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    Serve(*credentials);
  }

  // The identity that the server sees.
  absl::StatusOr<std::string> Ask(std::shared_ptr<grpc::ChannelCredentials> credentials,
                                  const std::string& server_name = "fm.cxlpool") {
    grpc::ChannelArguments arguments;
    if (!server_name.empty()) arguments.SetSslTargetNameOverride(server_name);
    const auto channel = grpc::CreateCustomChannel(address_, credentials, arguments);
    const auto stub = v1::InventoryService::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::Topology answer;
    const absl::Status status =
        FromWire(stub->GetTopology(&context, {}, &answer), context, address_);
    if (!status.ok()) return status;
    return answer.fabric();
  }

  absl::StatusOr<std::string> AskAs(const TlsFiles& files,
                                    const std::string& server_name = "fm.cxlpool") {
    const auto material = LoadTls(files);
    if (!material.ok()) return material.status();
    return Ask(ClientTlsOf(*material), server_name);
  }

  std::string directory_, address_;
  pki::PemPair authority_;
  WhoAmI service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(TlsTest, HandshakeGivesTheServerTheClientsIdentity) {
  ServeTls();
  const auto host = AskAs(Leaf("host", Request("cxlpool://host/host-a")));
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(*host, "cxlpool://host/host-a");
  EXPECT_EQ(*AskAs(Leaf("person", Request("cxlpool://operator/alice"))),
            "cxlpool://operator/alice");
}

TEST_F(TlsTest, ClientWithoutACertificateIsRefused) {
  ServeTls();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authority_.cert;
  EXPECT_EQ(ReasonOf(Ask(grpc::SslCredentials(options)).status()), "MANAGER_UNREACHABLE");
  EXPECT_EQ(ReasonOf(Ask(grpc::InsecureChannelCredentials()).status()), "MANAGER_UNREACHABLE");
}

TEST_F(TlsTest, StrangersCertificateIsRefused) {
  ServeTls();
  EXPECT_EQ(ReasonOf(AskAs(StrangersLeaf("cxlpool://operator/mallory")).status()),
            "MANAGER_UNREACHABLE");
}

TEST_F(TlsTest, ExpiredClientCertificateIsRefusedByTheServerToo) {
  ServeTls();
  pki::CertificateRequest request = Request("cxlpool://host/host-a");
  request.not_after = absl::Now() - absl::Hours(1);
  const auto pair = pki::MakeLeaf(authority_, request);
  grpc::SslCredentialsOptions options{authority_.cert, pair->key, pair->cert};
  EXPECT_EQ(ReasonOf(Ask(grpc::SslCredentials(options)).status()), "MANAGER_UNREACHABLE");
}

TEST_F(TlsTest, CertificateWithoutAnIdentityIsToldSo) {
  ServeTls();
  const auto answer = AskAs(Leaf("nobody", Request("")));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(ReasonOf(answer.status()), "NO_IDENTITY");
}

TEST_F(TlsTest, ServerOfAnotherNameIsNotBelieved) {
  ServeTls();
  const auto answer = AskAs(Leaf("host", Request("cxlpool://host/host-a")), "fm.elsewhere");
  EXPECT_EQ(ReasonOf(answer.status()), "MANAGER_UNREACHABLE");
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("tls.server_name"));
}

TEST_F(TlsTest, HostCannotPassForTheManager) {
  pki::CertificateRequest request = Request("cxlpool://host/host-a");
  request.dns = {"fm.cxlpool"};
  const auto credentials = ServerTls(Leaf("host", request));
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  Serve(*credentials);
  EXPECT_EQ(ReasonOf(AskAs(Leaf("client", Request("cxlpool://host/host-b"))).status()),
            "MANAGER_UNREACHABLE");
}

TEST_F(TlsTest, PeerWithoutTlsIsTheLocalOperator) {
  Serve(grpc::InsecureServerCredentials());
  EXPECT_EQ(*Ask(grpc::InsecureChannelCredentials(), ""), "cxlpool://operator/local");
}

TEST_F(TlsTest, PeerOnAUnixSocketIsTheLocalOperator) {
  Serve(grpc::InsecureServerCredentials(), "unix:" + directory_ + "/fm.sock");
  EXPECT_EQ(*Ask(grpc::InsecureChannelCredentials(), ""), "cxlpool://operator/local");
}

TEST_F(TlsTest, MissingFileIsNamed) {
  TlsFiles files = Leaf("host", Request("cxlpool://host/host-a"));
  files.cert = directory_ + "/absent.pem";
  const absl::Status status = LoadTls(files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(files.cert));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cxlpool pki"));
}

TEST_F(TlsTest, KeyThatOthersCanReadIsRefused) {
  const TlsFiles files = Leaf("host", Request("cxlpool://host/host-a"));
  for (const mode_t mode : {0640, 0604, 0660}) {
    chmod(files.key.c_str(), mode);
    EXPECT_EQ(ReasonOf(ServerTls(files).status()), "TLS_KEY_EXPOSED");
    EXPECT_EQ(ReasonOf(LoadTls(files).status()), "TLS_KEY_EXPOSED");
  }
}

TEST_F(TlsTest, FilesThatDoNotBelongTogetherAreRefused) {
  const TlsFiles one = Leaf("one", Request("cxlpool://host/one"));
  const TlsFiles two = Leaf("two", Request("cxlpool://host/two"));
  EXPECT_EQ(ReasonOf(LoadTls({one.ca, one.cert, two.key}).status()), "TLS_KEY_MISMATCH");
  const pki::PemPair other = NewAuthority();
  EXPECT_EQ(ReasonOf(LoadTls({Write("other.pem", other.cert, 0644), one.cert, one.key}).status()),
            "TLS_WRONG_CA");
}

TEST_F(TlsTest, TextThatIsNotPemIsRefused) {
  const TlsFiles good = Leaf("host", Request("cxlpool://host/host-a"));
  const std::string text = Write("text", "not a certificate\n", 0600);
  EXPECT_EQ(ReasonOf(LoadTls({text, good.cert, good.key}).status()), "TLS_NOT_PEM");
  EXPECT_EQ(ReasonOf(LoadTls({good.ca, text, good.key}).status()), "TLS_NOT_PEM");
  EXPECT_EQ(ReasonOf(LoadTls({good.ca, good.cert, text}).status()), "TLS_NOT_PEM");
  EXPECT_EQ(ReasonOf(LoadTls({good.ca, good.cert, directory_}).status()), "TLS_FILE");
}

TEST_F(TlsTest, ExpiredAndFutureCertificatesAreRefusedWithTheirDates) {
  pki::CertificateRequest request = Request("cxlpool://host/host-a");
  request.not_after = absl::Now() - absl::Hours(1);
  EXPECT_EQ(ReasonOf(LoadTls(Leaf("expired", request)).status()), "TLS_EXPIRED");
  request = Request("cxlpool://host/host-a");
  request.not_before = absl::Now() + absl::Hours(1);
  const absl::Status future = LoadTls(Leaf("future", request)).status();
  EXPECT_EQ(ReasonOf(future), "TLS_NOT_YET_VALID");
  EXPECT_THAT(std::string(future.message()), HasSubstr("clock"));
}

TEST_F(TlsTest, WhatEachSideNeedsOfItsCertificateIsJudged) {
  const CertificateUse manager = CertificateUse::Manager(), agent = CertificateUse::Agent("host-a");
  const auto reason = [&](const pki::CertificateRequest& request, const CertificateUse& use) {
    return ReasonOf(LoadTls(Leaf("leaf", request), use).status());
  };
  pki::CertificateRequest fm = Request("cxlpool://manager/fm", /*server=*/true);
  const pki::CertificateRequest host = Request("cxlpool://host/host-a");
  EXPECT_EQ(reason(fm, manager), "");
  EXPECT_EQ(reason(host, agent), "");
  // Another role's.
  EXPECT_EQ(reason(Request("cxlpool://operator/alice"), manager), "TLS_WRONG_ROLE");
  EXPECT_EQ(reason(Request("cxlpool://operator/alice", true), manager), "TLS_WRONG_ROLE");
  EXPECT_EQ(reason(Request("cxlpool://operator/alice"), agent), "TLS_WRONG_ROLE");
  EXPECT_EQ(reason(host, manager), "TLS_WRONG_ROLE");
  EXPECT_EQ(reason(fm, agent), "TLS_WRONG_ROLE");
  EXPECT_EQ(reason(Request("spiffe://rack/fm", true), manager), "TLS_WRONG_ROLE");
  EXPECT_EQ(reason(Request("cxlpool://host/host-b"), agent), "TLS_WRONG_ROLE");
  // No identity at all.
  EXPECT_EQ(reason(Request(""), agent), "NO_IDENTITY");
  EXPECT_EQ(reason(Request("", true), manager), "NO_IDENTITY");
  // Not for the name that clients look for, or not for servers.
  EXPECT_EQ(reason(fm, CertificateUse::Manager("fm.elsewhere")), "TLS_WRONG_NAME");
  fm.dns = {"localhost"};
  EXPECT_EQ(reason(fm, manager), "TLS_WRONG_NAME");
  fm = Request("cxlpool://manager/fm");
  fm.dns = {"fm.cxlpool"};
  EXPECT_EQ(reason(fm, manager), "TLS_WRONG_USAGE");
  EXPECT_EQ(reason(Request("cxlpool://host/host-a", /*server=*/true), agent), "TLS_WRONG_USAGE");
}

TEST_F(TlsTest, AnotherSchemeMayBeEnrolledForAHost) {
  EXPECT_TRUE(LoadTls(Leaf("foreign", Request("spiffe://rack/a")), CertificateUse::Agent("host-a"))
                  .status()
                  .ok());
}

TEST_F(TlsTest, AnExpiredCertificateIsCalledThatWithDateAndRemedy) {
  pki::CertificateRequest request = Request("cxlpool://host/host-a");
  request.not_after = absl::Now() - absl::Hours(1);
  const std::string said(LoadTls(Leaf("old", request)).status().message());
  EXPECT_THAT(said, HasSubstr("EXPIRED"));
  EXPECT_THAT(said, HasSubstr(DateText(request.not_after)));
  EXPECT_THAT(said, HasSubstr("cxlpool pki renew host host-a"));
}

TEST_F(TlsTest, WhatEndsWithinThirtyDaysIsWarnedOf) {
  pki::CertificateRequest request = Request("cxlpool://host/host-a");
  authority_ = *pki::MakeAuthority("long", absl::Now(), absl::Now() + absl::Hours(24 * 400));
  Write("ca.pem", authority_.cert, 0644);
  request.not_after = absl::Now() + absl::Hours(24 * 60);
  const auto material = LoadTls(Leaf("host", request));
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_THAT(ExpiryWarnings(*material, absl::Now()), testing::IsEmpty());
  const auto soon = ExpiryWarnings(*material, absl::Now() + absl::Hours(24 * 40));
  ASSERT_EQ(soon.size(), 1u);
  EXPECT_THAT(soon[0], HasSubstr("in 19 days"));
  EXPECT_THAT(soon[0], HasSubstr(material->cert_file));
  EXPECT_THAT(soon[0], HasSubstr("cxlpool pki renew host host-a"));
  const auto late = ExpiryWarnings(*material, absl::Now() + absl::Hours(24 * 390));
  ASSERT_EQ(late.size(), 2u);
  EXPECT_THAT(late[0], HasSubstr("EXPIRED on"));
  EXPECT_THAT(late[1], HasSubstr("authority ends on"));
  const auto ends = EndsOf(*material);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_TRUE(ends[0].is_reloaded);
  EXPECT_FALSE(ends[1].is_reloaded) << "a new authority is more than a reload";
}

TEST_F(TlsTest, OneFileMayHoldTwoAuthoritiesAndTheOldOneMayHaveEnded) {
  const TlsFiles host = Leaf("host", Request("cxlpool://host/host-a"));
  const pki::PemPair old =
      *pki::MakeAuthority("old", absl::Now() - absl::Hours(48), absl::Now() - absl::Hours(24));
  Write("ca.pem", old.cert + authority_.cert, 0644);
  EXPECT_TRUE(LoadTls(host).status().ok()) << LoadTls(host).status();
  // But what the ended one issued is not believed.
  pki::CertificateRequest request = Request("cxlpool://host/host-a");
  request.not_before = absl::Now() - absl::Hours(47);
  EXPECT_EQ(ReasonOf(LoadTls(Leaf("of-old", request, &old)).status()), "TLS_EXPIRED");
}

// One server through a change of everything: a client that stands goes on, a new one needs what the
// files hold now, and files that will not do change nothing.
TEST_F(TlsTest, ReloadedFilesServeTheNextHandshake) {
  const TlsFiles files = Leaf("manager", Request("cxlpool://manager/fm", /*server=*/true));
  const auto source = TlsSource::Load(files, CertificateUse::Manager());
  ASSERT_TRUE(source.ok()) << source.status();
  Serve(ServerTls(*source));
  const TlsFiles client = Leaf("client", Request("cxlpool://operator/alice"));
  const auto material = LoadTls(client);
  ASSERT_TRUE(material.ok()) << material.status();
  const auto credentials = ClientTlsOf(*material);
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("fm.cxlpool");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto standing = grpc::CreateCustomChannel(address_, credentials, arguments);
  const auto ask_standing = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::Topology answer;
    return v1::InventoryService::NewStub(standing)->GetTopology(&context, {}, &answer).ok();
  };
  ASSERT_TRUE(ask_standing());
  EXPECT_EQ(*AskAs(client), "cxlpool://operator/alice");

  // A bad file is refused, and the old ones stay in use.
  const std::string good = (*source)->current()->cert;
  Write("manager.pem", "nonsense", 0644);
  EXPECT_EQ(ReasonOf((*source)->Reload()), "TLS_NOT_PEM");
  Write("manager.pem", client.cert, 0644);
  EXPECT_FALSE((*source)->Reload().ok());
  EXPECT_EQ((*source)->version(), 1u);
  EXPECT_EQ(*AskAs(client), "cxlpool://operator/alice");

  // New authority, certificate and key.
  const pki::PemPair old_authority = authority_;
  authority_ = NewAuthority();
  Leaf("manager", Request("cxlpool://manager/fm", /*server=*/true));
  Write("ca.pem", authority_.cert, 0644);
  ASSERT_TRUE((*source)->Reload().ok()) << (*source)->Reload();
  const TlsFiles renewed = Leaf("client2", Request("cxlpool://operator/bob"));
  EXPECT_EQ(*AskAs(renewed), "cxlpool://operator/bob");
  EXPECT_EQ(ReasonOf(Ask(credentials).status()), "MANAGER_UNREACHABLE");
  EXPECT_TRUE(ask_standing());
}

// What gRPC calls "certificate verify failed", in words.
class TlsDiagnosisTest : public TlsTest {
 protected:
  // Serves with a pair as it is, whatever LoadTls would say of it.
  void ServeRaw(const pki::CertificateRequest& request, const pki::PemPair& issuer) {
    const auto pair = pki::MakeLeaf(issuer, request);
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = authority_.cert;
    options.pem_key_cert_pairs.push_back({pair->key, pair->cert});
    Serve(grpc::SslServerCredentials(options));
  }
  absl::Status Diagnose(const std::string& server_name = "fm.cxlpool") {
    const auto material = LoadTls(Leaf("client", Request("cxlpool://operator/alice")));
    EXPECT_TRUE(material.ok()) << material.status();
    return DiagnoseManager(address_, server_name, *material, absl::Seconds(20));
  }
};

TEST_F(TlsDiagnosisTest, AnExpiredManagerIsCalledThat) {
  pki::CertificateRequest request = Request("cxlpool://manager/fm", true);
  request.not_after = absl::Now() - absl::Hours(1);
  ServeRaw(request, authority_);
  const absl::Status found = Diagnose();
  EXPECT_EQ(ReasonOf(found), "MANAGER_NOT_TRUSTED");
  EXPECT_THAT(std::string(found.message()), HasSubstr("EXPIRED on " + DateText(request.not_after)));
  EXPECT_THAT(std::string(found.message()), HasSubstr("cxlpool pki renew manager"));
}

TEST_F(TlsDiagnosisTest, EachOtherFaultOfTheManagersCertificateHasItsWords) {
  const auto said = [&](const pki::CertificateRequest& request, const pki::PemPair& issuer) {
    ServeRaw(request, issuer);
    const absl::Status found = Diagnose();
    EXPECT_EQ(ReasonOf(found), "MANAGER_NOT_TRUSTED") << found;
    server_->Shutdown();
    return std::string(found.message());
  };
  pki::CertificateRequest request = Request("cxlpool://manager/fm", true);
  EXPECT_THAT(said(request, NewAuthority()), HasSubstr("not issued by the authority"));
  request.dns = {"fm.elsewhere"};
  EXPECT_THAT(said(request, authority_), HasSubstr("not for the name \"fm.cxlpool\""));
  request = Request("cxlpool://manager/fm", true);
  request.not_before = absl::Now() + absl::Hours(1);
  EXPECT_THAT(said(request, authority_), HasSubstr("set this machine's clock"));
  request = Request("cxlpool://manager/fm");
  request.dns = {"fm.cxlpool"};
  EXPECT_THAT(said(request, authority_), HasSubstr("may not be used by a TLS server"));
}

TEST_F(TlsDiagnosisTest, WhereNothingIsWrongNothingIsFound) {
  ServeRaw(Request("cxlpool://manager/fm", true), authority_);
  EXPECT_TRUE(Diagnose().ok()) << Diagnose();
  server_->Shutdown();
  EXPECT_TRUE(Diagnose().ok()) << "nobody is there";
}

// As one does that has more connections than it takes: between our first bytes and our last ones.
// What is written then would end a program that does not ignore SIGPIPE.
TEST_F(TlsDiagnosisTest, AManagerThatHangsUpAmidTheHandshakeEndsNoProgram) {
  const auto pair = pki::MakeLeaf(authority_, Request("cxlpool://manager/fm", true));
  const auto certificate = openssl::BioOf(pair->cert), key = openssl::BioOf(pair->key);
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  const openssl::Certificate leaf(PEM_read_bio_X509(certificate.get(), nullptr, nullptr, nullptr));
  const openssl::Key secret(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
  ASSERT_EQ(SSL_CTX_use_certificate(context, leaf.get()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context, secret.get()), 1);

  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  (directory_ + "/manager").copy(name.sun_path, sizeof(name.sun_path) - 1);
  address_ = "unix:" + directory_ + "/manager";
  const UniqueFd listening(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);

  constexpr int kTimes = 20;
  std::thread manager([&] {
    for (int time = 0; time < kTimes; ++time) {
      const UniqueFd client(accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK));
      pollfd hello = {client.get(), POLLIN, 0};
      poll(&hello, 1, /*timeout=*/20'000);
      SSL* ssl = SSL_new(context);
      SSL_set_fd(ssl, client.get());
      SSL_accept(ssl);  // As far as what has come goes: mostly to its own first bytes.
      SSL_free(ssl);
    }
  });
  for (int time = 0; time < kTimes; ++time) EXPECT_TRUE(Diagnose().ok());
  manager.join();
  SSL_CTX_free(context);
}

TEST(PeerIdentityTest, UrisAreReadByTheirRole) {
  EXPECT_EQ(ParseIdentity("cxlpool://host/host-a").role, Role::kHost);
  EXPECT_EQ(ParseIdentity("cxlpool://host/host-a").name, "host-a");
  EXPECT_EQ(ParseIdentity("cxlpool://operator/alice").role, Role::kOperator);
  EXPECT_EQ(ParseIdentity("cxlpool://manager/fm").role, Role::kManager);
  for (const char* other :
       {"spiffe://rack/host-a", "cxlpool://host/", "cxlpool://host/A", "cxlpool://host/a/b",
        "cxlpool://hosts/a", "CXLPOOL://operator/alice", "", "cxlpool://operator/a?b"}) {
    const PeerIdentity identity = ParseIdentity(other);
    EXPECT_EQ(identity.role, Role::kOther) << other;
    EXPECT_EQ(identity.name, "") << other;
    EXPECT_EQ(identity.uri, other);
  }
}

}  // namespace
}  // namespace cxlpool
