# shellcheck shell=bash
# What real nodes take from the machine, by Debian's names of packages. Sourced by hack/realnodes/check.sh and
# images.sh.

# packages: a row for each program: its name, its package, what needs it, and which conformance tests fail or may fail
# without it, as a regular expression over their names. Needed by `bed` is what no bed starts without. What is needed by
# `images` is packed into the images of tests, which Kubernetes' own test images hold too: the bed runs without it.
packages() {
  cat <<'ROWS'
ip iproute2 bed
iptables iptables bed
conntrack conntrack bed
containerd containerd bed
ctr containerd bed
runc runc bed
cni-plugins containernetworking-plugins bed
nsenter util-linux bed
unshare util-linux bed
mount mount bed
busybox busybox-static images \[sig-(apps|cli|network|node|storage)\]
bash bash images (ConfigMap|Secrets) should be consumable via the environment
curl curl images Networking Granular Checks|HostPort validates|session affinity|lifecycle hook should execute (poststart|prestop) exec
dig bind9-dnsutils images \[sig-network\] DNS should (provide DNS|resolve DNS|support configurable)
getent libc-bin images \[sig-network\] DNS should provide (/etc/hosts|DNS for pods)
nc.openbsd netcat-openbsd images node-pod communication: udp|Services should (be able to (change the type|create a functioning)|serve)|HostPort validates
wget wget images \[sig-node\] PreStop should call prestop
ROWS
}

# package_names: all of them, a line each.
package_names() { packages | cut -d ' ' -f 2 | sort -u; }

# has_program PROGRAM: whether this machine has it, for a bed or its images.
has_program() {
  local busybox=${BUSYBOX:-/bin/busybox}
  case $1 in
    # It has to run where there are no libraries.
    busybox) [[ -x $busybox ]] && ! ldd "$busybox" >/dev/null 2>&1 ;;
    cni-plugins) [[ -n $(cni_bin) ]] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# missing_programs NEED: the rows of packages that NEED names and this machine lacks.
missing_programs() {
  local program package need tests
  while read -r program package need tests; do
    [[ $need == "$1" ]] || continue
    has_program "$program" || echo "$program $package $need $tests"
  done < <(packages)
}
