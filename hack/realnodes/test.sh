#!/usr/bin/env bash
# Starts a bed, runs the tests of test/realnodes with vn-agent in each of its modes, with an imported and a provisioned
# tenant, and after the first mode the experiment of the demo, and removes the bed. After a failure it copies the logs
# of the bed's programs and containers to _output/realnodes-logs. TEST_FLAGS are passed to `go test`.
#
#   MODES         modes of vn-agent, default "node apiserver"
#   TEST_TENANTS  tenants that are tested, default "vc-sample-1 vc-sample-3"
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
# Runs the tests with each tenant, with these arguments.
run_tests() {
  local tenant
  for tenant in "${TESTED[@]}"; do
    # shellcheck disable=SC2086
    REALNODES_DIR=$OUT "${GO:-go}" test -tags realnodes -count 1 -timeout 60m ${TEST_FLAGS:-} ./test/realnodes/... -args -tenant "$tenant" "$@"
  done
}
read -ra MODES <<<"${MODES:-node apiserver}"
read -ra TESTED <<<"${TEST_TENANTS:-${IMPORTED[0]} $PROVISIONED}"
for mode in "${MODES[@]}"; do
  [[ $mode == "$(cat "$OUT/vn-agent-mode")" ]] || "$HERE/vn-agent.sh" "$mode"
  if [[ $mode == "${MODES[0]}" ]]; then
    run_tests
    "$HERE/demo.sh"
  else
    run_tests -again
  fi
done
