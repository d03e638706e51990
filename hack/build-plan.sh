#!/usr/bin/env bash
# Prints which programs a make target will build into bin/, and about how long that takes; nothing where bin/ has all of
# them. Reads the output of `make -n`: the rules of the Makefile decide what is missing or older than its pin.
#
#   make -n bin/etcd build | hack/build-plan.sh TARGET
set -euo pipefail
BIN=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)/bin

# Seconds on two cores with an empty build cache, measured in this order on 2026-11-22: packages that two programs share
# count for the first.
declare -A seconds=(
  [etcd]=45 [kube-apiserver]=164 [kube-controller-manager]=53 [kube-scheduler]=5 [kubectl]=21 [kwok]=73
  [controller-gen]=17 [kustomize]=11 [golangci-lint]=55 [logcheck]=3 [syncer]=70 [vc-scheduler]=40 [vn-agent]=20
  [kubelet]=25 [kube-proxy]=8 [pause]=1 [agnhost]=6 [nonewprivs]=1 [regression-issue-74839]=1 [sample-apiserver]=10 [coredns]=100 [metrics-server]=80 [local-path-provisioner]=70 [image]=5
  [controlplane]=5 [nftpolicy]=5 [e2e.test]=150
)

# planned: the programs that `make -n` builds. Every rule of a program calls gobuild.sh with a label that begins with
# its name. The rules of `build` and of the bed's programs always run, so their programs count only where bin/ lacks
# them.
planned() {
  local label program
  while read -r label; do
    for program in $label; do
      case $program in
        syncer | vc-scheduler | vn-agent | controlplane | nftpolicy) [[ -x $BIN/$program ]] || echo "$program" ;;
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
count="${#programs[@]} programs"
((${#programs[@]} > 1)) || count="1 program"
echo "make $1 builds $count into bin/, once: ${programs[*]}"
echo "On two cores this takes $duration and the downloads; less where Go's build cache holds parts of them."
