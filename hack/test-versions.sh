#!/usr/bin/env bash
# Runs the tests on real API servers and the demo with control planes of other minor versions: those of tenants, of
# super clusters, of the meta cluster, and all of them. Prints a table, which is also in _output/versions/COMMIT/table.md;
# the output of each run is beside it. What has passed at this commit is not run again.
#
#   hack/test-versions.sh 1.35 1.36
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# > 0)) || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
commit=$(git rev-parse --short=12 HEAD)
out=_output/versions/$commit
ours=$(bin/kube-apiserver --version | sed -E 's/Kubernetes v([0-9]+\.[0-9]+).*/\1/')
mkdir -p "$out"

# cell MINOR ROLES...: what the table says of control planes of these roles that have that minor.
cell() {
  local minor=$1 role versions="" log
  shift
  for role in "$@"; do versions+="$role=$minor "; done
  log=$out/$minor-$(tr ' ' - <<<"$*").log
  if ! tail -n 1 "$log" 2>/dev/null | grep -qx passed; then
    printf 'test-versions: Kubernetes %s: %s\n' "$minor" "$*" >&2
    if CONTROL_PLANES=$versions make --no-print-directory test-integration test-demo >"$log" 2>&1; then echo passed >>"$log"; fi
  fi
  if tail -n 1 "$log" | grep -qx passed; then echo passed; else echo "**failed**: $log"; fi
}

{
  echo "| Kubernetes | tenant | super cluster | meta cluster | all three |"
  echo "|---|---|---|---|---|"
  for minor in "$@"; do
    row="| $("bin/$minor/kube-apiserver" --version | sed 's/Kubernetes v//')"
    for roles in tenant super meta "meta super tenant"; do
      # shellcheck disable=SC2086 # several words
      cell "$minor" $roles >"$out/cell"
      row+=" | $(<"$out/cell")"
    done
    echo "$row |"
  done
  printf '\nThe others have %s. At %s, %s.\n' "$ours" "$commit" "$(date -u +%Y-%m-%d)"
} | tee "$out/table.md"
! grep -q failed "$out/table.md"
