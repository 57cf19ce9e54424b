#include "tools/cli/nearest.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cxlpool::cli {
namespace {

// How many letters have to be put in, taken away, changed or swapped with their neighbour.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> at(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) at[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) at[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      at[i][j] = std::min(
          {at[i - 1][j] + 1, at[i][j - 1] + 1, at[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at[i][j] = std::min(at[i][j], at[i - 2][j - 2] + 1);
      }
    }
  }
  return at[a.size()][b.size()];
}

}  // namespace

std::string Nearest(absl::string_view word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = word.size() < 4 ? 2 : 3;  // Not so many.
  for (const std::string& candidate : known) {
    const bool begins = word.size() >= 3 && absl::StartsWith(candidate, word);
    const size_t distance = begins ? 1 : Distance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view nearest) {
  return nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?");
}

}  // namespace cxlpool::cli
