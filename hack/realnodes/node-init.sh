#!/usr/bin/env bash
# Process 1 of a node, in the node's namespaces: mounts the node's /var and /run, then executes pause, which keeps the
# namespaces until it is killed. The node's programs use the usual paths (/var/lib/kubelet, /run/containerd,
# /var/log/pods) without changing the host's.
set -euo pipefail
dir=$1 pause=$2

case $dir/ in
  /var/* | /run/*) echo "the bed cannot lie below /var or /run: nodes have their own" >&2; exit 1 ;;
esac
# -n: does not write the table of mounts in the host's /run.
mount -n -t tmpfs -o mode=755 tmpfs /run
# Volumes with mount propagation need a shared root. It is shared within the node's mount namespace only.
mount --make-rshared /
mkdir -p "$dir"/var/{lib,log,tmp,cache}
ln -sfn /run "$dir/var/run"
mount --bind "$dir/var" /var
mkdir -p /run/lock
echo 1 >/proc/sys/net/ipv4/ip_forward
exec "$pause"
