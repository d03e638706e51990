# shellcheck shell=bash
# The programs that real nodes need on the machine, by their Debian packages. Sourced by hack/realnodes/check.sh and
# images.sh.

# packages: a row for each program: its name, its package, what needs it, and which conformance tests can fail without
# it, as a regular expression over their names. `bed`: without it no bed starts. `images`: images.sh packs it into the
# images of tests, as Kubernetes' own test images hold it; a bed starts without it.
packages() {
  cat <<'ROWS'
ip iproute2 bed
iptables iptables bed
conntrack conntrack bed
nft nftables bed
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

# has_program PROGRAM: succeeds where this machine has it.
has_program() {
  local busybox=${BUSYBOX:-/bin/busybox}
  case $1 in
    # Images have no libraries, so it has to be static.
    busybox) [[ -x $busybox ]] && ! ldd "$busybox" >/dev/null 2>&1 ;;
    cni-plugins) [[ -n $(cni_bin) ]] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# missing_programs NEED: the rows of packages for NEED (bed or images) whose program this machine lacks.
missing_programs() {
  local program package need tests
  while read -r program package need tests; do
    [[ $need == "$1" ]] || continue
    has_program "$program" || echo "$program $package $need $tests"
  done < <(packages)
}
