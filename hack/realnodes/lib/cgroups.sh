# shellcheck shell=bash
# cgroups: those of nodes, in whatever hierarchies the machine has. Sourced by ../lib.sh.

# What kubelets ask for with cgroup v2, as far as the kernel has it (k8s.io/kubernetes/pkg/kubelet/cm,
# getSupportedUnifiedControllers).
CONTROLLERS=(cpu cpuset memory hugetlb pids)

cgroup() { echo "/superpool/$1"; }

# cgroup_roots: the hierarchies of this machine: one with cgroup v2, else one per controller.
cgroup_roots() {
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    echo /sys/fs/cgroup
  else
    find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d
  fi
}

# enable_controllers FOLDER: gives the groups in it, of cgroup v2, the controllers that kubelets ask for.
enable_controllers() {
  local name
  for name in $(<"$1/cgroup.controllers"); do
    [[ " ${CONTROLLERS[*]} " != *" $name "* ]] || echo "+$name" 2>/dev/null >"$1/cgroup.subtree_control" || return 1
  done
}

# restore_controllers FOLDER BEFORE: takes from the groups in it what they did not have before; runc gives them more
# than kubelets ask for. What another's groups use by now stays.
restore_controllers() {
  local name
  for name in $(<"$1/cgroup.subtree_control"); do
    [[ " $2 " == *" $name "* ]] || echo "-$name" 2>/dev/null >"$1/cgroup.subtree_control" || true
  done
}

# system_cgroup ID: where the programs of a node run beside its pods, as in system.slice of a machine with systemd: all
# of them together have one weight there, and each pod one that follows from its requests. Only weights of CPU are
# given, so only that hierarchy holds it.
system_cgroup() {
  local root
  while read -r root; do
    [[ ! -e $root/cpu.shares && $root != /sys/fs/cgroup ]] || echo "$root$(cgroup "$1")/system"
  done < <(cgroup_roots)
}

bed_cgroups() {
  local root
  while read -r root; do
    [[ ! -d $root/superpool ]] || find "$root/superpool" -depth -type d
  done < <(cgroup_roots)
}

# remove_cgroups: a cgroup can be busy for a moment after its last process.
remove_cgroups() {
  local path deadline=$((SECONDS + 30))
  while [[ -n $(bed_cgroups) ]]; do
    bed_cgroups | while read -r path; do rmdir "$path" 2>/dev/null || true; done
    ((SECONDS < deadline)) || break
    [[ -z $(bed_cgroups) ]] || sleep 0.1
  done
}
