#!/usr/bin/env bash
# Runs the landing's tests with busy loops beside them, two for each core, and lists the rounds that failed at the end:
# what passes on this machine alone has chance in it.
#
#   SLOW_TIMES  how many rounds
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

loops=()
trap 'kill "${loops[@]}"' EXIT
for ((i = 0; i < 2 * $(nproc); i++)); do
  while :; do :; done &
  loops+=($!)
done
failed=()
for ((round = 1; round <= SLOW_TIMES; round++)); do
  printf '\nslow: round %d of %d, beside %d busy loops\n' "$round" "$SLOW_TIMES" "${#loops[@]}"
  # Its results are kept apart: they are no seed and no failure of the gate's.
  bin/gate -results _output/slow land unit model integration demo attacks || failed+=("$round")
done
((${#failed[@]} == 0)) || { printf 'slow: FAILED: round %s\n' "${failed[@]}" >&2; exit 1; }
