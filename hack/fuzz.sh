#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME, one after the other, and lists those that failed at the end: go keeps the input
# in testdata/fuzz of the package, and the next `go test` runs it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=() found=0
while IFS=: read -r file name; do
  package=./$(dirname "$file")
  found=$((found + 1))
  printf '\nfuzz: %s %s\n' "$package" "$name"
  "${GO:-go}" test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-1m}" || failed+=("$package $name")
done < <(git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/')
((found > 0)) || { echo "fuzz: there are no fuzz targets" >&2; exit 1; }
((${#failed[@]} == 0)) || { printf 'fuzz: FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
