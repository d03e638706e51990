#!/usr/bin/env bash
# Removes everything that hack/demo.sh started and wrote.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/pool.sh"

if [[ ! -d $OUT ]]; then
  echo "demo-down: nothing to remove"
  exit 0
fi
stop_pool
echo "demo-down: removed the control planes, our programs and $OUT"
