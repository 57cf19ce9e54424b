// What took effect on an emulated fabric, and under which manager's epoch: the driver notes each
// claim, bind and scrub, a line each, in the file that CXLPOOL_FABRIC_EFFECTS names.
#ifndef CXLPOOL_TEST_CONTRACT_FABRIC_EFFECTS_H_
#define CXLPOOL_TEST_CONTRACT_FABRIC_EFFECTS_H_

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace cxlpool {

struct FabricEffects {
  uint64_t claims = 0, binds = 0, scrubs = 0;
  std::string wrong;  // The first one that came under a lower epoch than one before; empty: none.
};

// A file that is not there has none. Managers may go on writing meanwhile.
inline FabricEffects ReadFabricEffects(const std::string& path) {
  FabricEffects effects;
  uint64_t highest = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {  // "7 bind host-a".
    uint64_t epoch = 0;
    std::string what;
    std::istringstream(line) >> epoch >> what;
    effects.claims += what == "claim" ? 1 : 0;
    effects.binds += what == "bind" ? 1 : 0;
    effects.scrubs += what == "scrub" ? 1 : 0;
    if (epoch < highest && effects.wrong.empty()) {
      effects.wrong = absl::StrCat("\"", line, "\" came after something of epoch ", highest);
    }
    if (epoch > highest) highest = epoch;
  }
  return effects;
}

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_CONTRACT_FABRIC_EFFECTS_H_
