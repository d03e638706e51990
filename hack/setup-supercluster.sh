#!/usr/bin/env bash
# Makes the cluster of a kubeconfig a super cluster of the pool: applies our roles there, and writes the manifests for
# the meta cluster.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: hack/setup-supercluster.sh ID --kubeconfig FILE [flags]

Makes the cluster that FILE reaches a super cluster of the pool. In it, it applies

  manifests/supercluster  namespace superpool-system, and in it a service account with a role and a token for
                          vc-scheduler and one for the syncer
  its id                  ConfigMap kube-system/supercluster-info; an id that is there already must be the same

and for the meta cluster it writes DIR/cluster_ID/, with these two accounts' credentials; yours are stored nowhere:

  cluster-cr.yaml            the Cluster that registers the super cluster
  secret-for-scheduler.yaml  vc-scheduler's kubeconfig, beside the Cluster
  secret-for-vc-syncer.yaml  the syncer's kubeconfig, in namespace vc-manager
  vc-syncer-rbac.yaml        the syncer's service account in the meta cluster
  vc-syncer.yaml             the Deployment of the syncer
  scheduler.kubeconfig       the kubeconfigs alone
  syncer.kubeconfig

Flags:
  --kubeconfig FILE  kubeconfig of an administrator of the super cluster, whose server address reaches it from where
                     vc-scheduler and the syncer run
  --context NAME     context of FILE to use (default: its current context)
  --namespace NAME   namespace of the Cluster and its Secret in the meta cluster (default: default)
  --image IMAGE      image of the syncer (default: ghcr.io/superpool/syncer:latest)
  --out DIR          where cluster_ID is made (default: the current directory)
  -h, --help         print this

Example:
  hack/setup-supercluster.sh r1 --kubeconfig ~/r1.kubeconfig
  kubectl --context meta apply -f cluster_r1/cluster-cr.yaml -f cluster_r1/secret-for-scheduler.yaml \
    -f cluster_r1/secret-for-vc-syncer.yaml -f cluster_r1/vc-syncer-rbac.yaml -f cluster_r1/vc-syncer.yaml
USAGE
}

fail() {
  echo "setup-supercluster: $*" >&2
  exit 1
}

is_label() { [[ ${#1} -le 63 && $1 =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ ]]; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
id="" kubeconfig="" context="" namespace=default image=ghcr.io/superpool/syncer:latest out=.
while (($# > 0)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --kubeconfig | --context | --namespace | --image | --out)
      (($# > 1)) || fail "$1 needs a value (see --help)"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    -*) fail "unknown flag $1 (see --help)" ;;
    *)
      [[ -z $id ]] || fail "expected one ID, got $id and $1 (see --help)"
      id=$1
      shift
      ;;
  esac
done

[[ -n $id ]] || { usage >&2; exit 1; }
is_label "$id" || fail "ID $id is not a DNS label: at most 63 of a-z, 0-9 and -, with a letter or digit at both ends"
is_label "$namespace" || fail "namespace $namespace is not a DNS label"
[[ $image =~ ^[A-Za-z0-9][A-Za-z0-9./:@_-]*$ ]] || fail "image $image is not an image reference"
# "vc-syncer-" goes before the id in the name of a Deployment.
((${#id} <= 52)) || fail "ID $id has ${#id} characters, 52 are the most: the syncer's pods are named after it"
[[ -n $kubeconfig ]] || fail "--kubeconfig is missing (see --help)"
[[ -r $kubeconfig ]] || fail "kubeconfig $kubeconfig cannot be read"

kubectl=$root/bin/kubectl
[[ -x $kubectl ]] || kubectl=$(command -v kubectl) || fail "kubectl is neither in $root/bin (make bin/kubectl) nor in PATH"

# --minify keeps one context, --flatten puts the contents of files in place of their names, so the result works
# anywhere.
view=("$kubectl" config view --kubeconfig "$kubeconfig" --raw --minify --flatten)
[[ -z $context ]] || view+=(--context "$context")
cluster=$("${view[@]}" -o 'jsonpath={.clusters[0].cluster}') || fail "kubeconfig $kubeconfig: kubectl cannot read a context of it (message above)"
server=$("${view[@]}" -o 'jsonpath={.clusters[0].cluster.server}')
[[ $server =~ ^https?://(\[[0-9a-fA-F:.]+\]|[^/:]+)(:([0-9]+))? ]] || fail "kubeconfig $kubeconfig: its cluster has no server URL, but \"$server\""
host=${BASH_REMATCH[1]}
host=${host#\[}
host=${host%\]}
port=${BASH_REMATCH[3]:-443}

super=("$kubectl" --kubeconfig "$kubeconfig")
[[ -z $context ]] || super+=(--context "$context")
known=$("${super[@]}" get configmap supercluster-info -n kube-system --ignore-not-found -o 'jsonpath={.data.id}') ||
  fail "the cluster of $kubeconfig does not answer (message above)"
[[ -z $known || $known == "$id" ]] ||
  fail "the cluster of $kubeconfig is super cluster $known: use that ID, or delete its ConfigMap kube-system/supercluster-info first"
apply=("${super[@]}" apply --server-side --force-conflicts --field-manager=setup-supercluster)
"${apply[@]}" -k "$root/manifests/supercluster" || fail "the roles could not be applied (message above)"
"${apply[@]}" -f - <<YAML || fail "the id could not be applied (message above)"
apiVersion: v1
kind: ConfigMap
metadata:
  name: supercluster-info
  namespace: kube-system
data:
  id: "$id"
YAML

# token ACCOUNT: prints the token that the super cluster made for a service account.
token() {
  local deadline=$((SECONDS + 60)) encoded=""
  until [[ -n $encoded ]]; do
    ((SECONDS < deadline)) || fail "the super cluster made no token in Secret superpool-system/$1-token within 60 s: does its kube-controller-manager run?"
    encoded=$("${super[@]}" get secret "$1-token" -n superpool-system -o 'jsonpath={.data.token}')
    [[ -n $encoded ]] || sleep 0.2
  done
  base64 -d <<<"$encoded"
}

# write_kubeconfig ACCOUNT FILE: writes a kubeconfig of the super cluster with that service account's token alone.
write_kubeconfig() {
  local secret
  secret=$(token "$1") || exit
  cat >"$2" <<YAML
apiVersion: v1
kind: Config
clusters:
- {name: "$id", cluster: $cluster}
users:
- {name: "$1", user: {token: "$secret"}}
contexts:
- {name: "$id", context: {cluster: "$id", user: "$1"}}
current-context: "$id"
YAML
}

dir=$out/cluster_$id
umask 077 # the files hold credentials
mkdir -p "$dir" || fail "cannot make $dir"
rm -f "$dir"/{scheduler,syncer}.kubeconfig "$dir"/secret-for-{scheduler,vc-syncer}.yaml # others may read existing ones
write_kubeconfig vc-scheduler "$dir/scheduler.kubeconfig"
write_kubeconfig syncer "$dir/syncer.kubeconfig"

cat >"$dir/cluster-cr.yaml" <<YAML
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: "$id"
  namespace: "$namespace"
spec:
  controlPlaneEndpoint:
    host: "$host"
    port: $port
YAML

cat >"$dir/secret-for-scheduler.yaml" <<YAML
apiVersion: v1
kind: Secret
metadata:
  name: "$id-kubeconfig"
  namespace: "$namespace"
  labels:
    cluster.x-k8s.io/cluster-name: "$id"
type: cluster.x-k8s.io/secret
data:
  value: $(base64 <"$dir/scheduler.kubeconfig" | tr -d '\n')
YAML

cat >"$dir/secret-for-vc-syncer.yaml" <<YAML
apiVersion: v1
kind: Secret
metadata:
  name: "vc-syncer-$id"
  namespace: vc-manager
type: Opaque
data:
  config: $(base64 <"$dir/syncer.kubeconfig" | tr -d '\n')
YAML

cat >"$dir/vc-syncer-rbac.yaml" <<YAML
apiVersion: v1
kind: ServiceAccount
metadata:
  name: "vc-syncer-$id"
  namespace: vc-manager
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: "superpool:vc-syncer:$id"
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "superpool:vc-syncer"}
subjects:
- {kind: ServiceAccount, name: "vc-syncer-$id", namespace: vc-manager}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: "superpool:vc-syncer:$id"
  namespace: vc-manager
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: "superpool:vc-syncer"}
subjects:
- {kind: ServiceAccount, name: "vc-syncer-$id", namespace: vc-manager}
YAML

cat >"$dir/vc-syncer.yaml" <<YAML
apiVersion: apps/v1
kind: Deployment
metadata:
  name: "vc-syncer-$id"
  namespace: vc-manager
  labels: {app.kubernetes.io/name: vc-syncer, app.kubernetes.io/part-of: superpool, app.kubernetes.io/instance: "$id"}
spec:
  replicas: 2 # one leads, the other waits; manifests/shards splits the tenants
  selector:
    matchLabels: {app.kubernetes.io/name: vc-syncer, app.kubernetes.io/instance: "$id"}
  template:
    metadata:
      labels: {app.kubernetes.io/name: vc-syncer, app.kubernetes.io/part-of: superpool, app.kubernetes.io/instance: "$id"}
    spec:
      serviceAccountName: "vc-syncer-$id"
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: vc-syncer
        image: "$image"
        args:
        - --super-cluster-kubeconfig=/etc/superpool/super-cluster/config
        - --feature-gates=SuperClusterPooling=true
        - --leader-elect=true
        - --leader-elect-namespace=vc-manager
        - --metrics-bind-address=:8443
        - --health-probe-bind-address=:8081
        - -v=2
        ports:
        - {name: metrics, containerPort: 8443}
        - {name: probes, containerPort: 8081}
        livenessProbe:
          httpGet: {path: /healthz, port: probes}
        readinessProbe:
          httpGet: {path: /readyz, port: probes}
        # A tenant may make the process keep limits.cachedBytes of its TenantPolicy (512Mi): the limit leaves room
        # for six that do, and ends the process before it takes the node's memory. GOMEMLIMIT, 90 % of the limit,
        # makes Go collect garbage harder first. Raise both with the number of tenants.
        env:
        - {name: GOMEMLIMIT, value: 3686MiB}
        - {name: GOGC, value: "200"} # below that limit: half the collections for twice the garbage
        resources:
          requests: {cpu: 100m, memory: 256Mi}
          limits: {memory: 4Gi}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        volumeMounts:
        - {name: super-cluster, mountPath: /etc/superpool/super-cluster, readOnly: true}
      volumes:
      - name: super-cluster
        secret: {secretName: "vc-syncer-$id", defaultMode: 0440}
YAML

echo "wrote $dir: $(cd "$dir" && echo *)"
