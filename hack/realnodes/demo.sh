#!/usr/bin/env bash
# Runs the experiment of hack/demo.sh on the running bed: the same steps and checks, on real nodes instead of fake ones.
#
#   DEMO_CHAOS, DEMO_CHAOS_DELAY  as for hack/demo.sh
set -euo pipefail
for part in realnodes/lib lib/steps lib/setup lib/experiment; do
  source "$(dirname "${BASH_SOURCE[0]}")/../$part.sh"
done
NAME=realnodes
ALONE=false
DEPLOYMENT=$OUT/test-1.yaml

[[ -s $OUT/pids/syncer-r1 ]] || { echo "realnodes-demo: the bed does not run: make realnodes starts it" >&2; exit 1; }
trap on_exit EXIT
cd "$OUT"
# sleep as process 1 ignores SIGTERM, so pods would end only after their grace period.
sed -e "s|image: .*|image: $(image_name agnhost)|" -e 's|sleep 1000000|exec /agnhost pause|' \
  "$ROOT/manifests/samples/tenant/deployment.yaml" >"$DEPLOYMENT"
experiment
DONE=true
printf '\n%srealnodes-demo: every check passed, %d s in all%s\n' "$bold" "$((SECONDS - STARTED))" "$plain"
