#!/usr/bin/env bash
# Fetches the file axe.min.js of axe-core, which tests of the page run, from npm's registry: fetch-axe.sh VERSION SHA256 FILE.
# NPM_REGISTRY is another registry.
set -euo pipefail
version=$1 sum=$2 file=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
curl -fsSL --retry 3 -o "$folder/axe.tgz" "${NPM_REGISTRY:-https://registry.npmjs.org}/axe-core/-/axe-core-$version.tgz"
tar -xzf "$folder/axe.tgz" -C "$folder" package/axe.min.js
echo "$sum  $folder/package/axe.min.js" | sha256sum --check --quiet
mv "$folder/package/axe.min.js" "$file"
touch "$file"
