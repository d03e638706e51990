# shellcheck shell=bash
# Finds the files of Go modules. Sourced by scripts that need a file which no Go package imports.

# module_dir FOLDER MODULE: prints where the files of MODULE lie in the module cache, in the version that FOLDER/go.mod
# selects, and downloads them first where they are not there yet: `go list -m` prints an empty folder for a module that
# nothing has downloaded. In go.sum they are known by what imports them (hack/pins.go), so the download is verified. The
# environment's GOFLAGS and GOWORK could select others.
module_dir() {
  local answer dir
  # go writes its answer, also that of a failure, to stdout.
  if ! answer=$(cd "$1" && GOFLAGS='' GOWORK=off "${GO:-go}" mod download -json "$2"); then
    echo "the module $2 cannot be downloaded: $(sed -nE 's/^\t"Error": "(.*)",?$/\1/p' <<<"$answer")" >&2
    return 1
  fi
  dir=$(sed -nE 's/^\t"Dir": "(.*)",?$/\1/p' <<<"$answer")
  [[ -d $dir ]] || { echo "the module $2: go mod download names no folder of its files, but \"$dir\"" >&2; return 1; }
  echo "$dir"
}
