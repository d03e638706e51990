#!/usr/bin/env bash
# Says what the machine lacks for real nodes and how to get it, and exits with 3; says nothing where it lacks nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check_machine() {
  local missing=() packages=() program cgroups other
  other=$(other_bed)
  [[ -z $other ]] || missing+=("room: the bed of $other runs here, and a machine holds one. make realnodes-down takes it down where it was started")
  [[ $(uname -s) == Linux ]] || missing+=("Linux: nodes are made of its namespaces and cgroups")
  ((EUID == 0)) || missing+=("root: run it with sudo, or in a container that has every capability")
  while read -r program package; do
    command -v "$program" >/dev/null && continue
    missing+=("$program")
    packages+=("$package")
  done <<'PROGRAMS'
ip iproute2
iptables iptables
conntrack conntrack
containerd containerd
ctr containerd
runc runc
openssl openssl
nsenter util-linux
unshare util-linux
mount mount
PROGRAMS
  if [[ -z $(cni_bin) ]]; then
    missing+=("CNI plugins bridge, host-local, portmap and loopback in /usr/lib/cni or /opt/cni/bin")
    packages+=(containernetworking-plugins)
  fi
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
      echo "On Debian and Ubuntu: apt-get install --no-install-recommends $(printf '%s\n' "${packages[@]}" | sort -u | xargs) busybox-static"
    fi
  } >&2
  return 3
}

# check_cgroups: says what is wrong when groups cannot be made in every hierarchy, or with cgroup v2 not with what kubelets ask for.
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

check_machine
