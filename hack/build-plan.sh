#!/usr/bin/env bash
# Prints which programs a make target is about to build into bin/, and about how long that takes; nothing where all are
# there. Reads what `make -n` prints of it: the rules of the Makefile decide what is missing or older than its pin.
#
#   make -n bin/etcd build | hack/build-plan.sh TARGET
set -euo pipefail
BIN=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)/bin

# Seconds on two cores with an empty build cache, in this order: a program that is built before another compiles for it
# what both use. 2026-11-22.
declare -A seconds=(
  [etcd]=45 [kube-apiserver]=164 [kube-controller-manager]=53 [kube-scheduler]=5 [kubectl]=21 [kwok]=73 [kwokctl]=12
  [controller-gen]=17 [kustomize]=11 [golangci-lint]=55 [logcheck]=3 [syncer]=70 [vc-scheduler]=40 [vn-agent]=20
  [kubelet]=25 [kube-proxy]=8 [pause]=1 [agnhost]=6 [nonewprivs]=1 [coredns]=100 [metrics-server]=80 [image]=5 [controlplane]=5 [e2e.test]=150
)

# planned: the programs that `make -n` names. Every rule of a program builds it by gobuild.sh and begins the label with
# its name; the targets `build` and bin/controlplane always run, and do little where their programs are there.
planned() {
  local label program
  while read -r label; do
    for program in $label; do
      case $program in
        syncer | vc-scheduler | vn-agent | controlplane) [[ -x $BIN/$program ]] || echo "$program" ;;
        conformance) echo e2e.test ;;
        *) [[ -z ${seconds[$program]:-} ]] || echo "$program" ;;
      esac
    done
  done < <(sed -nE 's/.*gobuild\.sh "([^"]*)".*/\1/p')
}

mapfile -t programs < <(planned)
((${#programs[@]} > 0)) || exit 0
total=0
for program in "${programs[@]}"; do total=$((total + seconds[$program])); done
if ((total < 60)); then duration="less than a minute"; else duration="about $(((total + 59) / 60)) min"; fi
what="${#programs[@]} programs"
((${#programs[@]} > 1)) || what="1 program"
echo "make $1 builds $what into bin/, once: ${programs[*]}"
echo "On two cores this takes $duration and the downloads; less where Go's build cache holds parts of them."
