# shellcheck shell=bash
# The cgroups of nodes, in version 1 or 2. Sourced by ../lib.sh.

# The controllers that kubelets use with cgroup v2 where the kernel has them (k8s.io/kubernetes/pkg/kubelet/cm,
# getSupportedUnifiedControllers).
CONTROLLERS=(cpu cpuset memory hugetlb pids)

cgroup() { echo "/superpool/$1"; }

# cgroup_roots: prints the root of each hierarchy of this machine: one with cgroup v2, else one per controller.
cgroup_roots() {
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    echo /sys/fs/cgroup
  else
    find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d
  fi
}

# enable_controllers FOLDER: enables CONTROLLERS for the groups in a folder of cgroup v2.
enable_controllers() {
  local name
  for name in $(<"$1/cgroup.controllers"); do
    [[ " ${CONTROLLERS[*]} " != *" $name "* ]] || echo "+$name" 2>/dev/null >"$1/cgroup.subtree_control" || return 1
  done
}

# restore_controllers FOLDER BEFORE: disables the controllers that are not in BEFORE for the groups in it; runc enables
# more than CONTROLLERS. The kernel refuses where other groups use one: it stays.
restore_controllers() {
  local name
  for name in $(<"$1/cgroup.subtree_control"); do
    [[ " $2 " == *" $name "* ]] || echo "-$name" 2>/dev/null >"$1/cgroup.subtree_control" || true
  done
}

# system_cgroup ID: the cgroup of a node's programs, beside those of its pods, as system.slice is on a machine with
# systemd: all programs together have one CPU weight, and each pod one that follows from its requests. Only the
# hierarchy of CPU has it: nothing else is weighted.
system_cgroup() {
  local root
  while read -r root; do
    [[ ! -e $root/cpu.shares && $root != /sys/fs/cgroup ]] || echo "$root$(cgroup "$1")/system"
  done < <(cgroup_roots)
}

# bed_cgroups: prints all cgroups of the bed, children first.
bed_cgroups() {
  local root
  while read -r root; do
    [[ ! -d $root/superpool ]] || find "$root/superpool" -depth -type d
  done < <(cgroup_roots)
}

# remove_cgroups: removes them, for up to 30 s: a cgroup can be busy for a moment after its last process has ended.
remove_cgroups() {
  local path deadline=$((SECONDS + 30))
  while [[ -n $(bed_cgroups) ]]; do
    bed_cgroups | while read -r path; do rmdir "$path" 2>/dev/null || true; done
    ((SECONDS < deadline)) || break
    [[ -z $(bed_cgroups) ]] || sleep 0.1
  done
}
