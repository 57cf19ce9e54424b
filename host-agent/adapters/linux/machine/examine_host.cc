#include "host-agent/adapters/linux/machine/examine_host.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "host-agent/adapters/linux/events/trace_instance.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/adapters/linux/memory/node_room.h"
#include "proto/support/cxl_host.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kRoot = "sys/bus/cxl/devices/root0";
constexpr uint64_t kSmallestRegion = uint64_t{256} << 20;

Finding Ok(std::string id, std::string what) {
  return {std::move(id), Verdict::kOk, std::move(what), ""};
}
Finding Warning(std::string id, std::string what, std::string remedy) {
  return {std::move(id), Verdict::kWarning, std::move(what), std::move(remedy)};
}
Finding Missing(std::string id, std::string what, std::string remedy) {
  return {std::move(id), Verdict::kMissing, std::move(what), std::move(remedy)};
}

std::string Size(uint64_t bytes) {
  return bytes >= uint64_t{1} << 30 ? absl::StrFormat("%.1f GiB", std::ldexp(bytes, -30))
                                    : absl::StrFormat("%.0f MiB", std::ldexp(bytes, -20));
}

// The rest of the line that begins with `key` and a colon, as /proc has them.
std::optional<std::string> LineOf(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, key)) continue;
    line = absl::StripLeadingAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, ":")) return std::string(absl::StripAsciiWhitespace(line));
  }
  return std::nullopt;
}

// Only a kernel without a driver for DAX devices on host regions is refused. One that is older than
// what is tested, or whose version cannot be read, gets a warning.
Finding ExamineKernel(const HostFiles& files) {
  const std::string release = files.Read("proc/sys/kernel/osrelease").value_or("");
  const std::vector<std::string> parts = absl::StrSplit(release, absl::MaxSplits('.', 2));
  int major = 0;
  int minor = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major) ||
      !absl::SimpleAtoi(parts[1].substr(0, parts[1].find_first_not_of("0123456789")), &minor)) {
    return Warning("kernel", "the kernel's version cannot be read", "mount /proc");
  }
  const std::pair version(major, minor);
  if (version < std::pair(6, 3)) {
    return Missing("kernel", absl::StrCat("Linux ", release, " has no DAX for CXL memory"),
                   "use Linux 6.12 or later");
  }
  if (version < std::pair(6, 12)) {
    return Warning("kernel", absl::StrCat("Linux ", release, " is older than what is tested"),
                   "use Linux 6.12 or later");
  }
  return Ok("kernel", absl::StrCat("Linux ", release));
}

// What the agent needs of root, by number as in capability.h.
Finding ExaminePermissions(const HostFiles& files) {
  constexpr std::pair<int, absl::string_view> kNeeded[] = {
      {21, "CAP_SYS_ADMIN"}, {19, "CAP_SYS_PTRACE"}, {2, "CAP_DAC_READ_SEARCH"}};
  const std::string status = files.Read("proc/self/status").value_or("");
  const std::optional<std::string> uids = LineOf(status, "Uid");  // Real, effective, ...
  const std::optional<uint64_t> effective = ParseHex(LineOf(status, "CapEff").value_or(""));
  if (!uids.has_value() || !effective.has_value()) {
    return Warning("permissions", "the rights of this process cannot be read", "mount /proc");
  }
  const std::vector<std::string> ids = absl::StrSplit(*uids, '\t');
  if (ids.size() < 2 || ids[1] != "0") {
    return Missing("permissions", "not root: the kernel's CXL, DAX and memory files are root's",
                   "run this, and the agent, as root");
  }
  std::vector<absl::string_view> missing;
  for (const auto& [number, name] : kNeeded) {
    if ((*effective >> number & 1) == 0) missing.push_back(name);
  }
  if (!missing.empty()) {
    return Missing("permissions", absl::StrCat("root without ", absl::StrJoin(missing, ", ")),
                   "give the agent these capabilities, as its systemd unit does");
  }
  // Many containers mount /sys read-only, and then not even root can write there.
  if (access(files.Path("sys").c_str(), W_OK) != 0 && errno == EROFS) {
    return Missing("permissions", "/sys is read-only", "run it where /sys is writable");
  }
  return Ok("permissions", "root, with the capabilities that are needed");
}

// Adds up what no host region uses, over all windows; the largest gap may be smaller. Too little is
// only a warning: releasing a Region makes room.
Finding ExamineWindowSpace(const HostFiles& files) {
  uint64_t total = 0;
  uint64_t free = 0;
  for (const std::string& decoder : VolatileWindows(files)) {
    const uint64_t size = files.ReadNumber(absl::StrCat(decoder, "/size")).value_or(0);
    uint64_t used = 0;
    for (const std::string& child : files.List(decoder)) {
      if (!absl::StartsWith(child, "region")) continue;
      used += files.ReadNumber(absl::StrCat(decoder, "/", child, "/size")).value_or(0);
    }
    total += size;
    free += size - std::min(size, used);
  }
  const std::string what =
      absl::StrCat(Size(free), " of ", Size(total), " of window space is free");
  if (free >= kSmallestRegion) return Ok("window_space", what);
  return Warning("window_space", what,
                 "release a Region of this host, or enlarge the windows in the firmware");
}

// "decoder1.0"; "decoders_committed" beside it is a number.
bool IsDecoder(absl::string_view name) {
  return absl::ConsumePrefix(&name, "decoder") && !name.empty() && absl::ascii_isdigit(name[0]);
}

// Linux 7 counts a bridge's decoders when its first memory device comes.
Finding ExamineDecoders(const HostFiles& files) {
  std::map<size_t, int> bridges;  // By how many decoders they have.
  for (const std::string& name : files.List(kRoot)) {
    if (!absl::StartsWith(name, "port")) continue;
    const std::vector<std::string> children = files.List(absl::StrCat(kRoot, "/", name));
    ++bridges[static_cast<size_t>(
        std::count_if(children.begin(), children.end(),
                      [](const std::string& child) { return IsDecoder(child); }))];
  }
  if (bridges.empty()) {
    return Warning("decoders", "no CXL host bridge has come up",
                   "look for cxl in the kernel's log (dmesg)");
  }
  std::vector<std::string> parts;
  for (const auto& [decoders, count] : bridges) {
    parts.push_back(decoders == 0 ? absl::StrCat(count, " not known before its first memory device")
                                  : absl::StrCat(count, " with ", decoders));
  }
  return Ok("decoders",
            absl::StrCat("host bridges, by their decoders: ", absl::StrJoin(parts, ", ")));
}

Finding ExamineSlotDriver(const HostFiles& files) {
  if (files.Exists("sys/bus/pci_express/drivers/pciehp")) return Ok("pciehp", "driver pciehp");
  return Warning("pciehp", "no driver pciehp: the slots are not PCIe's own",
                 "use a kernel with CONFIG_HOTPLUG_PCI_PCIE; see that the firmware leaves hot-plug "
                 "to the kernel (_OSC)");
}

// Only a warning: the agent switches autoprobe off when it starts, and again before it makes a DAX
// device.
Finding ExamineAutoprobe(const HostFiles& files) {
  if (files.Read("sys/bus/dax/drivers_autoprobe") == "0") {
    return Ok("dax_autoprobe", "DAX autoprobe is off");
  }
  return Warning("dax_autoprobe",
                 "DAX autoprobe is on: a driver takes new DAX devices by itself until the agent "
                 "switches that off, which it does at its start",
                 "start cxlpool-agent; if it runs, find what switched autoprobe on again");
}

// "online_movable" is as good as "offline": memory in that zone can be taken offline again. The
// remedy includes what to change on the kernel's command line, so that it lasts beyond a reboot.
Finding ExamineAutoOnline(const HostFiles& files) {
  constexpr absl::string_view kSwitch = "sys/devices/system/memory/auto_online_blocks";
  const std::string now = files.Read(kSwitch).value_or("");
  if (now == "offline" || now == "online_movable") {
    return Ok("auto_online", absl::StrCat("new memory: ", now));
  }
  std::string boot = "boot with memhp_default_state=offline";
  for (absl::string_view word :
       absl::StrSplit(files.Read("proc/cmdline").value_or(""), ' ', absl::SkipEmpty())) {
    if (absl::StartsWith(word, "memhp_default_state=online")) {
      boot = absl::StrCat("take ", word, " out of the kernel's command line");
    }
  }
  return Warning("auto_online",
                 absl::StrCat("new memory goes online by itself (", now,
                              "), maybe where it can never leave again; the agent switches that "
                              "off only while it binds memory"),
                 absl::StrCat("echo offline > /", kSwitch, ", and ", boot));
}

// Configuration files by name; the first folder that has one wins, as udev reads them.
std::map<std::string, std::string> ConfigFiles(const HostFiles& files,
                                               const std::vector<absl::string_view>& folders,
                                               absl::string_view suffix) {
  std::map<std::string, std::string> found;
  for (absl::string_view folder : folders) {
    for (const std::string& name : files.List(folder)) {
      if (absl::EndsWith(name, suffix)) found.try_emplace(name, absl::StrCat(folder, "/", name));
    }
  }
  return found;
}

// Lines that are no comments, with those that end in a backslash put together.
std::vector<std::string> Statements(absl::string_view text) {
  std::vector<std::string> statements;
  bool goes_on = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::StartsWith(line, "#")) continue;
    const bool more = absl::ConsumeSuffix(&line, "\\");
    if (goes_on) {
      absl::StrAppend(&statements.back(), line);
    } else if (!line.empty()) {
      statements.emplace_back(line);
    }
    goes_on = more && !statements.empty();
  }
  return statements;
}

// Where memory is put online by a rule the moment it appears.
Finding ExamineUdev(const HostFiles& files) {
  std::vector<std::string> culprits;
  for (const auto& [name, path] : ConfigFiles(
           files,
           {"etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"},
           ".rules")) {
    const std::vector<std::string> rules = Statements(files.Read(path).value_or(""));
    // `ATTR{state}==` only compares and is harmless; `ATTR{state}=` sets the state, and a program
    // that RUN starts may do so.
    if (std::any_of(rules.begin(), rules.end(), [](const std::string& rule) {
          return absl::StrContains(rule, "SUBSYSTEM==\"memory\"") &&
                 absl::StrContains(rule, "online") &&
                 (absl::StrContains(rule, "ATTR{state}=\"") || absl::StrContains(rule, "RUN"));
        })) {
      culprits.push_back(absl::StrCat("/", path));
    }
  }
  if (culprits.empty()) return Ok("udev_rules", "no udev rule puts memory online");
  return Warning(
      "udev_rules",
      absl::StrCat("udev puts new memory online by itself: ", absl::StrJoin(culprits, ", ")),
      "mask it: ln -s /dev/null /etc/udev/rules.d/NAME; udevadm control --reload");
}

// Warns of every section that reconfigures devices: which devices a section matches is not worked
// out here.
Finding ExamineDaxctl(const HostFiles& files) {
  std::vector<std::string> culprits;
  for (const auto& [name, path] : ConfigFiles(files, {"etc/daxctl.conf.d"}, ".conf")) {
    const std::vector<std::string> lines = Statements(files.Read(path).value_or(""));
    if (std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
          return absl::StartsWith(line, "[reconfigure-device");
        })) {
      culprits.push_back(absl::StrCat("/", path));
    }
  }
  if (culprits.empty()) return Ok("daxctl_conf", "daxctl reconfigures no DAX device by itself");
  return Warning(
      "daxctl_conf",
      absl::StrCat("daxctl reconfigures DAX devices by itself: ", absl::StrJoin(culprits, ", ")),
      "see that none of its sections means a DAX device of the pool");
}

// Only a warning, because a slot whose port has a power controller can be ejected all the same.
Finding ExamineLockdown(const HostFiles& files) {
  const std::string modes = files.Read("sys/kernel/security/lockdown").value_or("");
  if (!absl::StrContains(modes, "[integrity]") && !absl::StrContains(modes, "[confidentiality]")) {
    return Ok("lockdown", "no kernel lockdown");
  }
  return Warning("lockdown",
                 absl::StrCat("kernel lockdown (", modes,
                              "): slots whose ports have no power controller cannot be ejected"),
                 "boot without lockdown= and Secure Boot, unless all ports have one");
}

// Linux decides by this flag. A machine whose /proc/cpuinfo has no line "flags" passes.
Finding ExamineProcessor(const HostFiles& files) {
  const std::string flags = LineOf(files.Read("proc/cpuinfo").value_or(""), "flags").value_or("");
  const std::vector<absl::string_view> words = absl::StrSplit(flags, ' ');
  if (std::find(words.begin(), words.end(), "hypervisor") == words.end()) {
    return Ok("processor", "caches can be flushed for a new host region");
  }
  return Warning("processor",
                 "the processor says that it is a virtual machine's: Linux then commits no host "
                 "region (ENXIO), since it cannot flush caches",
                 "give the virtual machine a processor without that flag (QEMU: -cpu "
                 "host,-hypervisor)");
}

// Enough is what the smallest Region needs. What a larger one needs is checked when it is attached.
Finding ExaminePageStructs(const HostFiles& files) {
  const uint64_t most = ReadPageStructSpare(files) * kBytesPerPageStructByte;
  const std::string what = absl::StrCat("spare memory for the page structs of ", Size(most));
  if (most >= kSmallestRegion) return Ok("page_structs", what);
  return Warning("page_structs", what,
                 absl::StrCat("free memory of this host: each Region needs 1/",
                              kBytesPerPageStructByte, " of it"));
}

// tracefs is root's: no one else can see what is in it.
Finding ExamineEvents(const HostFiles& files) {
  const std::string tracefs = FindTracefs(files);
  if (tracefs.empty()) {
    return Warning("trace_events",
                   "no tracefs: poison and media errors of pool memory stay unknown, unless they "
                   "hit a program",
                   "mount -t tracefs tracefs /sys/kernel/tracing; use a kernel with tracing");
  }
  if (!files.Exists(absl::StrCat(tracefs, "/events/cxl"))) {
    return Warning("trace_events",
                   "the kernel has no trace events of CXL memory: poison and media errors of pool "
                   "memory stay unknown, unless they hit a program",
                   "load the module cxl_core; use Linux 6.12 or later");
  }
  return Ok("trace_events", "the kernel reports poison and media errors");
}

}  // namespace

// A check is left out where another finding already says that its subject is missing: no windows
// without CXL, no autoprobe without a DAX bus. Only root can look into tracefs.
std::vector<Finding> ExamineHost(const HostFiles& files, HostUse use) {
  std::vector<Finding> findings = {ExamineKernel(files), ExaminePermissions(files)};
  // The last finding so far is ExaminePermissions'.
  const bool is_root = findings.back().verdict == Verdict::kOk;
  for (Finding& need : ExamineNeeds(files, use)) findings.push_back(std::move(need));
  const bool plugged = use == HostUse::kPlugged;
  if (plugged && files.Exists(kRoot)) {
    findings.push_back(ExamineWindowSpace(files));
    findings.push_back(ExamineDecoders(files));
  }
  if (plugged && !files.List("sys/bus/pci/slots").empty())
    findings.push_back(ExamineSlotDriver(files));
  if (files.Exists("sys/bus/dax/drivers_autoprobe")) findings.push_back(ExamineAutoprobe(files));
  if (files.Exists("sys/devices/system/memory/auto_online_blocks")) {
    findings.push_back(ExamineAutoOnline(files));
  }
  findings.push_back(ExamineUdev(files));
  findings.push_back(ExamineDaxctl(files));
  findings.push_back(ExamineLockdown(files));
  findings.push_back(ExamineProcessor(files));
  findings.push_back(ExaminePageStructs(files));
  if (is_root) findings.push_back(ExamineEvents(files));
  return findings;
}

}  // namespace cxlpool::agent
