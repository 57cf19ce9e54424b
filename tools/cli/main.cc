// The operator's command: parse, connect, execute, and one exit code at the end.

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "proto/support/refusal.h"
#include "tools/cli/command_line.h"
#include "tools/cli/connection.h"
#include "tools/cli/context_command.h"
#include "tools/cli/execute.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/fsck_command.h"
#include "tools/cli/grpc_stub.h"
#include "tools/cli/print.h"
#include "tools/cli/quickstart_command.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/run_command.h"
#include "tools/cli/settings.h"
#include "tools/cli/slurm/hooks.h"
#include "tools/cli/watch_list.h"

namespace cxlpool::cli {
namespace {

// Prints once why nothing happens, so that a wrong address does not look like a hang; with
// --verbose also under which id the log has what is asked for.
class Sayer : public CallListener {
 public:
  explicit Sayer(bool verbose) : verbose_(verbose) {}

  void OnChange(const std::string& request_id) override {
    if (verbose_) std::cerr << "request id: " << request_id << std::endl;
  }
  void OnRetry(const absl::Status& status, absl::Duration) override {
    if (said_) return;
    said_ = true;
    const auto refusal = RefusalOf(status);
    const std::string why = refusal.has_value() ? refusal->message : std::string(status.message());
    std::cerr << "cxlpool: trying again: " << Printable(why) << std::endl;
  }

 private:
  const bool verbose_;
  bool said_ = false;
};

// What is watched ends when somebody interrupts it, and that is no failure. All that is printed was
// flushed.
void EndOnInterrupt() {
  signal(SIGINT, [](int) { _exit(0); });
}

// The connection to the manager, made when it is first asked for. It lives as long as this.
class LazyConnection {
 public:
  LazyConnection(const Invocation& invocation, absl::Duration timeout, bool fail_fast)
      : invocation_(invocation),
        listener_(invocation.verbose),
        timeout_(timeout),
        fail_fast_(fail_fast) {}

  absl::StatusOr<Connection*> Get() {
    if (connection_.has_value()) return &*connection_;
    const auto settings = ResolveSettings(invocation_.connection, ReadEnvironment());
    if (!settings.ok()) return settings.status();
    std::vector<std::string> warnings;
    auto stub = MakeGrpcStub(*settings, &warnings);
    if (!stub.ok()) return stub.status();
    stub_ = *std::move(stub);
    for (const std::string& warning : warnings) {
      std::cerr << "cxlpool: warning: " << Printable(warning) << std::endl;
    }
    return &connection_.emplace(*stub_, pacer_, listener_, timeout_, fail_fast_);
  }

 private:
  const Invocation& invocation_;
  Sayer listener_;
  const absl::Duration timeout_;
  const bool fail_fast_;
  SystemPacer pacer_;
  std::unique_ptr<ManagerStub> stub_;
  std::optional<Connection> connection_;
};

// All is answered on standard output, from where burst_buffer.lua hands it on, also a refusal.
int Run(const SlurmCommand& command, const Invocation& invocation, Printer& printer) {
  const auto file = FindSettingsFile(invocation.connection, ReadEnvironment());
  const bool quick = IsQuick(command);
  std::ostringstream answer;
  Claim claim = [] { return true; };
  absl::Status status = file.status();
  if (file.ok()) {
    if (quick) claim = AnswerInASecond(command, file->slurm);
    LazyConnection connection(invocation, quick ? kQuickCall : invocation.timeout,
                              quick || invocation.fail_fast);
    SystemSlurm cluster;
    Printer to_answer{.out = answer,
                      .err = printer.err,
                      .format = printer.format,
                      .headers = printer.headers,
                      .columns = printer.columns};
    status = Execute(
        command, file->slurm, [&] { return connection.Get(); }, cluster, to_answer);
  }
  while (!claim()) absl::SleepFor(absl::Seconds(1));  // This process is being ended.
  std::cout << answer.str() << (status.ok() ? "" : OneLine(status) + "\n") << std::flush;
  return static_cast<int>(ExitCodeOf(status));
}

absl::Status Run(const Invocation& invocation, Printer& printer) {
  if (const auto* pki = std::get_if<PkiCommand>(&invocation.command)) return Execute(*pki, printer);
  if (const auto* context = std::get_if<ContextCommand>(&invocation.command)) {
    return Execute(*context, invocation.connection, ReadEnvironment(), printer);
  }
  const auto* quickstart = std::get_if<QuickstartCommand>(&invocation.command);
  if (quickstart != nullptr) return Execute(*quickstart);
  if (const auto* run = std::get_if<RunCommand>(&invocation.command)) return Execute(*run);
  LazyConnection lazy(invocation, invocation.timeout, invocation.fail_fast);
  const auto got = lazy.Get();
  if (!got.ok()) return got.status();
  Connection& connection = **got;
  const auto& command = std::get<PoolCommand>(invocation.command);
  if (invocation.watch || std::holds_alternative<WatchRegions>(command)) EndOnInterrupt();
  if (invocation.watch) return ExecuteAndWatch(command, connection, printer);
  return Execute(command, connection, printer);
}

// A candidate a line. Names are asked of the manager, once and not for long: whoever waits has a
// key under the finger. Without a manager there are none.
void PrintCandidates(const Candidates& candidates) {
  for (const std::string& word : candidates.words) std::cout << word << "\n";
  if (candidates.names_of.empty()) return;
  std::vector<const char*> argv = {
      "cxlpool", candidates.names_of.c_str(), "list", "-o", "name", "--fail-fast", "--timeout",
      "1s"};
  for (const std::string& word : candidates.connection) argv.push_back(word.c_str());
  const auto parsed = ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  if (!parsed.ok() || !std::holds_alternative<Invocation>(*parsed)) return;
  std::ostringstream names, ignored;
  Printer printer{.out = names, .err = ignored, .format = OutputFormat::kName};
  if (!Run(std::get<Invocation>(*parsed), printer).ok()) return;
  std::istringstream lines(names.str());
  for (std::string line; std::getline(lines, line);) {
    const std::string word = candidates.before + line.substr(line.find('/') + 1);
    if (word.rfind(candidates.prefix, 0) == 0) std::cout << word << "\n";
  }
}

// Of the terminal that standard output is; 0: it is none, or it does not say.
int Columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

// Somebody sees what is asked, and can answer.
bool AtTerminal() { return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1; }

// An error is printed in the format that was asked for, also where the rest of the command line
// could not be read, and its code is the exit status. Commands that others call by their exit
// status (fsck, Slurm, completion) have their own.
int Main(int argc, char** argv) {
  // gRPC's own log would mix with ours on stderr; what it knows is in the status.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const auto parsed = ParseCommandLine(argc, argv);
  absl::Status status = parsed.status();
  if (parsed.ok()) {
    if (const auto* print = std::get_if<PrintText>(&*parsed)) {
      std::cout << print->text << std::flush;
    } else if (const auto* candidates = std::get_if<Candidates>(&*parsed)) {
      PrintCandidates(*candidates);
      return candidates->files ? kFiles : 0;
    } else {
      const Invocation& invocation = std::get<Invocation>(*parsed);
      Printer printer{.out = std::cout,
                      .err = std::cerr,
                      .format = invocation.output,
                      .progress = isatty(STDERR_FILENO) == 1,
                      .headers = invocation.headers,
                      .answers = AtTerminal() ? &std::cin : nullptr,
                      .columns = Columns()};
      const auto* fsck = std::get_if<FsckCommand>(&invocation.command);
      if (fsck != nullptr) return Execute(*fsck, printer);
      const auto* slurm = std::get_if<SlurmCommand>(&invocation.command);
      if (slurm != nullptr) return Run(*slurm, invocation, printer);
      status = Run(invocation, printer);
    }
  }
  if (!status.ok()) {
    std::cerr << ErrorAs(WantedFormat(argc, argv), status);
  }
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace cxlpool::cli

int main(int argc, char** argv) {
  const int code = cxlpool::cli::Main(argc, argv);
  std::cout.flush();
  std::cerr.flush();
  // Not exit(): gRPC's threads still run (KeepGrpcUp), and exit() would take down under them what
  // they and OpenSSL use.
  _exit(code);
}
