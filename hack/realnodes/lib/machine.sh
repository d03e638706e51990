# shellcheck shell=bash
# What the bed changes outside of what is its own, what is left of it, and its end. Needs no program of bin/. Sourced by
# ../lib.sh.

# What a kubelet sets at its start, for the whole machine, and what we do.
SYSCTLS=(fs/inotify/max_user_instances vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops
  kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

# bed_processes: the processes of the bed, whoever started them and whatever became of their pid files: those in the
# nodes' cgroups and network namespaces, those of bin/, and what a start that was killed still does in the background.
bed_processes() {
  local id root
  for id in "${SUPERS[@]}"; do
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

# bed_mounts: mounts of the bed that the host sees.
bed_mounts() { awk -v dir="$OUT/" 'index($5 "/", dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r; }

# leftovers: one line for everything that is still there.
leftovers() {
  local id path
  bed_processes | sort -un | sed 's/^/process /'
  bed_mounts | sed 's/^/mount /'
  bed_cgroups | sed 's/^/cgroup /'
  bed_rules | sed 's/^/iptables rule /'
  for id in "${SUPERS[@]}"; do
    for path in "/run/netns/$(netns "$id")" "$INTERFACES/$(netns "$id")"; do [[ ! -e $path ]] || echo "$path"; done
  done
  for path in "$INTERFACES/$BRIDGE" "$OUT"; do [[ ! -e $path ]] || echo "$path"; done
}

# save_machine: remembers what the bed changes outside of what is its own: the sysctls of kubelets, the folder that `ip
# netns` mounts, and with cgroup v2 the controllers of all groups.
save_machine() {
  local name
  [[ -e /run/netns ]] || touch "$OUT/no-netns-folder"
  for name in "${SYSCTLS[@]}"; do
    [[ ! -r /proc/sys/$name ]] || echo "$name $(cat "/proc/sys/$name")"
  done >"$OUT/sysctls"
  [[ ! -e /sys/fs/cgroup/cgroup.subtree_control ]] || cp /sys/fs/cgroup/cgroup.subtree_control "$OUT/controllers"
  # A kubelet takes one for each log that is followed, and all processes of root share the kernel's 128.
  (($(cat /proc/sys/fs/inotify/max_user_instances) >= 8192)) || echo 8192 >/proc/sys/fs/inotify/max_user_instances
}

# stop_bed ends and removes everything, also what a start that failed half-way left. It needs no program of bin/.
stop_bed() {
  local name value path other
  check_folder || return
  other=$(other_bed)
  if [[ -n $other ]]; then
    echo "the bed of $other runs on this machine: make realnodes-down takes it down where it was started" >&2
    return 1
  fi
  kill_all bed_processes || return
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
