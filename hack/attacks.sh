#!/usr/bin/env bash
# Starts a pool with two tenants, one of which attacks it (test/attacks), and takes it down. After a failure it copies
# the logs to _output/attacks-logs. TEST_FLAGS are passed to `go test`.
#
#   ATTACKERS    names of the tenants that attack, default "attacker"; test/attacks knows the first one, and all with
#                TEST_TAGS=siege
#   TEST_TAGS    build tags of the tests, default attacks
#   ATTACKS_DIR  folder of all state, default _output/attacks; it is removed as a whole
#   KEEP         1 leaves the pool running; the next run removes it, and so does DEMO_DIR=_output/attacks
#                hack/demo-down.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
DEMO_DIR=${ATTACKS_DIR:-$HERE/../_output/attacks}
mkdir -p "$(dirname "$DEMO_DIR")"
DEMO_DIR=$(cd "$(dirname "$DEMO_DIR")" && pwd -P)/$(basename "$DEMO_DIR")
for part in pool steps setup; do
  source "$HERE/lib/$part.sh"
done
NAME=attacks
DATA=$ROOT/test/attacks/testdata
read -ra ATTACKERS <<<"${ATTACKERS:-attacker}"
TENANTS=("${ATTACKERS[@]}" neighbour)
CLUSTERS=(meta "${SUPERS[@]}" "${TENANTS[@]}")

set_up_pool() {
  step "Start the control planes: meta, r1, r2 and ${#TENANTS[@]} tenants'"
  stop_pool
  mkdir -p "$OUT"/{pids,logs}
  choose_ports
  start_clusters
  cd "$OUT"
  set_up_meta
  act kubectl --kubeconfig meta.kubeconfig apply -f "$DATA/policy.yaml"
  local id name
  for id in "${SUPERS[@]}"; do
    step "Join super cluster $id"
    act kubectl --kubeconfig "$id.kubeconfig" apply -f "$DATA/supercluster.yaml"
    join_super "$id"
  done
  step "Import the tenants"
  for name in "${TENANTS[@]}"; do
    sed "s/NAME/$name/; s/POLICY/$([[ $name == neighbour ]] && echo default || echo attacked)/" "$DATA/tenant.yaml" >"$name.yaml"
    import_tenant "$name" "$name.yaml"
  done
  set_up_programs
  wait_pool
}

rm -rf "$OUT-logs"
trap take_down EXIT
trap 'exit 130' INT TERM
set_up_pool
echo "attacks: the pool runs after $((SECONDS - STARTED)) s"
step "Attack it"
cd "$ROOT"
# shellcheck disable=SC2086
ATTACKS_DIR=$OUT ATTACKERS="${ATTACKERS[*]}" "${GO:-go}" test -tags "${TEST_TAGS:-attacks}" -count 1 -timeout 15m ${TEST_FLAGS:-} ./test/attacks/
echo "attacks: every attack failed, and every twin works; $((SECONDS - STARTED)) s in all"
