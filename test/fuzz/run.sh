#!/bin/bash
# test/fuzz/run.sh MINUTES [TARGET...]: fuzzes each target of build/fuzz, by default all, for its share of the time, one
# after the other. tools/test --long calls it. From nothing the build takes some minutes of a processor.
#
# What it finds stays in build/fuzz/found/TARGET, and what makes a target fail in build/fuzz/failed: make it as small as it
# gets (CXLPOOL_FUZZ=TARGET PROGRAM -minimize_crash=1 -runs=100000 FILE), put it into test/fuzz/testdata/TARGET and repair
# what is wrong. Exits 0 only if nothing failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
minutes=${1:?MINUTES}
shift
tools/build fuzz cxlpool-fuzz
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls test/fuzz/testdata)
share=$(awk -v minutes="$minutes" -v targets=${#targets[@]} 'BEGIN { printf "%d", minutes * 60 / targets }')
[ "$share" -gt 0 ] || share=1  # 0 is for ever.

output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=()
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/found/$target" build/fuzz/failed
  if CXLPOOL_FUZZ=$target build/fuzz/test/fuzz/cxlpool-fuzz -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -verbosity=1 \
    -artifact_prefix="build/fuzz/failed/$target-" "build/fuzz/found/$target" "test/fuzz/testdata/$target" >"$output" 2>&1; then
    runs=$(sed -nE 's/^Done ([0-9]+) runs.*/\1/p' "$output")
    covered=$(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' "$output" | tail -1)
    echo "fuzz $target: $runs runs in $share s, $covered edges covered"
  else
    failed+=("$target")
    tail -40 "$output"
  fi
done
[ ${#failed[@]} = 0 ] || { echo "fuzz: failed: ${failed[*]}" >&2; exit 1; }
