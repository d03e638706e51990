#!/usr/bin/env bash
# Runs the read-only checks, all of them, and lists every failure at the end. `make verify` runs the generators first.
#
#   hack/verify.sh            every check
#   hack/verify.sh lint tidy  these checks only
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# To add a check: write a function check_NAME, name it in `checks` where it runs. Cheap ones first.
checks=(license shell commits modules layers tidy format vet lint logging kustomize clean)

check_license() { # LICENSE holds the whole text of Apache-2.0, at the root of every Go module of ours.
  grep -q "Apache License" LICENSE && grep -q "Version 2.0, January 2004" LICENSE && grep -q "END OF TERMS AND CONDITIONS" LICENSE
}

check_shell() {
  local script failed=0
  while IFS= read -r script; do
    bash -n "$script" || failed=1
    [[ -x $script || $script == */lib/* || $script == */lib.sh ]] || { echo "$script is not executable"; failed=1; }
  done < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
  return "$failed"
}

# check_commits: a commit is one change that a person reads: no fixup, and at most 1,500 added lines but for what is
# generated, is recorded output, or is moved ("Move" begins its subject). FIRST is the last commit before this rule.
check_commits() {
  local first=34a856da6963 commits commit subject added failed=0
  git cat-file -e "$first" || { echo "the history is cut off: nothing is checked"; return 0; }
  commits=$(git rev-list --no-merges "$first..HEAD") || return 1
  for commit in $commits; do
    subject=$(git log -1 --format=%s "$commit")
    [[ $subject != fixup!* && $subject != squash!* ]] || { echo "$commit: $subject: squash it"; failed=1; }
    [[ $subject != "Move "* ]] || continue
    added=$(git show --format= --numstat -M -C "$commit" -- . ':!*zz_generated*' ':!manifests/crds' ':!docs/reference' ':!*.sum' ':!**/testdata' |
      awk '{ sum += $1 } END { print sum + 0 }') || return 1
    ((added <= 1500)) || { echo "$commit: $subject: $added added lines: several changes, or a move whose subject does not say so"; failed=1; }
  done
  return "$failed"
}

# check_modules: scripts and tests find the files of modules by module_dir and modcache.Dir, which download them;
# `go list -m` prints an empty folder for a module that is not in the module cache.
check_modules() {
  ! git grep -nE 'list.+-m\b.*\{\{ ?\.Dir' -- ':!hack/verify.sh' ':!*.md'
}

check_layers() { hack/verify-layers.sh; }

check_tidy() {
  local module failed=0
  for module in . hack/realnodes hack/release hack/tools hack/tools/conformance hack/tools/logcheck test/browser test/monitoring; do
    (cd "$module" && go mod tidy -diff) || { echo "$module: run go mod tidy"; failed=1; }
  done
  return "$failed"
}

check_format() {
  local diff
  diff=$(bin/golangci-lint fmt --diff) && [[ -z $diff ]] && return
  echo "$diff"
  echo "run make fmt"
  return 1
}

check_vet() { go vet ./... && go vet -tags e2e,realnodes,attacks,siege,drills,upgrade ./test/... && go -C hack/realnodes vet ./... && go -C hack/release vet -tags charts ./... && go -C test/monitoring vet ./... && go -C test/browser vet -tags browser ./...; }

check_lint() { bin/golangci-lint run --timeout 20m && (cd hack/release && ../../bin/golangci-lint run --timeout 20m); }

check_logging() { # Structured and contextual: the logger comes from the context, keys are constant.
  bin/logcheck -check-contextual -check-with-helpers ./apis/... ./internal/... ./plugins/... ./cmd/...
}

check_kustomize() {
  local dir failed=0
  for dir in manifests/base manifests/demo manifests/single manifests/syncer manifests/samples manifests/vc-manager manifests/vn-agent/node manifests/vn-agent/apiserver manifests/samples/shards manifests/samples/overlay/meta manifests/samples/overlay/policies manifests/samples/monitoring manifests/monitoring/vn-agent; do
    bin/kustomize build "$dir" >/dev/null || failed=1
  done
  return "$failed"
}

check_clean() { # The generators' output is committed.
  git diff --exit-code || return 1
  local status
  status=$(git status --porcelain)
  [[ -z $status ]] && return
  echo "$status"
  echo "commit or remove these files"
  return 1
}

[[ $# -gt 0 ]] && checks=("$@")
failures=()
for check in "${checks[@]}"; do
  started=$SECONDS
  echo "verify: $check"
  if output=$("check_$check" 2>&1); then
    echo "verify: $check ok, $((SECONDS - started)) s"
  else
    failures+=("$check")
    printf '%s\n' "$output" "verify: $check FAILED, $((SECONDS - started)) s"
  fi
done
if ((${#failures[@]} > 0)); then
  echo "verify: ${#failures[@]} of ${#checks[@]} checks failed: ${failures[*]}"
  exit 1
fi
echo "verify: all ${#checks[@]} checks passed"
