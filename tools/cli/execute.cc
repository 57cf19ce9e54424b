#include "tools/cli/execute.h"

#include <variant>

#include "tools/cli/run.h"

namespace cxlpool::cli {

absl::Status Execute(PoolCommand command, Connection& connection, Printer& printer) {
  return std::visit(
      [&](auto& chosen) {
        if constexpr (requires { chosen.request; }) FillRequestId(chosen.request);
        return Run(chosen, connection, printer);
      },
      command);
}

}  // namespace cxlpool::cli
