#include "tools/cli/subcommands.h"

namespace cxlpool::cli {

void AddFsckCommand(CLI::App& app, Chosen& chosen) {
  CLI::App* fsck = app.add_subcommand("fsck", "Check a stopped manager's database, or a backup");
  auto command = std::make_shared<FsckCommand>();
  fsck->add_option("DB", command->database, "The database: the manager's store.path, or a backup")
      ->type_name("")
      ->required();
  fsck->add_flag("--repair", command->repair,
                 "Quarantine what is in conflict; the database before is kept as DB.before-fsck");
  fsck->footer("Exit codes: 0 sound, 1 findings, 2 it could not be checked or repaired.");
  OnChosen(fsck, chosen, [command](Fields&) -> Command { return *command; });
}

}  // namespace cxlpool::cli
