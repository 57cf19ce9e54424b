#include <memory>
#include <string>

#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

using Verb = SlurmCommand::Verb;

struct SlurmWords {
  Flag job, user, size;
  std::string script, path_file;
};

// One hook. `arguments`: which words it takes, in order: job, user, size, script, file.
CLI::App* AddHook(CLI::App* slurm, Chosen& chosen, const char* name, const char* help, Verb verb,
                  std::initializer_list<absl::string_view> arguments) {
  CLI::App* app = slurm->add_subcommand(name, help);
  auto words = std::make_shared<SlurmWords>();
  const auto add = [app](const char* word, auto& value, const char* what) {
    app->add_option(word, value, what)->type_name("")->required();
  };
  for (const absl::string_view argument : arguments) {
    if (argument == "job") add("JOB", words->job, "Its number");
    if (argument == "user") add("UID", words->user, "Whose job it is");
    if (argument == "size") add("BYTES", words->size, "What Slurm counts for it");
    if (argument == "script") add("SCRIPT", words->script, "File of the job's script");
    if (argument == "file") add("FILE", words->path_file, "Where to write them");
  }
  OnChosen(app, chosen, [words, verb](Fields& fields) -> Command {
    SlurmCommand command{.verb = verb, .script = words->script, .path_file = words->path_file};
    fields.SmallNumber("JOB", words->job, [&](uint32_t number) { command.job = number; });
    fields.SmallNumber("UID", words->user, [&](uint32_t number) { command.user = number; });
    fields.Size(words->size, [&](uint64_t bytes) { command.size_bytes = bytes; });
    return command;
  });
  return app;
}

}  // namespace

// The first ones are for people, the others for burst_buffer.lua.
void AddSlurmCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* slurm = app.add_subcommand(
      "slurm", "Serve a Slurm cluster: what its burst_buffer.lua and a timer call");
  slurm->require_subcommand(1);
  AddHook(slurm, chosen, "check", "Say what is missing for jobs to get memory", Verb::kCheck, {});
  AddHook(slurm, chosen, "status", "List the Regions of Slurm's jobs", Verb::kStatus, {});
  AddHook(slurm, chosen, "sweep",
          "Renew the leases of jobs that live, and release Regions whose job is gone", Verb::kSweep,
          {});
  AddHook(slurm, chosen, "pools", "Print the pool as Slurm has to see it, in less than 1s",
          Verb::kPools, {});
  AddHook(slurm, chosen, "validate", "Check the #CXLPOOL line of a job", Verb::kValidate,
          {"script"});
  AddHook(slurm, chosen, "setup", "Allocate a job's Regions; waits while the pool is full",
          Verb::kSetup, {"job", "user", "size", "script"});
  AddHook(slurm, chosen, "real-size", "Print how many bytes a job holds", Verb::kRealSize, {"job"});
  AddHook(slurm, chosen, "paths", "Write the variables that a job gets", Verb::kPaths,
          {"job", "script", "file"});
  AddHook(slurm, chosen, "pre-run", "Attach a job's Regions to its nodes", Verb::kPreRun,
          {"job", "script"});
  AddHook(slurm, chosen, "teardown", "Release a job's Regions", Verb::kTeardown, {"job"});
}

}  // namespace cxlpool::cli
