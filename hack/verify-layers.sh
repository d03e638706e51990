#!/usr/bin/env bash
# Checks the rows of hack/layers.txt against the imports of every package of the module, tests included. Takes seconds:
# it lists imports and compiles nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=$(go list -m)
# One line per import: "package kind import", kind is "code" or "test".
imports=$(go list -e -tags e2e,realnodes -f '
{{- $p := .ImportPath}}{{println $p "self" $p}}
{{- range .Imports}}{{println $p "code" .}}{{end}}
{{- range .TestImports}}{{println $p "test" .}}{{end}}
{{- range .XTestImports}}{{println $p "test" .}}{{end}}' ./...)

awk -v module="$module/" '
  # matches reports whether pattern covers package.
  function matches(pattern, package,    base) {
    if (pattern !~ /\/\.\.\.$/) return pattern == package
    base = substr(pattern, 1, length(pattern) - 4)
    return package == base || index(package, base "/") == 1
  }
  # pattern_of returns the longest pattern that covers package, or "".
  function pattern_of(package,    p, best) {
    if (package in cached) return cached[package]
    best = ""
    for (p in row) if (matches(p, package) && length(p) > length(best)) best = p
    cached[package] = best
    return best
  }
  function fail(message) { print message; failures++ }

  FNR == NR {
    if ($0 ~ /^#/ || NF == 0) next
    if ($1 == "deny") { denies++; left[denies] = $2; right[denies] = $3; next }
    rows++
    for (i = 1; i <= NF; i++) row[$i] = rows
    next
  }
  index($3, module) != 1 { next }
  {
    from = substr($1, length(module) + 1); to = substr($3, length(module) + 1)
    a = pattern_of(from); b = pattern_of(to)
    if ($2 == "self") { if (a == "") fail(from ": no row of hack/layers.txt covers it"); next }
    if (a == "" || b == "" || from == to) next
    if (to ~ /^test\/builders/) {
      if ($2 != "test" && from !~ /^test\//) fail(from " imports " to ": only tests may")
      next
    }
    for (i = 1; i <= denies; i++)
      if ((matches(left[i], from) && matches(right[i], to)) || (matches(left[i], to) && matches(right[i], from)))
        fail(from " imports " to " (" $2 "): denied, these two meet in API objects only")
    if (a != b && row[b] >= row[a])
      fail(from " imports " to " (" $2 "): row " row[a] " may not import row " row[b])
  }
  END { exit failures > 0 }
' hack/layers.txt <(echo "$imports") | sort -u
