#include "proto/metrics/metrics.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "proto/support/check.h"

namespace cxlpool::metrics {
namespace {

// As the format wants it: a whole number has no fraction and loses nothing.
std::string NumberText(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.10g", value);
}

// Backslash, quote and line feed are the three that the format wants escaped.
void AppendQuoted(std::string& out, absl::string_view value) {
  out += '"';
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

// A file of /proc/self; empty: it cannot be read.
std::string ReadOwn(const char* name) {
  std::ifstream in(absl::StrCat("/proc/self/", name));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

int CountOwn(const char* folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(
      opendir(absl::StrCat("/proc/self/", folder).c_str()), closedir);
  int count = 0;
  while (dir != nullptr) {
    const dirent* const entry = readdir(dir.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') ++count;
  }
  return count;
}

// Of a process that started so many ticks after the machine. Worked out once: clocks drift against
// one another, and Prometheus would take each other value for another start.
double StartTime(double ticks_after_boot) {
  static const double start = [&] {
    // Not /proc/uptime: where a unit has ProcSubset=pid there is none.
    timespec up = {};
    clock_gettime(CLOCK_BOOTTIME, &up);
    const double age = absl::ToDoubleSeconds(absl::DurationFromTimespec(up)) -
                       ticks_after_boot / static_cast<double>(sysconf(_SC_CLK_TCK));
    return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) - age;
  }();
  return start;
}

}  // namespace

Histogram::Histogram(std::initializer_list<double> bounds) : bounds_(bounds) {
  CXLPOOL_CHECK(bounds_.size() <= kMaxBounds, "a histogram has ", bounds_.size(), " bounds");
}

void Histogram::Observe(double value) {
  value = std::max(value, 0.0);  // A clock that was set back.
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  buckets_[static_cast<size_t>(bound - bounds_.begin())].Add();
  sum_millionths_.Add(static_cast<uint64_t>(value * 1e6));
}

CounterByLabel::~CounterByLabel() {
  for (Slot& slot : slots_) delete slot.value.load();
}

// A slot that has a value keeps it. So whoever finds the value, or a free slot on the way to it,
// has found the only place where it can be.
void CounterByLabel::Add(absl::string_view value, uint64_t n) {
  const size_t start = absl::Hash<absl::string_view>()(value);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[(start + i) % slots_.size()];
    const std::string* found = slot.value.load(std::memory_order_acquire);
    if (found == nullptr) {
      if (values_.fetch_add(1) >= kMaxValues) {
        values_.fetch_sub(1);
        break;
      }
      auto mine = std::make_unique<const std::string>(value);
      if (slot.value.compare_exchange_strong(found, mine.get())) {
        found = mine.release();
      } else {
        values_.fetch_sub(1);  // Another thread took the slot; maybe for the same value.
      }
    }
    if (*found == value) return slot.count.Add(n);
  }
  other_.Add(n);
}

std::map<std::string, uint64_t> CounterByLabel::Values() const {
  std::map<std::string, uint64_t> values;
  for (const Slot& slot : slots_) {
    const std::string* value = slot.value.load(std::memory_order_acquire);
    if (value != nullptr) values[*value] = slot.count.value();
  }
  if (other_.value() > 0) values["other"] += other_.value();
  return values;
}

void MetricsText::Begin(absl::string_view name, absl::string_view type, absl::string_view help) {
  name_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void MetricsText::Line(absl::string_view name, const Labels& labels, double value) {
  absl::StrAppend(&text_, name);
  char before = '{';
  for (const auto& [label, of] : labels) {
    absl::StrAppend(&text_, absl::string_view(&before, 1), label, "=");
    AppendQuoted(text_, of);
    before = ',';
  }
  absl::StrAppend(&text_, labels.empty() ? " " : "} ", NumberText(value), "\n");
}

// Buckets are read one after the other while others count: their sum is what is said to be the
// count, so that a scrape never contradicts itself.
void MetricsText::Sample(const Labels& labels, const class Histogram& of) {
  Labels with_bound = labels;
  with_bound.emplace_back("le", "");
  uint64_t count = 0;
  for (size_t i = 0; i <= of.bounds().size(); ++i) {
    count += of.bucket(i);
    with_bound.back().second = i < of.bounds().size() ? NumberText(of.bounds()[i]) : "+Inf";
    Line(name_ + "_bucket", with_bound, static_cast<double>(count));
  }
  Line(name_ + "_sum", labels, of.sum());
  Line(name_ + "_count", labels, static_cast<double>(count));
}

// Names and meanings are those that every Prometheus client library uses. /proc/self/stat has
// the program's name in brackets, which may hold blanks: fields are counted behind it (proc(5)).
void AddProcess(MetricsText& out) {
  out.Gauge("cxlpool_build_info", "Always 1; the version that runs.");
  out.Sample({{"version", CXLPOOL_VERSION}}, 1);
  const std::string stat = ReadOwn("stat");
  const size_t bracket = stat.rfind(')');
  if (bracket == std::string::npos) return;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(bracket + 1), ' ');
  const auto field = [&](size_t number) {  // As proc(5) counts them; the state is 3.
    double value = 0;
    const size_t i = number - 2;
    return i < fields.size() && absl::SimpleAtod(fields[i], &value) ? value : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  out.Counter("process_cpu_seconds_total", "CPU time of the process.",
              (field(14) + field(15)) / ticks);
  out.Gauge("process_start_time_seconds", "When the process started, since the epoch.",
            StartTime(field(22)));
  out.Gauge("process_virtual_memory_bytes", "Virtual memory of the process.", field(23));
  out.Gauge("process_resident_memory_bytes", "Resident memory of the process.",
            field(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  out.Gauge("process_open_fds", "Open file descriptors.", CountOwn("fd"));
  out.Gauge("process_threads", "Threads of the process.", CountOwn("task"));
}

}  // namespace cxlpool::metrics
