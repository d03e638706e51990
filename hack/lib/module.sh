# shellcheck shell=bash
# Finds the files of Go modules. Sourced by scripts that need a file which no Go package imports.

# module_dir FOLDER MODULE: prints the folder of MODULE in the module cache, in the version that FOLDER/go.mod selects,
# and downloads it where it is missing: `go list -m` prints an empty folder then. An import in FOLDER (hack/pins.go)
# keeps MODULE in go.sum, so go verifies the download. GOFLAGS and GOWORK of the environment could select another
# version, so they are unset.
module_dir() {
  local answer dir
  # go writes its JSON to stdout, also when it fails.
  if ! answer=$(cd "$1" && GOFLAGS='' GOWORK=off "${GO:-go}" mod download -json "$2"); then
    echo "the module $2 cannot be downloaded: $(sed -nE 's/^\t"Error": "(.*)",?$/\1/p' <<<"$answer")" >&2
    return 1
  fi
  dir=$(sed -nE 's/^\t"Dir": "(.*)",?$/\1/p' <<<"$answer")
  [[ -d $dir ]] || { echo "the module $2: go mod download names no folder of its files, but \"$dir\"" >&2; return 1; }
  echo "$dir"
}
