# shellcheck shell=bash
# The output of a script: steps, commands as one would type them, checks with their results. Sourced after pool.sh, by
# scripts that set NAME to their make target and trap on_exit on EXIT.

STARTED=$SECONDS
STEP="before the first step"
DONE=false

bold="" green="" red="" plain=""
[[ -t 1 ]] && bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'

step() {
  STEP=$1
  printf '\n%s# %s%s\n' "$bold" "$STEP" "$plain"
}

ok() { printf '%s  ok: %s%s\n' "$green" "$1" "$plain"; }

fail() {
  printf '  wrong: %s\n' "$1" >&2
  exit 1
}

on_exit() {
  $DONE && return
  printf '\n%s%s: FAILED in step: %s%s\n' "$red" "$NAME" "$STEP" "$plain" >&2
  printf 'logs: %s/logs/*.log\n' "$OUT" >&2
  printf 'the pool is left as it is: kubeconfigs in %s, make %s-down removes it\n' "$OUT" "$NAME" >&2
  exit 1
}

# show COMMAND...: prints the command as one would type it, then runs it.
show() {
  local word line=
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word="'$word'"
    line+=" $word"
  done
  printf '$%s\n' "$line"
  "$@"
}

# act COMMAND...: shows and runs a command that changes something, then kills and restarts the programs of DEMO_CHAOS.
act() {
  local name
  show "$@"
  [[ -z ${DEMO_CHAOS_DELAY:-} ]] || sleep "$DEMO_CHAOS_DELAY"
  for name in ${DEMO_CHAOS:-}; do
    [[ -s $OUT/pids/$name ]] || continue
    echo "  chaos: kill -9 $name, start it again"
    kill_program "$name" KILL
    start_program "$name"
  done
}

# equal DESCRIPTION GOT WANTED: fails where the two differ.
equal() {
  [[ $2 == "$3" ]] || fail "$1 is \"$2\", wanted \"$3\""
  ok "$1 is ${2:-nothing}"
}

# eventually DESCRIPTION WANTED COMMAND...: runs COMMAND until it prints WANTED, up to PATIENCE seconds, default 120. It
# is for values that kubectl wait has no condition for.
eventually() {
  local description=$1 wanted=$2 got="" patience=${PATIENCE:-120}
  local deadline=$((SECONDS + patience))
  shift 2
  until got=$("$@") && [[ $got == "$wanted" ]]; do
    ((SECONDS < deadline)) || fail "$description is \"$got\" after $patience s, wanted \"$wanted\""
    sleep 0.2
  done
  ok "$description is $got"
}

