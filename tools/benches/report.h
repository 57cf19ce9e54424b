// A bench's figures as JSON and as lines for people. tools/bench puts those of all benches
// together.
#ifndef CXLPOOL_TOOLS_BENCHES_REPORT_H_
#define CXLPOOL_TOOLS_BENCHES_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/benches/stats.h"

namespace cxlpool::bench {

// One line of docs/performance.md's table. `name` and `unit` are plain text, without quotes.
struct Row {
  int number = 0;
  std::string name;
  std::string unit;
  double target = 0;
  Aim aim = Aim::kAtLeast;
  Summary summary;
};

// The row of what `rounds` measured. Its number is the bootstrap's seed.
Row MakeRow(int number, std::string name, std::string unit, double target, Aim aim,
            const std::vector<Round>& rounds);

// The row of what a change has cost: the manager beside that of an earlier build. It may have 3 %
// less of its rate or, with Aim::kAtMost, take 3 % longer.
Row MakeRowBefore(int number, const std::string& what, std::string unit, Aim aim,
                  const std::vector<Round>& rounds);

// {"rows":[{"row":2,"name":"…","unit":"…","ours":…,"peer":…,"ratio":…,"ci":[…,…],"aa":[…,…],
//           "target":…,"aim":"at least|at most","met":true,"verdict":"met|missed|inconclusive"}]}
std::string ToJson(const std::vector<Row>& rows);

// Two lines for people: figures and intervals, then control, target and verdict.
std::string ToText(const Row& row);

// UNAVAILABLE: `file` could not be written whole.
absl::Status WriteFile(const std::string& file, const std::string& text);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_REPORT_H_
