#!/usr/bin/env bash
# Runs the tests on real API servers and the demo with control planes of other minor versions, those of one role after
# the other. Prints a table, which is also in _output/versions/COMMIT/table.md; the output of each run is beside it. What
# has passed at this commit is not run again.
#
#   hack/test-versions.sh 1.35 1.36
#
#   ROLES  tenant, super, meta, or all, for all three at once; default each of the four
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# > 0)) || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
read -ra roles <<<"${ROLES:-tenant super meta all}"
commit=$(git rev-parse --short=12 HEAD)
out=_output/versions/$commit
mkdir -p "$out"

# version FOLDER: that of its API server, without the v.
version() { "$1/kube-apiserver" --version | sed 's/Kubernetes v//'; }

# cell MINOR ROLE: runs the tests, and prints what the table says of them.
cell() {
  local planes="$2=$1" log=$out/$1-$2.log
  [[ $2 != all ]] || planes="meta=$1 super=$1 tenant=$1"
  if ! tail -n 1 "$log" 2>/dev/null | grep -qx passed; then
    echo "test-versions: Kubernetes $1, $2" >&2
    ! CONTROL_PLANES=$planes make --no-print-directory test-integration test-demo >"$log" 2>&1 || echo passed >>"$log"
  fi
  if tail -n 1 "$log" | grep -qx passed; then echo passed; else echo "**failed**: $log"; fi
}

{
  printf '| Kubernetes |%s\n' "$(printf ' %s |' "${roles[@]}")"
  printf '|---|%s\n' "$(printf -- '---|%.0s' "${roles[@]}")"
  for minor in "$@"; do
    row="| $(version "bin/$minor") |"
    for role in "${roles[@]}"; do row+=" $(cell "$minor" "$role") |"; done
    echo "$row"
  done
  printf '\nThe other control planes have %s. At %s, %s.\n' "$(version bin)" "$commit" "$(date -u +%Y-%m-%d)"
} | tee "$out/table.md"
! grep -q failed "$out/table.md"
