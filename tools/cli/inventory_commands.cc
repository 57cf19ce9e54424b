// Hosts, devices, tenants, and the pool as a whole. Most commands are one call: a line each.

#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

// As each Add... here: defines the flags, which the callback shares, and makes the command of them
// once it is chosen.
void AddEnrol(CLI::App* host, Chosen& chosen) {
  struct Words {
    Flag host, identity;
    std::vector<std::string> tenants;
  };
  auto* app = host->add_subcommand("enrol", "Make a host known, or replace its certificate");
  auto words = std::make_shared<Words>();
  app->add_option("HOST", words->host, "Its name")->type_name("")->required();
  app->add_option("--identity", words->identity,
                  "URI in its agent's certificate (default cxlpool://host/HOST)")
      ->type_name("URI");
  app->add_option(
         "--tenant", words->tenants,
         "A tenant that it may allocate for; may be given again, and replaces those that it "
         "had (default: as it was; default for a new host)")
      ->type_name("TENANT")
      ->allow_extra_args(false);
  OnChosen(app, chosen, [words, &chosen](Fields& fields) -> Command {
    EnrolHost command;
    v1::EnrolHostRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Name("hosts", words->host, [&](std::string name) { request.set_host(name); });
    fields.Text("--identity", words->identity, [&](std::string uri) { request.set_identity(uri); });
    for (const std::string& tenant : words->tenants) {
      fields.Name("tenants", tenant, [&](std::string name) { request.add_tenants(name); });
    }
    return PoolCommand(command);
  });
}

// "1,2,17": PCIe slot numbers. They are one word: the host's name may come behind them.
void ReadSlots(Fields& fields, const std::vector<std::string>& texts,
               google::protobuf::RepeatedField<uint32_t>* slots) {
  for (const std::string& text : texts) {
    fields.SmallNumber("--slots", text, [&](uint32_t slot) { slots->Add(slot); });
  }
}

// The host's entry in the topology, not its enrolment: that is AddEnrol's.
// Which of the flags are needed depends on the fabric driver, so the manager checks them.
void AddAddHost(CLI::App* host, Chosen& chosen) {
  struct Words {
    Flag host, uid, qmp;
    std::vector<std::string> slots;
  };
  auto* app = host->add_subcommand(
      "add", "Add a host to the topology, or change where the fabric finds it");
  auto words = std::make_shared<Words>();
  app->add_option("HOST", words->host, "Its name")->type_name("")->required();
  app->add_option("--slots", words->slots, "Driver emulated: its PCIe slots, as 1,2,17")
      ->type_name("SLOTS")
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_option("--uid", words->uid, "Driver emulated: the user id of its agent")
      ->type_name("UID");
  app->add_option("--qmp", words->qmp, "Driver qemu: its QMP socket")->type_name("PATH");
  app->footer("To be used it is enrolled, too: see cxlpool host enrol.");
  OnChosen(app, chosen, [words, &chosen](Fields& fields) -> Command {
    AddHost command;
    v1::AddHostRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Name("hosts", words->host, [&](std::string name) { request.set_host(name); });
    v1::HostSettings& settings = *request.mutable_settings();
    ReadSlots(fields, words->slots, settings.mutable_slots());
    fields.SmallNumber("--uid", words->uid, [&](uint32_t uid) { settings.set_agent_uid(uid); });
    fields.Text("--qmp", words->qmp, [&](std::string path) { settings.set_qmp_socket(path); });
    return PoolCommand(command);
  });
}

void AddDiscoverDevices(CLI::App* device, Chosen& chosen) {
  auto* app = device->add_subcommand(
      "discover", "Driver shared: what the hosts see, and which of it may be one device");
  auto host = std::make_shared<Flag>();
  app->add_option("--host", *host, "What this host sees (default: all)")->type_name("HOST");
  app->footer(
      "SAME is a guess, by mark, else by serial number and size. `device add` has it proven.");
  OnChosen(app, chosen, [host](Fields& fields) -> Command {
    DiscoverDevices command;
    fields.Name("hosts", *host, [&](std::string name) { command.request.set_host(name); });
    return PoolCommand(command);
  });
}

// Without --capacity and --path the request has no settings: the device is used again as it was.
// Other flags then are an error, since settings replace all that the device has.
void AddAddDevice(CLI::App* device, Chosen& chosen) {
  struct Words {
    Flag device, capacity, granule, serial, path, latency, bandwidth, heads, domain;
  };
  auto* app =
      device->add_subcommand("add", "Add a device, or use one again that was drained or removed");
  auto words = std::make_shared<Words>();
  app->add_option("DEVICE", words->device, "Its name")->type_name("")->required();
  app->add_option("--capacity", words->capacity, "Of a new device, or of one that has grown")
      ->type_name("SIZE");
  // Flags that are settings, and so want --capacity or --path.
  const auto with_capacity = [app](const char* flag, Flag& text, const char* help,
                                   const char* type) {
    app->add_option(flag, text, help)->type_name(type);
  };
  with_capacity("--granule", words->granule, "Smallest unit of placement (default 256MiB)", "SIZE");
  with_capacity("--serial", words->serial, "Serial number (default its name)", "TEXT");
  with_capacity("--path", words->path,
                "Driver qemu: its pool file; shared: HOST/NAME, to have it marked", "PATH");
  with_capacity("--latency-ns", words->latency, "Of a load, at its port", "N");
  with_capacity("--bandwidth-mib", words->bandwidth, "At its port, MiB a second", "N");
  with_capacity("--heads", words->heads, "Links it may have (default any number)", "N");
  with_capacity("--failure-domain", words->domain, "What fails with it (default its own)", "ID");
  app->footer(
      "Without --capacity and --path: with the settings that it has. With only --path HOST/NAME: "
      "capacity and granule are what `cxlpool device discover` suggests.");
  OnChosen(app, chosen, [words, &chosen](Fields& fields) -> Command {
    AddDevice command;
    v1::AddDeviceRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Name("devices", words->device, [&](std::string name) { request.set_device(name); });
    const bool settled = words->capacity.has_value() || words->path.has_value();
    // The parser cannot say "one of these two" of a flag.
    for (const Flag* word : {&words->granule, &words->serial, &words->latency, &words->bandwidth,
                             &words->heads, &words->domain}) {
      if (word->has_value() && !settled) throw CLI::RequiredError("--capacity or --path");
    }
    if (!settled) return PoolCommand(command);
    v1::DeviceSettings& settings = *request.mutable_settings();
    fields.Size(words->capacity, [&](uint64_t bytes) { settings.set_capacity_bytes(bytes); });
    fields.Size(words->granule, [&](uint64_t bytes) { settings.set_granule_bytes(bytes); });
    fields.Text("--serial", words->serial, [&](std::string text) { settings.set_serial(text); });
    fields.Text("--path", words->path, [&](std::string text) { settings.set_path(text); });
    const auto number = [&](const char* flag, const Flag& text, auto set) {
      fields.SmallNumber(flag, text, [&](uint32_t value) { (settings.*set)(value); });
    };
    number("--latency-ns", words->latency, &v1::DeviceSettings::set_latency_ns);
    number("--bandwidth-mib", words->bandwidth, &v1::DeviceSettings::set_bandwidth_mib_per_second);
    number("--heads", words->heads, &v1::DeviceSettings::set_heads);
    fields.Text("--failure-domain", words->domain,
                [&](std::string text) { settings.set_failure_domain(text); });
    return PoolCommand(command);
  });
}

// Without a subcommand it is `topology show`.
void AddTopology(CLI::App& app, Chosen& chosen) {
  CLI::App* topology = app.add_subcommand(
      "topology", "Devices, hosts, bridges, slots and paths as a tree; apply: make it so");
  topology->require_subcommand(0, 1);
  topology->callback([topology, &chosen] {
    if (topology->get_subcommands().empty()) chosen.command = Command(PoolCommand(ShowTopology{}));
  });
  AddBare<ShowTopology>(topology, "show", "As a tree; -o json has the tables, too", chosen);
  auto* apply =
      topology->add_subcommand("apply", "Make the pool consist of what a file says, while it runs");
  struct Words {
    std::string file;
    bool dry_run = false;
  };
  auto words = std::make_shared<Words>();
  apply
      ->add_option("FILE", words->file,
                   "TOML, with [[device]], [[host]], [[switch]] and [[link]] as in fm.toml")
      ->type_name("")
      ->required();
  apply->add_flag("--dry-run", words->dry_run, "Say what would be done, and change nothing");
  OnChosen(apply, chosen, [words, &chosen](Fields& fields) -> Command {
    ApplyTopology command;
    fields.RequestId(chosen.request_id,
                     [&](std::string id) { command.request.set_request_id(id); });
    command.request.set_validate_only(words->dry_run);
    command.file = words->file;
    return PoolCommand(command);
  });
}

// The default number of rows is the command's (ShowTop), and 0 means all of them.
void AddTop(CLI::App& app, Chosen& chosen) {
  auto* top = app.add_subcommand(
      "top", "Show which devices, hosts and tenants have most of the pool, with bars");
  auto most = std::make_shared<Flag>();
  top->add_option("--limit", *most, "Rows of each kind (default 10; 0: all)")->type_name("N");
  AddWatchFlag(top, chosen);
  OnChosen(top, chosen, [most](Fields& fields) -> Command {
    ShowTop command;
    fields.Number("--limit", *most, [&](uint64_t rows) { command.most = rows; });
    return PoolCommand(command);
  });
}

// The kind of the thing comes before its name, in the singular or as the API has it.
void AddExplain(CLI::App& app, Chosen& chosen) {
  auto* explain = app.add_subcommand(
      "explain",
      "Say what is wrong with one thing or what it waits for, and the command that ends it");
  auto name = std::make_shared<Flag>();
  explain->add_option("WHAT", *name, "region/NAME, host/NAME or device/NAME")
      ->type_name("")
      ->required();
  OnChosen(explain, chosen, [name](Fields& fields) -> Command {
    Explain command;
    fields.NameWithKind({"regions", "hosts", "devices"}, *name,
                        [&](std::string full) { command.request.set_name(full); });
    // NameWithKind sets nothing where the kind is none of these.
    if (command.request.name().empty() && fields.status().ok()) {
      throw CLI::ValidationError("WHAT", absl::StrCat("\"", **name,
                                                      "\" is none: give region/NAME, "
                                                      "host/NAME or device/NAME"));
    }
    return PoolCommand(command);
  });
  AddBare<Explain>(&app, "doctor", "List whatever is wrong or waits, and the commands that end it",
                   chosen);
}

// For hosts and devices there is a list and no call for one: what is shown is found in the list.
template <typename Show>
CLI::App* AddShow(CLI::App* parent, const char* help, const Noun& noun, Chosen& chosen) {
  auto* app = parent->add_subcommand("show", help);
  auto name = std::make_shared<Flag>();
  app->add_option(noun.word, *name, noun.help)->type_name("")->required();
  OnChosen(app, chosen, [name, &noun](Fields& fields) -> Command {
    Show command;
    fields.Name(noun.collection, *name, [&](std::string full) { command.name = full; });
    return PoolCommand(command);
  });
  return app;
}

struct TenantFlags {
  Flag name, quota, reserved, host_cap, isolation;
};

// Limits that are not given stay unset here. When the command runs, it asks the manager for them.
void AddSetTenant(CLI::App* tenant, Chosen& chosen) {
  auto* app = tenant->add_subcommand("set", "Make a tenant, or change its limits");
  auto flags = std::make_shared<TenantFlags>();
  app->add_option("TENANT", flags->name, "Its name")->type_name("")->required();
  app->add_option("--quota", flags->quota, "Held by all its Regions at most, or none")
      ->type_name("SIZE");
  app->add_option("--reserved", flags->reserved, "Kept free for it whatever others ask, or none")
      ->type_name("SIZE");
  app->add_option("--host-cap", flags->host_cap, "Attached to one host at most, or none")
      ->type_name("SIZE");
  app->add_option("--isolation", flags->isolation,
                  "fabric: its Regions only where the fabric itself keeps hosts apart; or any")
      ->type_name(ChoiceType("WHOSE"));
  app->footer("Limits that are not given stay as they are; of a new tenant: none.");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    SetTenant command;
    fields.RequestId(chosen.request_id,
                     [&](std::string id) { command.request.set_request_id(id); });
    fields.Name("tenants", flags->name,
                [&](std::string name) { command.request.mutable_tenant()->set_name(name); });
    fields.Limit(flags->quota, command.quota_bytes);
    fields.Limit(flags->reserved, command.reserved_bytes);
    fields.Limit(flags->host_cap, command.host_cap_bytes);
    fields.Isolation(flags->isolation, [&](v1::Enforcer who) { command.isolation = who; });
    return PoolCommand(command);
  });
}

// The parser writes straight into `command`, so there are no fields to read.
void AddBackup(CLI::App& app, Chosen& chosen) {
  auto* backup = app.add_subcommand("backup", "Copy the manager's database into a new file");
  auto command = std::make_shared<Backup>();
  backup->add_option("FILE", command->file, "Must not be there; no backup is ever overwritten")
      ->type_name("")
      ->required();
  OnChosen(backup, chosen, [command](Fields& fields) -> Command {
    if (command->file == "-") {
      throw CLI::ValidationError("FILE", "a backup is a database and goes to a file, not to -");
    }
    static_cast<void>(fields);
    return PoolCommand(*command);
  });
}

struct RevocationFlags {
  Flag subject, reason;
  bool yes = false;
};

// What is revoked and what is restored are named alike.
void AddSubject(CLI::App* app, RevocationFlags& flags) {
  app->add_option("CERTIFICATE", flags.subject,
                  "Its whole serial number or file (.pem); or an identity (URI), whatever it shows")
      ->type_name("")
      ->required();
}

// Whether CERTIFICATE names a file is found out when the command runs.
void AddRevoke(CLI::App* certificate, Chosen& chosen) {
  auto* app = certificate->add_subcommand(
      "revoke", "Believe a certificate no longer; its calls and sessions end at once");
  auto flags = std::make_shared<RevocationFlags>();
  AddSubject(app, *flags);
  app->add_option("--reason", flags->reason, "Why, for the list and the audit record")
      ->type_name("TEXT")
      ->required();
  app->add_flag("--yes", flags->yes, "Also if it is the one that this command is run with");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RevokeCertificate command;
    v1::RevokeCertificateRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Text("CERTIFICATE", flags->subject,
                [&](std::string text) { request.set_subject(text); });
    fields.Text("--reason", flags->reason, [&](std::string text) { request.set_reason(text); });
    request.set_allow_own(flags->yes);
    return PoolCommand(command);
  });
}

void AddRestore(CLI::App* certificate, Chosen& chosen) {
  auto* app = certificate->add_subcommand("restore", "Believe it again");
  auto flags = std::make_shared<RevocationFlags>();
  AddSubject(app, *flags);
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RestoreCertificate command;
    v1::RestoreCertificateRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Text("CERTIFICATE", flags->subject,
                [&](std::string text) { request.set_subject(text); });
    return PoolCommand(command);
  });
}

}  // namespace

// The help lists the commands in this order. The aliases are what other programs call them.
void AddInventoryCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* host = app.add_subcommand("host", "List, show, add, enrol, retire and fence hosts");
  host->require_subcommand(1);
  AddBareList<ListHosts>(host, "List hosts, in order of name", chosen);
  AddShow<ShowHost>(host, "Show one host, its slots and its bridges", kHost, chosen)->alias("get");
  AddAddHost(host, chosen);
  AddEnrol(host, chosen);
  AddCall<RetireHost>(host, "retire", "Refuse a host's agent from now on", kHost, chosen);
  AddCall<RemoveHost>(host, "remove", "Forget a host that nothing is attached to", kHost, chosen)
      ->alias("rm")
      ->alias("delete");
  AddCall<FenceHost>(host, "fence", "Cut a host off for certain. Destroys what runs there; audited",
                     kHost, chosen);

  CLI::App* device =
      app.add_subcommand("device", "List, show, add, drain and remove memory devices");
  device->require_subcommand(1);
  AddBareList<ListDevices>(device, "List devices, in order of name", chosen);
  AddShow<ShowDevice>(device, "Show one device, and the Regions with bytes there", kDevice, chosen)
      ->alias("get");
  AddCall<DrainDevice>(device, "drain", "Place nothing new there, and list who has bytes there",
                       kDevice, chosen);
  AddDiscoverDevices(device, chosen);
  AddAddDevice(device, chosen);
  AddCall<RemoveDevice>(device, "remove", "Take an empty device out of the pool", kDevice, chosen)
      ->alias("rm")
      ->alias("delete");
  AddCall<FailDevice>(device, "fail", "Mark a device as broken, for good; audited", kDevice, chosen,
                      "How one knows, for the audit record");

  CLI::App* tenant = app.add_subcommand("tenant", "List, make, change and remove tenants");
  tenant->require_subcommand(1);
  AddBareList<ListTenants>(tenant, "List tenants, in order of name", chosen);
  AddSetTenant(tenant, chosen);
  AddCall<ShowTenant>(tenant, "show", "Show one tenant", kTenant, chosen)->alias("get");
  AddCall<RemoveTenant>(tenant, "remove", "Forget a tenant without Regions", kTenant, chosen)
      ->alias("rm")
      ->alias("delete");

  CLI::App* certificate =
      app.add_subcommand("certificate", "Revoke certificates, list and restore them");
  certificate->require_subcommand(1);
  AddBareList<ListRevocations>(certificate, "List what is revoked", chosen);
  AddRevoke(certificate, chosen);
  AddRestore(certificate, chosen);

  AddWatchFlag(
      AddBare<ShowCapacity>(&app, "capacity", "Bytes free and held, and what would fit", chosen),
      chosen);
  AddTop(app, chosen);
  AddBare<ShowReport>(&app, "report",
                      "Report what is stranded, broken up, leaked and old, and who holds what",
                      chosen);
  AddExplain(app, chosen);
  AddBare<ShowStatus>(&app, "status", "Show which manager leads, and how far the others follow it",
                      chosen);
  AddTopology(app, chosen);
  AddBackup(app, chosen);
}

}  // namespace cxlpool::cli
