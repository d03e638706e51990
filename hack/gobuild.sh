#!/usr/bin/env bash
# Runs a Go command that prints one package per line (go build -v, go install -v) and shows its progress: in place on a
# terminal, else one line every ten seconds. Other lines, such as the compiler's errors, are printed unchanged.
#
#   hack/gobuild.sh LABEL COMMAND...
set -euo pipefail

label=$1
shift
interval=10
started=$SECONDS
packages=0
shown=$SECONDS
terminal=false
[[ -t 1 ]] && terminal=true

progress() {
  local line
  line="$label: $packages packages compiled, $((SECONDS - started)) s"
  if $terminal; then
    printf '\r\033[K%s' "$line"
  elif ((SECONDS - shown >= interval)); then
    shown=$SECONDS
    printf '%s\n' "$line"
  fi
}

status_file=$(mktemp)
trap 'rm -f "$status_file"' EXIT
echo "$label: building"
while true; do
  if IFS= read -r -t 1 line; then
    # A package path has no blank and no colon; everything else is a message.
    if [[ $line =~ ^[A-Za-z0-9._~/@-]+$ ]]; then
      packages=$((packages + 1))
    elif [[ $line != "go: downloading "* ]]; then
      $terminal && printf '\r\033[K'
      printf '%s\n' "$line"
    fi
  elif (($? <= 128)); then
    break # end of the output; more than 128 is the timeout of read
  fi
  progress
done < <(
  code=0
  "$@" 2>&1 || code=$?
  echo "$code" >"$status_file"
)
code=$(cat "$status_file")
$terminal && printf '\r\033[K'
if ((code != 0)); then
  echo "$label: failed after $((SECONDS - started)) s: $*" >&2
  exit "$code"
fi
echo "$label: done, $packages packages compiled, $((SECONDS - started)) s"
