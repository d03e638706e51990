#!/usr/bin/env bash
# Ends programs of the bed that runs and starts them again, with what bin/ holds now:
#
#   hack/realnodes/restart.sh syncer-r1 vc-scheduler
#
# vn-agents are pods: hack/realnodes/vn-agent.sh. Names are those of the logs in _output/realnodes/logs. SIGNAL=KILL ends them as a crash would.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# > 0)) || { echo "usage: hack/realnodes/restart.sh PROGRAM..., one of: $(cd "$OUT/pids" && echo *)" >&2; exit 1; }
for name in "$@"; do
  [[ $name != node-* && -e $OUT/pids/$name ]] || { echo "$name is none of: $(cd "$OUT/pids" && echo *)" >&2; exit 1; }
done
for name in "$@"; do
  kill_program "$name" "${SIGNAL:-TERM}"
  start_again "$name"
  echo "$name runs again, process $(cat "$OUT/pids/$name")"
done
