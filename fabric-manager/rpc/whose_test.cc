// Whose things a call names, tried on every call there is, over TLS, by callers for a tenant and by
// a host: what is their own is served; of what is another's, or the pool's, they are answered the
// same as of what is not there. Calls and the fields of their requests are found by reflection: a
// call that such a caller may make has to have a request here that is served, and each text within
// it names one of the things below, or stands in the list of those that name nothing.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cxlpool/v1/access_service.pb.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/rpc/authorize.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "test/rigs/caller_fixture.h"

namespace cxlpool::fm {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr char kOfMl[] = "cxlpool://operator/mo";        // A tenant of ml.
constexpr char kJobsOfMl[] = "cxlpool://operator/jo";    // A scheduler of ml.
constexpr char kOfGiraffe[] = "cxlpool://operator/gia";  // A tenant of giraffe.

// Texts that say nothing of whose a thing is, and messages that only their host's agent fills.
const std::set<std::string> kNamesNothing = {
    "agent_id",      "agent_version",  "all_extension_numbers_of_type",
    "device_answer", "etag",           "file_by_filename",
    "heartbeat",     "incarnation",    "file_containing_symbol",
    "inventory",     "kernel_release", "list_services",
    "open_to",       "order_by",       "owner",
    "page_token",    "reason",         "report",
    "request_id",    "segments",       "service"};

// What somebody else has, and the same of nobody.
struct Theirs {
  std::string theirs;
  std::string nobodys;
};

// HostService comes last: a session makes the host another.
std::vector<const MethodDescriptor*> EveryMethod() {
  std::vector<const MethodDescriptor*> methods;
  for (const auto* file :
       {v1::RoleBinding::descriptor()->file(), v1::ListHostsRequest::descriptor()->file(),
        v1::GetRegionRequest::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file(),
        grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file(),
        v1::Hello::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      // From the last to the first: Regions are looked at, renewed and released in this order.
      for (int m = file->service(s)->method_count() - 1; m >= 0; --m) {
        methods.push_back(file->service(s)->method(m));
      }
    }
  }
  return methods;
}

std::string PathOf(const MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}

std::unique_ptr<Message> NewOf(const google::protobuf::Descriptor* type) {
  auto* factory = google::protobuf::MessageFactory::generated_factory();
  return std::unique_ptr<Message>(factory->GetPrototype(type)->New());
}

class WhoseTest : public CallerFixture {
 protected:
  struct Asker {
    std::string who;
    std::shared_ptr<grpc::Channel> channel;
    std::optional<PoolRole> role = std::nullopt;  // Nothing: it is host-a's agent.
    std::vector<Theirs> regions = {};
    std::string own = {};  // The Region of a host, which has slots for few.

    bool is_host() const { return !role.has_value(); }
    bool MayAsk(const std::string& path) const {
      return is_host() ? MayHostCall(path) : MayCall(*role, path);
    }
  };
  // What was answered; in `text` also what a stream began with.
  struct Heard {
    std::string reason;
    std::string text;
  };
  using Filler = std::function<std::unique_ptr<Message>(const Asker&)>;
  using Where = std::vector<const FieldDescriptor*>;  // A field is, from the request inwards.

  void SetUp() override {
    CallerFixture::SetUp();
    rig_.OnCore([this] {
      rig_.sessions.Start({.on_segments = [](const auto&, const auto&, bool) {},
                           .on_events = [](const auto&, const auto&) {},
                           .on_session = [](const auto&, bool) {}});
    });
    for (const char* tenant : {"ml", "giraffe"}) {
      ASSERT_EQ(MakeTenant(tenant, 500 * kGranule), "");
    }
    ASSERT_EQ(EnrolFor("host-a", "ml"), "");
    ASSERT_EQ(EnrolFor("host-b", "giraffe"), "");
    MakeHostsUsable();
    ASSERT_EQ(Bind("cxlpool://operator/alice", v1::ADMIN), "");
    ASSERT_EQ(BindTo(kOfMl, v1::TENANT, {"ml"}), "");
    ASSERT_EQ(BindTo(kJobsOfMl, v1::SCHEDULER, {"ml"}), "");
    ASSERT_EQ(BindTo(kOfGiraffe, v1::TENANT, {"giraffe"}), "");
    mo_ = ChannelOf(kOfMl);
    ASSERT_EQ(Ask(operator_, "PoolService/AllocateRegion", Wanted("giraffe.okapi", "giraffe")), "");
    v1::AllocateRegionRequest attached = Wanted("zebra", "giraffe");
    attached.set_host("hosts/host-b");
    ASSERT_EQ(Ask(operator_, "PoolService/AllocateRegion", attached), "");
    ASSERT_EQ(Ask(operator_, "PoolService/AllocateRegion", Wanted("walrus", "default")), "");
    ASSERT_EQ(Ask(mo_, "PoolService/AllocateRegion", Wanted("ml.away", "ml")), "");
  }

  static v1::AllocateRegionRequest Wanted(const std::string& id, const std::string& tenant) {
    v1::AllocateRegionRequest allocate;
    allocate.set_request_id(NewId());
    allocate.set_region_id(id);
    allocate.set_tenant("tenants/" + tenant);
    allocate.set_size_bytes(1);
    return allocate;
  }
  v1::AllocateRegionRequest WantedBy(const Asker& asker) {
    auto allocate = Wanted(absl::StrCat("ml.own-", ++made_), "ml");
    if (asker.is_host()) allocate.set_host("hosts/host-a");
    return allocate;
  }
  v1::Region Shown(const std::string& id) const {
    v1::GetRegionRequest get;
    get.set_name("regions/" + id);
    return Get<v1::Region>(operator_, "PoolService/GetRegion", get);
  }
  // By name and by tag: another tenant's, and the pool's. `more`: of the asker's own tenant, but
  // not the asker's.
  std::vector<Theirs> OthersRegions(const std::vector<std::string>& more = {}) const {
    std::vector<Theirs> others = {{"regions/giraffe.okapi", "regions/giraffe.panda"},
                                  {"regions/zebra", "regions/llama"},
                                  {"regions/walrus", "regions/llama"}};
    for (const std::string& id : more) others.push_back({"regions/" + id, "regions/ml.nobodys"});
    for (const char* id : {"zebra", "walrus"}) {
      others.push_back({"regions/" + Shown(id).tag(), "regions/" + NewId()});
    }
    return others;
  }

  // Again where the asker has just called as often as it may: batches count as many calls.
  template <typename Request>
  static void Do(const Asker& asker, const std::string& method, const Request& request) {
    std::string reason;
    EXPECT_TRUE(Within(absl::Seconds(10), [&] {
      reason = Ask(asker.channel, method, request);
      return reason != "TENANT_TOO_BUSY";
    }));
    EXPECT_EQ(reason, "") << asker.who << " " << method;
  }
  // A new Region of the asker's; the one that a host has.
  std::string OwnOf(const Asker& asker) {
    if (asker.is_host()) return asker.own;
    const v1::AllocateRegionRequest allocate = WantedBy(asker);
    Do(asker, "PoolService/AllocateRegion", allocate);
    return allocate.region_id();
  }
  template <typename Request>
  Request OfOwn(const Asker& asker) {
    Request request;
    if constexpr (requires { request.set_request_id(""); }) request.set_request_id(NewId());
    request.set_name("regions/" + OwnOf(asker));
    return request;
  }
  static v1::Hello HelloOfOwn() {
    v1::Hello hello;
    hello.set_protocol_version(kHostProtocolVersion);
    hello.set_host("hosts/host-a");
    hello.set_incarnation("boot-1");
    hello.set_agent_id(NewId());
    return hello;
  }

  // Of each call that a tenant, a scheduler or a host may make: one that is served.
  std::map<std::string, Filler> Fillers() {
    std::map<std::string, Filler> fillers;
    const auto add = [&](const std::string& method, auto make) {
      fillers["/" + method] = [make](const Asker& asker) -> std::unique_ptr<Message> {
        auto request = make(asker);
        return std::make_unique<decltype(request)>(std::move(request));
      };
    };
    const auto pool = [&](const std::string& method, auto make) {
      add("cxlpool.v1.PoolService/" + method, make);
    };
    pool("AllocateRegion", [this](const Asker& asker) { return WantedBy(asker); });
    pool("BatchAllocateRegions", [this](const Asker& asker) {
      v1::BatchAllocateRegionsRequest batch;
      *batch.add_requests() = WantedBy(asker);
      return batch;
    });
    pool("GetRegion", [this](const Asker& asker) { return OfOwn<v1::GetRegionRequest>(asker); });
    pool("ListRegions", [](const Asker&) { return v1::ListRegionsRequest(); });
    pool("ListRegionHolders",
         [this](const Asker& asker) { return OfOwn<v1::ListRegionHoldersRequest>(asker); });
    pool("AttachRegion", [this](const Asker& asker) {
      auto request = OfOwn<v1::AttachRegionRequest>(asker);
      request.set_host("hosts/host-a");
      return request;
    });
    pool("DetachRegion", [this](const Asker& asker) {
      auto attach = OfOwn<v1::AttachRegionRequest>(asker);
      attach.set_host("hosts/host-a");
      Do(asker, "PoolService/AttachRegion", attach);
      v1::DetachRegionRequest request;
      request.set_request_id(NewId());
      request.set_name(attach.name());
      request.set_host(attach.host());
      return request;
    });
    pool("ReleaseRegion",
         [this](const Asker& asker) { return OfOwn<v1::ReleaseRegionRequest>(asker); });
    pool("BatchReleaseRegions", [this](const Asker& asker) {
      v1::BatchReleaseRegionsRequest batch;
      *batch.add_requests() = OfOwn<v1::ReleaseRegionRequest>(asker);
      return batch;
    });
    pool("ResizeRegion", [this](const Asker& asker) {
      auto request = OfOwn<v1::ResizeRegionRequest>(asker);
      request.set_size_bytes(3 * kGranule);
      request.set_max_extents(4);
      return request;
    });
    pool("RenameRegion", [this](const Asker& asker) {
      auto request = OfOwn<v1::RenameRegionRequest>(asker);
      request.set_new_region_id(absl::StrCat("ml.renamed-", ++made_));
      return request;
    });
    pool("RenewRegion", [this](const Asker& asker) {
      auto request = OfOwn<v1::RenewRegionRequest>(asker);
      request.mutable_ttl()->set_seconds(600);
      return request;
    });
    pool("WatchRegions",
         [this](const Asker& asker) { return OfOwn<v1::WatchRegionsRequest>(asker); });
    pool("GetCapacity", [](const Asker&) { return v1::GetCapacityRequest(); });

    const std::string inventory = "cxlpool.v1.InventoryService/";
    add(inventory + "GetTenant", [](const Asker&) {
      v1::GetTenantRequest request;
      request.set_name("tenants/ml");
      return request;
    });
    add(inventory + "ListTenants", [](const Asker&) { return v1::ListTenantsRequest(); });
    add(inventory + "Explain",
        [this](const Asker& asker) { return OfOwn<v1::ExplainRequest>(asker); });
    const std::string access = "cxlpool.v1.AccessService/";
    add(access + "ListEvents", [this](const Asker& asker) {
      v1::ListEventsRequest request;
      request.set_resource("regions/" + OwnOf(asker));
      return request;
    });
    add(access + "GetSelf", [](const Asker&) { return v1::GetSelfRequest(); });

    for (const char* method : {"Check", "Watch"}) {
      add(absl::StrCat("grpc.health.v1.Health/", method),
          [](const Asker&) { return grpc::health::v1::HealthCheckRequest(); });
    }
    add("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", [](const Asker&) {
      grpc::reflection::v1alpha::ServerReflectionRequest request;
      request.set_list_services("*");
      return request;
    });
    add("cxlpool.v1.HostService/Session", [](const Asker&) {
      v1::AgentMessage message;
      *message.mutable_hello() = HelloOfOwn();
      return message;
    });
    add("cxlpool.v1.HostService/CheckSession", [](const Asker&) {
      v1::CheckSessionRequest request;
      *request.mutable_hello() = HelloOfOwn();
      return request;
    });
    return fillers;
  }

  // What a field of that name may say that is not the asker's. Nothing: it is not known.
  static std::optional<std::vector<Theirs>> OthersFor(const std::string& field,
                                                      const Asker& asker) {
    const std::vector<Theirs> tenants = {{"tenants/giraffe", "tenants/nobodys"},
                                         {"tenants/default", "tenants/nobodys"}};
    // Of another tenant, of the pool's own, and one that is retired.
    const std::vector<Theirs> hosts = {{"hosts/host-b", "hosts/nobodys"},
                                       {"hosts/host-s", "hosts/nobodys"},
                                       {"hosts/host-r", "hosts/nobodys"}};
    const std::vector<Theirs> devices = {{"devices/cmm-0", "devices/nobodys"}};
    if (field == "tenant") return tenants;
    if (field == "host") return hosts;
    // A host may choose a device, and is shown where its Regions lie.
    if (field == "device") return asker.is_host() ? std::vector<Theirs>() : devices;
    if (field == "isolate_from") return asker.regions;
    if (field == "name" || field == "resource") {
      std::vector<Theirs> all = asker.regions;
      for (const auto* some : {&tenants, &hosts, &devices}) {
        all.insert(all.end(), some->begin(), some->end());
      }
      return all;
    }
    if (field == "region_id" || field == "new_region_id") {
      std::vector<Theirs> ids;
      for (const Theirs& one : asker.regions) {
        const Theirs id = {std::string(absl::StripPrefix(one.theirs, "regions/")),
                           std::string(absl::StripPrefix(one.nobodys, "regions/"))};
        // A tag is no name to give. A tenant's own name space tells of it; and so does the pool's
        // own to a host, which gives names there (ADR 38).
        if (ParseUuid(id.theirs).ok() || absl::StartsWith(id.theirs, "ml.")) continue;
        if (!asker.is_host() || absl::StrContains(id.theirs, '.')) ids.push_back(id);
      }
      return ids;
    }
    if (field == "who" || field == "identity" || field == "subject") {
      return std::vector<Theirs>{{kOfGiraffe, "cxlpool://operator/nobody"}};
    }
    if (field == "filter") {
      std::vector<Theirs> filters = {{"name = zebra", "name = llama"},
                                     {"tenant = giraffe", "tenant = nobodys"},
                                     {"host = host-b", "host = nobodys"}};
      if (!asker.is_host()) filters.push_back({"device = cmm-0", "device = nobodys"});
      return filters;
    }
    return std::nullopt;
  }

  // Where texts stand in the request and in the messages within it. `unfilled` gets the fields of
  // messages of the API that are not set, whose texts are not found.
  static void FindTexts(const Message& message, Where at, std::vector<Where>& found,
                        std::vector<std::string>& unfilled) {
    const auto* reflection = message.GetReflection();
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message.GetDescriptor()->field(i);
      if (kNamesNothing.contains(field->name())) continue;
      at.push_back(field);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) found.push_back(at);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
          field->message_type()->file()->package() == "cxlpool.v1") {
        const bool is_set = field->is_repeated() ? reflection->FieldSize(message, field) > 0
                                                 : reflection->HasField(message, field);
        if (!is_set) {
          unfilled.push_back(field->full_name());
        } else {
          FindTexts(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, 0)
                                         : reflection->GetMessage(message, field),
                    at, found, unfilled);
        }
      }
      at.pop_back();
    }
  }
  static void Say(const std::string& text, const Where& at, Message* message) {
    for (size_t i = 0; i + 1 < at.size(); ++i) {
      const auto* reflection = message->GetReflection();
      message = at[i]->is_repeated() ? reflection->MutableRepeatedMessage(message, at[i], 0)
                                     : reflection->MutableMessage(message, at[i]);
    }
    const auto* reflection = message->GetReflection();
    if (at.back()->is_repeated()) {
      reflection->AddString(message, at.back(), text);
    } else {
      reflection->SetString(message, at.back(), text);
    }
  }

  // Calls, and again where the asker has called too often just before.
  static Heard Try(const Asker& asker, const MethodDescriptor& method, const Message& request) {
    Heard heard;
    for (int i = 0; i < 100; ++i) {
      heard = TryOnce(asker, method, request);
      if (heard.reason != "TENANT_TOO_BUSY" && heard.reason != "TOO_MANY_AGENTS") break;
    }
    return heard;
  }
  static Heard TryOnce(const Asker& asker, const MethodDescriptor& method, const Message& request) {
    Heard heard;
    const std::unique_ptr<Message> answer = NewOf(method.output_type());
    RawCall call(asker.channel, PathOf(method));
    call.Send(request.SerializeAsString(), !method.client_streaming());
    if (call.Read(answer.get())) {
      // How often the pool changes is told to everybody.
      const FieldDescriptor* revision = answer->GetDescriptor()->FindFieldByName("revision");
      if (revision != nullptr) answer->GetReflection()->ClearField(answer.get(), revision);
      heard.text = answer->DebugString();
      if (method.server_streaming()) return heard;  // It may stand for ever.
    }
    const absl::Status status = call.End();
    if (status.ok()) {
      const FieldDescriptor* results = answer->GetDescriptor()->FindFieldByName("results");
      if (results == nullptr) return heard;
      const auto& result = dynamic_cast<const v1::BatchResult&>(
          answer->GetReflection()->GetRepeatedMessage(*answer, results, 0));
      heard.reason = result.error().reason();
      return heard;
    }
    heard.reason = ReasonOf(status).empty() ? std::string(status.message()) : ReasonOf(status);
    absl::StrAppend(&heard.text, status.ToString());
    if (const auto refusal = RefusalOf(status); refusal.has_value()) {
      absl::StrAppend(&heard.text, "\n", refusal->remedy);
      for (const auto& [key, value] : refusal->metadata) {
        absl::StrAppend(&heard.text, "\n", key, "=", value);
      }
    }
    return heard;
  }
  // The text without the names that were asked for, whole or in part.
  static std::string Blind(const std::string& text, const Theirs& names) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const std::string& name : {names.theirs, names.nobodys}) {
      out.emplace_back(name, "X");
      for (const char part : {'/', ' ', '.'}) {
        const size_t at = name.rfind(part);
        if (at != std::string::npos) out.emplace_back(name.substr(at + 1), "X");
      }
    }
    return absl::StrReplaceAll(text, out);
  }

  // Everything, by `asker`: first what is not its own, each such text in turn, then its own.
  void TryEverything(const Asker& asker) {
    std::vector<std::string> before;
    for (const char* id : kOthers) before.push_back(Shown(id).DebugString());
    const auto fillers = Fillers();
    int trials = 0;
    for (const MethodDescriptor* method : EveryMethod()) {
      const std::string path = PathOf(*method);
      const bool may = asker.MayAsk(path);
      const auto filler = fillers.find(path);
      if (may && filler == fillers.end()) {
        ADD_FAILURE() << asker.who << " may call " << path << ", and it is not tried";
        continue;
      }
      const std::unique_ptr<Message> own =
          may ? filler->second(asker) : NewOf(method->input_type());
      std::vector<Where> texts;
      std::vector<std::string> unfilled;
      FindTexts(*own, {}, texts, unfilled);
      for (const std::string& field : unfilled) {
        EXPECT_FALSE(may) << field << " of " << path << " is not tried";
      }
      for (const Where& at : texts) {
        const std::string& field = at.back()->name();
        const auto others = OthersFor(field, asker);
        EXPECT_TRUE(others.has_value() || !may)
            << "nobody knows whether " << field << " of " << path << " names what others have";
        for (const Theirs& names : others.value_or(std::vector<Theirs>())) {
          const auto ask_for = [&](const std::string& name) {
            const std::unique_ptr<Message> request(own->New());
            request->CopyFrom(*own);
            Say(name, at, request.get());
            return Try(asker, *method, *request);
          };
          const Heard theirs = ask_for(names.theirs), nobodys = ask_for(names.nobodys);
          ++trials;
          EXPECT_EQ(theirs.reason, nobodys.reason)
              << asker.who << " " << path << " " << field << " " << names.theirs;
          EXPECT_EQ(Blind(theirs.text, names), Blind(nobodys.text, names))
              << asker.who << " " << path << " " << field << " " << names.theirs;
        }
      }
      EXPECT_EQ(Try(asker, *method, *own).reason, may ? "" : "ROLE_NOT_ALLOWED")
          << asker.who << " " << path;
    }
    std::vector<std::string> after;
    for (const char* id : kOthers) after.push_back(Shown(id).DebugString());
    EXPECT_EQ(before, after);
    EXPECT_GT(trials, 50);
    std::cout << "whose: " << trials << " things of others, each in every call of " << asker.who
              << ", 0 told from what is nobody's\n";
  }

  static constexpr const char* kOthers[] = {"giraffe.okapi", "zebra", "walrus"};

  std::shared_ptr<grpc::Channel> mo_;
  int made_ = 0;
};

TEST_F(WhoseTest, ATenantIsServedItsOwnAndToldNothingOfOthers) {
  TryEverything({.who = "a tenant",
                 .channel = mo_,
                 .role = PoolRole::kTenant,
                 .regions = OthersRegions(),
                 .own = {}});
}

// What its tenant has, and somebody else allocated, is another's as well.
TEST_F(WhoseTest, ASchedulerIsServedItsOwnAndToldNothingOfOthers) {
  TryEverything({.who = "a scheduler",
                 .channel = ChannelOf(kJobsOfMl),
                 .role = PoolRole::kScheduler,
                 .regions = OthersRegions({"ml.away"}),
                 .own = {}});
}

// So is what its tenant has and is not attached to it.
TEST_F(WhoseTest, AHostIsServedItsOwnAndToldNothingOfOthers) {
  Asker host = {.who = "a host",
                .channel = ChannelOf("cxlpool://host/host-a"),
                .role = std::nullopt,
                .regions = OthersRegions({"ml.away"}),
                .own = {}};
  const v1::AllocateRegionRequest allocate = WantedBy(host);
  ASSERT_EQ(Ask(host.channel, "PoolService/AllocateRegion", allocate), "");
  host.own = allocate.region_id();
  TryEverything(host);
}

}  // namespace
}  // namespace cxlpool::fm
