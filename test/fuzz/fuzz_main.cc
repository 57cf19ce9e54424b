// What libFuzzer calls: the target that the environment's CXLPOOL_FUZZ names.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "test/fuzz/fuzz_target.h"

using ::cxlpool::fuzz::Targets;

static cxlpool::fuzz::Target target;

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* const name = std::getenv("CXLPOOL_FUZZ");
  const auto found = Targets().find(name == nullptr ? "" : name);
  if (found == Targets().end()) {
    std::fprintf(stderr, "set CXLPOOL_FUZZ to one of\n");
    for (const auto& [known, run] : Targets()) std::fprintf(stderr, "  %s\n", known.c_str());
    std::exit(2);
  }
  target = found->second;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
