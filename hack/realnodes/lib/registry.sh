# shellcheck shell=bash
# The registry of the bed, which serves bin/images to the containerd of all nodes. Sourced by ../lib.sh.

# start_registry: starts it, with one name and password for its private half.
start_registry() {
  local deadline=$((SECONDS + 30))
  [[ -s $OUT/registry.credentials ]] || (umask 077 && echo bed:secret >"$OUT/registry.credentials")
  run_detached registry "$BIN/registry" -listen "$REGISTRY" -images "$IMAGES" -credentials "$OUT/registry.credentials"
  until { exec 3<>"/dev/tcp/${REGISTRY%:*}/${REGISTRY#*:}"; } 2>/dev/null; do
    ((SECONDS < deadline)) || refuse "the registry does not answer after 30 s, see $OUT/logs/registry.log" || return
    sleep 0.1
  done
  exec 3>&-
}
