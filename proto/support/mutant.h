// Seeded defects, to see that the tests can fail: tools/test --mutants switches on one after the
// other, and some test must catch each. The list, and which test catches what: test/mutants.
//
// Only a build with CXLPOOL_MUTANTS has them; in every other one CXLPOOL_MUTANT(name) is the
// constant false.
#ifndef CXLPOOL_PROTO_SUPPORT_MUTANT_H_
#define CXLPOOL_PROTO_SUPPORT_MUTANT_H_

#ifdef CXLPOOL_MUTANTS
#include <cstdlib>
#include <cstring>
#endif

// Whether the defect `name` is switched on: CXLPOOL_MUTANT=name, read once at each place.
#ifdef CXLPOOL_MUTANTS
#define CXLPOOL_MUTANT(name)                                      \
  ([] {                                                           \
    static const bool on = [] {                                   \
      const char* chosen = std::getenv("CXLPOOL_MUTANT");         \
      return chosen != nullptr && std::strcmp(chosen, name) == 0; \
    }();                                                          \
    return on;                                                    \
  }())
#else
#define CXLPOOL_MUTANT(name) false
#endif

#endif  // CXLPOOL_PROTO_SUPPORT_MUTANT_H_
