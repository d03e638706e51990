#!/usr/bin/env bash
# Prints what the machine lacks for real nodes and how to install it, and exits with 3 where no bed can start. Where
# only the images of tests would lack programs, it prints which conformance tests can fail without them, and exits with
# 0. Prints nothing where nothing is missing.
#
#   hack/realnodes/check.sh             checks this machine
#   hack/realnodes/check.sh --bed       the same without the images, whose lines make realnodes-images has printed
#   hack/realnodes/check.sh --packages  prints the Debian packages that a bed and its images need, a line each
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../lib/packages.sh"

# check_images: prints the programs that the images of tests would lack.
check_images() {
  local program package need tests
  while read -r program package need tests; do
    echo "realnodes: without $program (apt-get install $package) the images of tests lack it, and these conformance tests can fail: $tests"
  done < <(missing_programs images)
}

# check_machine: fails with 3 and prints what is missing where no bed can start.
check_machine() {
  local missing=() packages=() program cgroups other
  other=$(other_bed)
  [[ -z $other ]] || missing+=("room: the bed of $other runs here, and a machine holds one. make realnodes-down takes it down where it was started")
  [[ $(uname -s) == Linux ]] || missing+=("Linux: nodes are made of its namespaces and cgroups")
  ((EUID == 0)) || missing+=("root: run it with sudo, or in a container that has every capability")
  while read -r program package _; do
    if [[ $program == cni-plugins ]]; then program="CNI plugins bridge, host-local, portmap and loopback in /usr/lib/cni or /opt/cni/bin"; fi
    missing+=("$program")
    packages+=("$package")
  done < <(missing_programs bed)
  [[ -e /proc/self/task/$BASHPID/children ]] || missing+=("/proc/*/task/*/children: a kernel with CONFIG_PROC_CHILDREN")
  if ((EUID == 0 && ${#missing[@]} == 0)); then
    unshare --mount --pid --net --fork --mount-proc true 2>/dev/null || missing+=("the right to make mount, pid and network namespaces")
    cgroups=$(check_cgroups)
    [[ -z $cgroups ]] || missing+=("$cgroups")
    grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || missing+=("the overlay file system")
    unshare --net iptables -t nat -S >/dev/null 2>&1 || missing+=("iptables with the nat table, inside a network namespace")
  fi
  ((${#missing[@]} > 0)) || return 0
  {
    echo "realnodes: this machine cannot run real nodes yet. Missing:"
    printf '  %s\n' "${missing[@]}"
    if ((${#packages[@]} > 0)); then
      mapfile -t -O "${#packages[@]}" packages < <(missing_programs images | cut -d ' ' -f 2)
      echo "On Debian and Ubuntu: apt-get install --no-install-recommends $(printf '%s\n' "${packages[@]}" | sort -u | xargs)"
    fi
  } >&2
  return 3
}

# check_cgroups: prints what is missing where groups cannot be made in every hierarchy or, with cgroup v2, cannot have
# the controllers that kubelets need.
check_cgroups() {
  local root before
  while read -r root; do
    mkdir -p "$root/superpool/check" 2>/dev/null || { echo "cgroups that can be written below $root"; return; }
    rmdir "$root/superpool/check"
    rmdir "$root/superpool" 2>/dev/null || true
    [[ $root == /sys/fs/cgroup ]] || continue # version 1, beside which version 2 may lie
    before=$(<"$root/cgroup.subtree_control")
    enable_controllers "$root" || echo "the controllers ${CONTROLLERS[*]} for groups in $root: in a container, its processes have to move to a group of their own first"
    restore_controllers "$root" "$before"
  done < <(cgroup_roots)
}

case ${1:-} in
  --packages) package_names ;;
  --bed) check_machine ;;
  *)
    check_images >&2
    check_machine
    ;;
esac
