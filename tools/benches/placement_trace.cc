#include "tools/benches/placement_trace.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cxlpool::bench {
namespace {

constexpr char kHead[] = "arrival_s,lifetime_s,vcpus,memory_gib";
constexpr size_t kMaxMachines = 10'000'000;
constexpr double kMaxSeconds = 1e10;
constexpr double kMaxGib = 1 << 20;
constexpr uint32_t kMaxVcpus = 1 << 16;

bool Number(absl::string_view text, double most, double& value) {
  return absl::SimpleAtod(text, &value) && value >= 0 && value <= most;
}

std::optional<Machine> Parse(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  Machine machine;
  if (fields.size() != 4 || !Number(fields[0], kMaxSeconds, machine.arrival_s)) return std::nullopt;
  if (!fields[1].empty() && !Number(fields[1], kMaxSeconds, machine.lifetime_s))
    return std::nullopt;
  if (!absl::SimpleAtoi(fields[2], &machine.vcpus) || machine.vcpus == 0 ||
      machine.vcpus > kMaxVcpus || !Number(fields[3], kMaxGib, machine.memory_gib) ||
      machine.memory_gib == 0) {
    return std::nullopt;
  }
  return machine;
}

absl::Status Wrong(const std::string& file, size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, " line ", line, ": ", what));
}

}  // namespace

absl::StatusOr<std::vector<Machine>> ReadTrace(const std::string& file) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  if (in == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot open ", file, "; give --trace a file to read"));
  }
  std::vector<Machine> machines;
  std::array<char, 256> buffer;
  size_t number = 0;
  while (gzgets(in.get(), buffer.data(), static_cast<int>(buffer.size())) != nullptr) {
    ++number;
    absl::string_view line = buffer.data();
    if (!absl::ConsumeSuffix(&line, "\n") && !gzeof(in.get())) {
      return Wrong(file, number, "longer than any such line, or not text");
    }
    absl::ConsumeSuffix(&line, "\r");
    if (number == 1) {
      if (line != kHead) return Wrong(file, 1, absl::StrCat("not the columns ", kHead));
      continue;
    }
    const std::optional<Machine> machine = Parse(line);
    if (!machine.has_value()) {
      return Wrong(file, number,
                   "want seconds, seconds or nothing, vcpus > 0, GiB > 0, with commas between");
    }
    if (!machines.empty() && machine->arrival_s < machines.back().arrival_s) {
      return Wrong(file, number, "arrives before the line above; sort by arrival_s");
    }
    if (machines.size() == kMaxMachines)
      return Wrong(file, number, "more machines than 10 millions");
    machines.push_back(*machine);
  }
  int error = Z_OK;
  const char* what = gzerror(in.get(), &error);
  if (error != Z_OK && error != Z_STREAM_END) return Wrong(file, number + 1, what);
  if (machines.empty()) return Wrong(file, number + 1, "no machines");
  return machines;
}

std::vector<TraceEvent> EventsOf(const std::vector<Machine>& machines) {
  std::vector<std::tuple<double, bool, uint32_t>> order;
  order.reserve(2 * machines.size());
  for (uint32_t i = 0; i < machines.size(); ++i) {
    const Machine& machine = machines[i];
    order.emplace_back(machine.arrival_s, true, i);
    // Who does not stay at all goes after it came.
    if (machine.lifetime_s >= 0) {
      order.emplace_back(machine.arrival_s + std::max(machine.lifetime_s, 1e-6), false, i);
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<TraceEvent> events;
  events.reserve(order.size());
  for (const auto& [time, arrives, machine] : order) events.push_back({machine, arrives});
  return events;
}

}  // namespace cxlpool::bench
