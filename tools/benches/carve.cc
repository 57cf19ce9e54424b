// bench-carve: how long it takes to make a DAX device on a range of a device that a host sees
// whole, beside `daxctl create-device` by hand. Runs in an emulated host (tools/benches/scrub.py).
//
// Ours: what the agent's DaxSpace does, of the range that is named, bound, and read back. By hand:
// daxctl, forked and awaited, which takes the first free bytes. What was made is taken away again
// before the next; that is not measured.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/linux_space.h"
#include "proto/support/loop.h"
#include "tools/benches/bench_main.h"
#include "tools/benches/child.h"
#include "tools/benches/rounds.h"

namespace cxlpool::bench {
namespace {

constexpr double kTarget = 1.05;
constexpr char kDaxctl[] = "/usr/bin/daxctl";

struct Options : BenchOptions {
  uint64_t bytes = uint64_t{64} << 20;
  std::string log = "/var/log/bench-carve.log";
};

class CarveBench {
 public:
  explicit CarveBench(const Options& options)
      : options_(options), space_(agent::MakeLinuxSpace({})) {}

  // The first device that can be used.
  absl::Status Start() {
    if (absl::Status status = space_->Prepare(); !status.ok()) return status;
    const auto view = space_->Look();
    if (!view.ok()) return view.status();
    const auto fit = std::find_if(view->devices.begin(), view->devices.end(),
                                  [](const auto& device) { return device.unfit.empty(); });
    if (fit == view->devices.end()) return absl::NotFoundError("no device can be used");
    device_ = fit->name;
    return absl::OkStatus();
  }

  absl::StatusOr<Sample> Ours() {
    return Slice([this]() -> absl::Status {
      if (absl::Status status = space_->Carve(device_, options_.bytes, options_.bytes);
          !status.ok()) {
        return status;
      }
      const auto made = Made();
      if (!made.ok()) return made.status();
      return space_->Bind(*made, agent::DaxDriver::kDeviceDax);
    });
  }

  // A host region's number is what daxctl calls its DAX region by.
  absl::StatusOr<Sample> ByHand() {
    return Slice([this]() -> absl::Status {
      auto child = Child::Start(
          {kDaxctl, "create-device", "-r", device_.substr(device_.find_first_of("0123456789")),
           "-s", absl::StrCat(options_.bytes)},
          options_.log);
      if (!child.ok()) return child.status();
      const int code = child->Wait();
      if (code == 0) return absl::OkStatus();
      return absl::InternalError(
          absl::StrCat("daxctl create-device ended with ", code, "; see ", options_.log));
    });
  }

 private:
  // The only one on the device.
  absl::StatusOr<agent::SpacePiece> Made() {
    const auto view = space_->Look();
    if (!view.ok()) return view.status();
    for (const agent::SpacePiece& piece : view->pieces) {
      if (piece.device == device_ && piece.length_bytes == options_.bytes) return piece;
    }
    return absl::InternalError("no DAX device of that size is there");
  }

  absl::StatusOr<Sample> Slice(const std::function<absl::Status()>& make) {
    std::vector<double> took;
    absl::Duration spent;
    while (spent < options_.measured) {
      const absl::Duration began = clock_.Elapsed();
      if (absl::Status status = make(); !status.ok()) return status;
      const absl::Duration one = clock_.Elapsed() - began;
      took.push_back(absl::ToDoubleSeconds(one));
      spent += one;
      const auto made = Made();
      if (!made.ok()) return made.status();
      if (absl::Status status = space_->Unbind(*made); !status.ok()) return status;
      if (absl::Status status = space_->Uncarve(*made); !status.ok()) return status;
    }
    return Sample{.seconds = Median(took)};
  }

  const Options& options_;
  SystemClock clock_;
  std::unique_ptr<agent::DaxSpace> space_;
  std::string device_;
};

absl::StatusOr<std::vector<Row>> Run(const Options& options) {
  CarveBench bench(options);
  if (absl::Status status = bench.Start(); !status.ok()) return status;
  const auto millis = [](const Sample& sample) { return 1000 * sample.seconds; };
  Rounds rounds({{"ours", [&] { return bench.Ours(); }, millis},
                 {"daxctl", [&] { return bench.ByHand(); }, millis}});
  if (absl::Status status = rounds.Run(options.rounds); !status.ok()) return status;
  const auto of = [&](size_t side) {
    return [=](const std::vector<Sample>& pass) { return millis(pass[side]); };
  };
  return std::vector<Row>{MakeRow(19, "carving a range, by `daxctl create-device`", "ms in TCG",
                                  kTarget, Aim::kAtMost, rounds.Compare(of(0), of(1)))};
}

}  // namespace
}  // namespace cxlpool::bench

int main(int argc, char** argv) {
  cxlpool::bench::Options own;
  return cxlpool::bench::RunBench(
      argc, argv,
      {.name = "bench-carve",
       .what = "a DAX device on a range of a device, by the agent and by daxctl",
       .measure = [&](const auto&) { return cxlpool::bench::Run(own); },
       .add_options =
           [&](CLI::App& app) {
             app.add_option("--bytes", own.bytes, "Of the range")->capture_default_str();
             app.add_option("--log", own.log, "Where what daxctl says is appended")
                 ->capture_default_str();
           },
       .options = &own});
}
