#!/usr/bin/env bash
# Runs the tests on real API servers and the demo with control planes of other minor versions, those of one role after
# the other. Prints a table, which is also in _output/versions/table.md; the output of each run is beside it.
#
#   hack/test-versions.sh 1.35 1.36
#
#   ROLES  tenant, super, meta, or all, for all three at once; default each of the four
#   SKIP   which tests on real API servers are left out
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# > 0)) || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
read -ra roles <<<"${ROLES:-tenant super meta all}"
out=_output/versions
mkdir -p "$out"

# version FOLDER: that of its API server, without the v.
version() { "$1/kube-apiserver" --version | sed 's/Kubernetes v//'; }

# tests: runs them without the variables of the make that has called this script, which would be those of both.
tests() {
  MAKEFLAGS="" make --no-print-directory test-integration SKIP="${SKIP:-}" && MAKEFLAGS="" SKIP="" make --no-print-directory test-demo
}

# cell MINOR ROLE: runs the tests, and prints what the table says of them.
cell() {
  local planes="$2=$1" log=$out/$1-$2.log
  [[ $2 != all ]] || planes="meta=$1 super=$1 tenant=$1"
  echo "test-versions: Kubernetes $1, $2" >&2
  if CONTROL_PLANES=$planes tests >"$log" 2>&1; then echo passed; else echo "**failed**: $log"; fi
}

{
  printf '| Kubernetes |%s\n' "$(printf ' %s |' "${roles[@]}")"
  printf '|---|%s\n' "$(printf -- '---|%.0s' "${roles[@]}")"
  for minor in "$@"; do
    row="| $(version "bin/$minor") |"
    for role in "${roles[@]}"; do row+=" $(cell "$minor" "$role") |"; done
    echo "$row"
  done
  printf '\nThe other control planes have %s. At %s, %s.\n' "$(version bin)" "$(git rev-parse --short HEAD)" "$(date -u +%Y-%m-%d)"
} | tee "$out/table.md"
! grep -q failed "$out/table.md"
