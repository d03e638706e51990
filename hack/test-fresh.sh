#!/usr/bin/env bash
# The README's first command as somebody with a fresh machine runs it: a clone of HEAD, an empty module cache, no bin/,
# an empty home, and a PATH with Go, make, git and the base system alone: no curl, openssl, jq, python or C compiler.
# Runs `make demo` and `make demo-down`, and fails where a process or a file is left. The clone holds committed files
# only.
#
#   hack/test-fresh.sh         with this user's build cache: with -trimpath it serves any clone and any module cache, so
#                              this costs downloads
#   hack/test-fresh.sh --cold  with an empty build cache too: everything is compiled
#
# Exits with 3 where it cannot run: without dpkg-query, which lists the programs of Debian's base system, or without a
# module proxy.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
KEPT=$ROOT/_output/fresh-logs
GO=$(command -v "${GO:-go}")

cold=false
case $*,$# in
  ,0) ;;
  --cold,1) cold=true ;;
  *) sed -n '2,/^set/{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

fail() {
  echo "test-fresh: $*" >&2
  exit 1
}

# base_programs: the programs of Debian's essential packages, those that every Debian has, and of awk, which is
# essential in several versions.
base_programs() {
  local packages
  mapfile -t packages < <(dpkg-query -W -f '${Essential} ${Package}\n' | sed -n 's/^yes //p')
  dpkg-query -L "${packages[@]}" | grep -E '^(/usr)?/s?bin/[^/]+$'
  command -v awk
}

# make_path FOLDER: creates it with links to every program of a fresh machine.
make_path() {
  local program
  mkdir "$1"
  while read -r program; do
    [[ ! -x $program ]] || ln -sf "$program" "$1/"
  done < <(base_programs)
  for program in make git; do ln -s "$(command -v "$program")" "$1/$program"; done
  ln -s "$GO" "$1/go"
  for program in curl openssl jq python3 gcc cc; do
    [[ ! -e $1/$program ]] || fail "$program is in the PATH of a fresh machine"
  done
}

# fresh COMMAND...: runs it in the clone with the fresh machine's environment, and this one's settings of proxies.
fresh() {
  local name environment=()
  for name in GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GOTOOLCHAIN; do environment+=("$name=$("$GO" env "$name")"); done
  for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy SSL_CERT_FILE SSL_CERT_DIR; do
    [[ -z ${!name:-} ]] || environment+=("$name=${!name}")
  done
  (cd "$clone" && env -i "${environment[@]}" HOME="$machine/home" TMPDIR="$machine/tmp" PATH="$machine/path" LANG=C.UTF-8 \
    GOMODCACHE="$machine/modules" GOCACHE="$cache" "$@")
}

# programs: the executables below the clone that processes run.
programs() { find /proc -mindepth 2 -maxdepth 2 -path '/proc/[0-9]*/exe' -lname "$clone/*" -printf '%l\n' 2>/dev/null || true; }

finish() {
  local code=$?
  trap - EXIT
  if ((code != 0 && code != 3)); then
    if compgen -G "$clone/_output/demo/logs/*" >/dev/null; then
      mkdir -p "$KEPT"
      cp "$clone"/_output/demo/logs/* "$KEPT/" 2>/dev/null || true
      echo "test-fresh: the logs are in $KEPT" >&2
    fi
    [[ ! -d $clone ]] || "$clone/hack/demo-down.sh" || true
    echo "test-fresh: FAILED after $SECONDS s" >&2
  fi
  # go makes the folders of a module cache read-only, so only root can remove their files without chmod.
  rm -rf "$machine" 2>/dev/null || { chmod -R u+w "$machine" && rm -rf "$machine"; }
  exit "$code"
}

command -v dpkg-query >/dev/null || { echo "test-fresh: dpkg-query is missing: it lists the programs of Debian's base system" >&2; exit 3; }
machine=$(mktemp -d "${TMPDIR:-/tmp}/superpool-fresh.XXXXXX")
machine=$(cd "$machine" && pwd -P)
clone=$machine/superpool
cache=$("$GO" env GOCACHE)
! $cold || cache=$machine/build-cache
rm -rf "$KEPT"
trap finish EXIT
trap 'exit 130' INT TERM
mkdir "$machine"/{home,tmp,modules}
make_path "$machine/path"
# git refuses a checkout that belongs to another user.
HOME=$machine/home git config --global safe.directory '*'
HOME=$machine/home git clone --quiet "$ROOT" "$clone"
echo "test-fresh: a clone of $(git -C "$clone" rev-parse --short HEAD) in $clone, $(find "$machine/path" -type l | wc -l) programs in PATH, build cache $cache"

# Where this machine reaches no module proxy, a fresh one reaches none either.
answer=$(fresh go mod download -json golang.org/x/sync) || { echo "test-fresh: no module proxy: $answer" >&2; exit 3; }

fresh make demo
echo "test-fresh: make demo ended after $SECONDS s"
fresh make demo-down
left=$(programs)
[[ -z $left ]] || fail "these programs still run: $left"
[[ ! -e $clone/_output/demo ]] || fail "_output/demo is left"
changed=$(git -C "$clone" status --porcelain)
[[ -z $changed ]] || fail "these files are new in the clone: $changed"
echo "test-fresh: make demo works on a fresh machine and make demo-down leaves nothing, $SECONDS s in all," \
  "$(du -sh "$machine/modules" | cut -f 1) of modules downloaded"
