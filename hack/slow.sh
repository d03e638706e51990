#!/usr/bin/env bash
# Runs the landing's tests with busy loops beside them, two for each core, and lists the rounds that failed at the end:
# what passes on this machine alone has chance in it. The logs of round N are in _output/slow/N.
#
#   SLOW_TIMES  how many rounds
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

loops=() gate=""
trap 'kill "${loops[@]}"' EXIT
# The gate ends what it has started.
trap '[[ -z $gate ]] || { kill -TERM "$gate"; wait "$gate"; }; exit 130' INT TERM
for ((i = 0; i < 2 * $(nproc); i++)); do
  while :; do :; done &
  loops+=($!)
done
failed=()
for ((round = 1; round <= SLOW_TIMES; round++)); do
  printf '\nslow: round %d of %d, beside %d busy loops\n' "$round" "$SLOW_TIMES" "${#loops[@]}"
  bin/gate -output "_output/slow/$round" -results _output/slow land unit model integration demo attacks &
  gate=$!
  wait "$gate" || failed+=("$round")
done
((${#failed[@]} == 0)) || { printf 'slow: FAILED: round %s\n' "${failed[@]}" >&2; exit 1; }
