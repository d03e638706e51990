#!/usr/bin/env bash
# Starts a bed, runs the tests of test/realnodes and the experiment of the demo on it, runs the tests again with
# vn-agent in its other mode, and removes the bed. After a failure it copies the logs of the bed's programs and
# containers to _output/realnodes-logs. TEST_FLAGS are passed to `go test`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
KEPT=$OUT-logs

finish() {
  local code=$?
  trap - EXIT
  if ((code != 0)) && [[ -d $OUT/logs ]]; then
    mkdir -p "$KEPT"
    cp "$OUT"/logs/*.log "$KEPT/"
    for id in "${NODES[@]}"; do
      [[ ! -d $OUT/nodes/$id/var/log/pods ]] || cp -r "$OUT/nodes/$id/var/log/pods" "$KEPT/pods-$id"
    done
    echo "test-realnodes: FAILED; the logs of the bed are in $KEPT" >&2
  fi
  "$HERE/down.sh" || code=1
  exit "$code"
}

rm -rf "$KEPT"
trap finish EXIT
trap 'exit 130' INT TERM
"$HERE/up.sh"
cd "$ROOT"
run_tests() {
  # shellcheck disable=SC2086
  REALNODES_DIR=$OUT "${GO:-go}" test -tags realnodes -count 1 -timeout 20m ${TEST_FLAGS:-} ./test/realnodes/...
}
run_tests
"$HERE/demo.sh"
"$HERE/vn-agent.sh" apiserver
run_tests
