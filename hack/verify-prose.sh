#!/usr/bin/env bash
# Fails with file, line and width where prose is wider than 120 columns (a tab is 4), and names each such line:
#
#   *.md                 all but tables, code and lines that nothing can break, such as a link alone
#   *.go                 // comments with a line of their own, but for directives
#   scripts, manifests   # comments with a line of their own
#
# Generated files are left out.
#
#   hack/verify-prose.sh             all files of the repository
#   hack/verify-prose.sh FILE...     these files only
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=("$@")
if (($# == 0)); then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard \
    '*.md' '*.go' '*.sh' '*.awk' '.ci/run' Makefile 'hack/*.yaml' 'manifests/*.yaml' 'test/*.yaml' |
    while IFS= read -r file; do [[ ! -f $file ]] || printf '%s\n' "$file"; done)
fi

# In the C locale every awk sees bytes. Characters are the bytes that do not continue one.
LC_ALL=C awk '
  function width(line) {
    gsub(/\t/, "    ", line)
    gsub(/[\200-\277]/, "", line)
    return length(line)
  }

  # A line that holds one word, besides what marks it as a comment, a quotation or an item of a list, cannot be wrapped.
  function breakable(line) {
    sub(/^[ \t]*(\/\/|#+|>|[-*]|[0-9]+\.)?[ \t]*/, "", line)
    sub(/[ \t]+$/, "", line)
    return line ~ /[ \t]/ && line !~ /^!?\[[^]]*\]\([^ ]*\)[.,:;]?$/
  }

  # Code in Markdown: between fences, or indented after an empty line outside of a list.
  function is_code(line,  was) {
    if (line ~ /^[ \t]*(```|~~~)/) { fenced = !fenced; return 1 }
    if (fenced) return 1
    was = blank
    blank = line ~ /^[ \t]*$/
    if (line ~ /^[-*] |^[0-9]+\. /) listed = 1
    else if (line ~ /^[^ \t]/ && was) listed = 0
    indented = line ~ /^(    |\t)/ && !listed && (was || indented)
    return indented
  }

  function is_prose(line) {
    if (language == "md") return !is_code(line) && line !~ /^[ \t]*\|/
    if (language == "go") return line ~ /^[ \t]*\/\// && line !~ /^[ \t]*\/\/([a-z]+:|nolint| \+[a-z])/
    return line ~ /^[ \t]*#/ && line !~ /^[ \t]*#!|^[ \t]*# shellcheck /
  }

  FNR == 1 {
    language = FILENAME ~ /\.md$/ ? "md" : FILENAME ~ /\.go$/ ? "go" : "script"
    fenced = indented = listed = generated = 0
    blank = 1
  }
  /^(\/\/|#) Code generated .* DO NOT EDIT\.$/ || /^<!-- Written by `make generate`/ { generated = 1 }
  generated { next }
  is_prose($0) && width($0) > 120 && breakable($0) {
    print FILENAME ":" FNR ": " width($0) " columns"
    found++
  }
  END {
    if (!found) exit 0
    print found " lines of prose are wider than 120 columns"
    exit 1
  }
' "${files[@]}"
