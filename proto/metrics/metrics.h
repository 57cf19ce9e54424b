// Counters and histograms, and the text in which Prometheus reads them (exposition format 0.0.4).
//
// Counting is a relaxed atomic addition, from any thread. What is counted has no name here: name,
// unit and labels stand where the text is made (MetricsText), so that each metric is said in one
// place.
#ifndef CXLPOOL_PROTO_METRICS_METRICS_H_
#define CXLPOOL_PROTO_METRICS_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool::metrics {

class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// How often something took so long, or was so large. The bounds are seconds or numbers; the last
// bucket, without a bound, is behind them.
class Histogram {
 public:
  static constexpr size_t kMaxBounds = 12;

  // At most kMaxBounds, ascending.
  Histogram(std::initializer_list<double> bounds);

  void Observe(double value);
  void Observe(absl::Duration time) { Observe(absl::ToDoubleSeconds(time)); }

  const std::vector<double>& bounds() const { return bounds_; }
  uint64_t bucket(size_t i) const { return buckets_[i].value(); }  // Up to bounds().size().
  double sum() const { return static_cast<double>(sum_millionths_.value()) / 1e6; }

 private:
  const std::vector<double> bounds_;
  std::array<Counter, kMaxBounds + 1> buckets_;
  Counter sum_millionths_;
};

// A counter for each value of one label. The values are our own words, which nobody outside
// chooses. A value that was counted before costs no lock. There are at most kMaxValues; what comes
// beyond is counted as "other".
class CounterByLabel {
 public:
  static constexpr size_t kMaxValues = 300;

  CounterByLabel() = default;
  ~CounterByLabel();
  CounterByLabel(const CounterByLabel&) = delete;
  CounterByLabel& operator=(const CounterByLabel&) = delete;

  void Add(absl::string_view value, uint64_t n = 1);

  // Each value that was counted.
  std::map<std::string, uint64_t> Values() const;

 private:
  struct Slot {
    std::atomic<const std::string*> value{nullptr};
    Counter count;
  };
  // A power of two, and far more than kMaxValues: a search for a free slot is short.
  std::array<Slot, 512> slots_;
  Counter other_;
  std::atomic<size_t> values_{0};
};

using Labels = std::vector<std::pair<absl::string_view, std::string>>;

// Makes the text. Each metric is begun once, and then has all its samples.
class MetricsText {
 public:
  // `help` is one line.
  void Gauge(absl::string_view name, absl::string_view help) { Begin(name, "gauge", help); }
  // `name` ends in "_total".
  void Counter(absl::string_view name, absl::string_view help) { Begin(name, "counter", help); }
  void Histogram(absl::string_view name, absl::string_view help) { Begin(name, "histogram", help); }

  // Of the metric begun last.
  void Sample(const Labels& labels, double value) { Line(name_, labels, value); }
  void Sample(const Labels& labels, const class Histogram& of);

  // A metric that has one sample, without labels.
  void Gauge(absl::string_view name, absl::string_view help, double value) {
    Gauge(name, help);
    Sample({}, value);
  }
  void Counter(absl::string_view name, absl::string_view help, double value) {
    Counter(name, help);
    Sample({}, value);
  }

  const std::string& text() const { return text_; }

 private:
  void Begin(absl::string_view name, absl::string_view type, absl::string_view help);
  void Line(absl::string_view name, const Labels& labels, double value);

  std::string name_;
  std::string text_;
};

// What every program says of itself: version, start, CPU time, memory, descriptors and threads, as
// /proc/self has them.
void AddProcess(MetricsText& out);

}  // namespace cxlpool::metrics

#endif  // CXLPOOL_PROTO_METRICS_METRICS_H_
