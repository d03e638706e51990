# shellcheck shell=bash
# The bed's changes to the machine's settings, its removal, and what is left of it. Needs no program of bin/. Sourced by
# ../lib.sh.

# The sysctls of the whole machine that a kubelet sets when it starts, and max_user_instances, which save_machine
# raises.
SYSCTLS=(fs/inotify/max_user_instances vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops
  kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

# bed_processes: prints the pids of the bed's processes, without reading pid files: those in the nodes' cgroups and
# network namespaces, those of bin/, and background jobs of a start that was killed, by descriptor 9 (set_up_machine).
bed_processes() {
  local id root
  for id in "${NODES[@]}"; do
    ip netns pids "$(netns "$id")" 2>/dev/null || true
    while read -r root; do
      [[ ! -d $root$(cgroup "$id") ]] ||
        find "$root$(cgroup "$id")" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done < <(cgroup_roots)
  done
  processes
  { find /proc/[0-9]*/fd/9 -maxdepth 0 -lname "$OUT/start*" -printf '%h\n' 2>/dev/null || true; } |
    sed -E 's|^/proc/([0-9]+)/fd$|\1|'
}

# bed_mounts: prints the mount points of the bed in the host's mount namespace, inner ones first.
bed_mounts() { awk -v dir="$OUT/" 'index($5 "/", dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r; }

# leftovers: prints a line for each process, mount, cgroup, rule, namespace, link and folder of the bed.
leftovers() {
  local id path
  bed_processes | sort -un | sed 's/^/process /'
  bed_mounts | sed 's/^/mount /'
  bed_cgroups | sed 's/^/cgroup /'
  bed_rules | sed 's/^/iptables rule /'
  for id in "${NODES[@]}"; do
    for path in "/run/netns/$(netns "$id")" "$INTERFACES/$(netns "$id")"; do [[ ! -e $path ]] || echo "$path"; done
  done
  for path in "$INTERFACES/$BRIDGE" "$OUT"; do [[ ! -e $path ]] || echo "$path"; done
}

# save_machine: writes to $OUT what stop_bed restores: the values of SYSCTLS, whether /run/netns existed, and with
# cgroup v2 the controllers of the root. Then it raises the limit of inotify instances.
save_machine() {
  local name
  [[ -e /run/netns ]] || touch "$OUT/no-netns-folder"
  for name in "${SYSCTLS[@]}"; do
    [[ ! -r /proc/sys/$name ]] || echo "$name $(cat "/proc/sys/$name")"
  done >"$OUT/sysctls"
  [[ ! -e /sys/fs/cgroup/cgroup.subtree_control ]] || cp /sys/fs/cgroup/cgroup.subtree_control "$OUT/controllers"
  # A kubelet opens one for each followed log, and all processes of root share the kernel's limit, by default 128.
  (($(cat /proc/sys/fs/inotify/max_user_instances) >= 8192)) || echo 8192 >/proc/sys/fs/inotify/max_user_instances
}

# stop_bed: kills and removes everything of the bed, also of a start that failed halfway, and restores the machine's
# settings.
stop_bed() {
  local name value path other
  check_folder || return 1
  other=$(other_bed)
  if [[ -n $other ]]; then
    echo "the bed of $other runs on this machine: make realnodes-down takes it down where it was started" >&2
    return 1
  fi
  kill_all bed_processes || return 1
  stop_network
  remove_cgroups
  bed_mounts | while read -r path; do umount -n "$path" || umount -n --lazy "$path"; done
  if [[ -s $OUT/sysctls ]]; then
    while read -r name value; do echo "$value" >"/proc/sys/$name"; done <"$OUT/sysctls"
  fi
  [[ ! -e $OUT/controllers ]] || restore_controllers /sys/fs/cgroup "$(<"$OUT/controllers")"
  if [[ -e $OUT/no-netns-folder && -z $(ls -A /run/netns 2>/dev/null) ]]; then
    umount -n /run/netns 2>/dev/null || true
    rmdir /run/netns 2>/dev/null || true
  fi
  remove_folder
}
