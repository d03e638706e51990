#!/usr/bin/env bash
# Writes the manifests that make the cluster of a kubeconfig a super cluster of the pool. Applies nothing.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: hack/setup-supercluster.sh ID --kubeconfig FILE [flags]

Writes DIR/cluster_ID/ for the cluster that FILE reaches:

  cluster-id.yaml            for the super cluster: its id, ConfigMap kube-system/supercluster-info
  cluster-cr.yaml            for the meta cluster: the Cluster that registers the super cluster
  secret-for-scheduler.yaml  for the meta cluster: the kubeconfig beside the Cluster, for vc-scheduler
  secret-for-vc-syncer.yaml  for the meta cluster: the kubeconfig in namespace vc-manager, for the syncer
  vc-syncer.yaml             for the meta cluster: the Deployment of the syncer
  kubeconfig                 the credentials used, alone and with every file embedded

Flags:
  --kubeconfig FILE  kubeconfig of the super cluster; must reach it from where vc-scheduler and the syncer run
  --context NAME     context of FILE to use (default: its current context)
  --namespace NAME   namespace of the Cluster and its Secret in the meta cluster (default: default)
  --image IMAGE      image of the syncer (default: ghcr.io/superpool/syncer:latest)
  --out DIR          where cluster_ID is made (default: the current directory)
  -h, --help         print this

Example:
  hack/setup-supercluster.sh r1 --kubeconfig ~/r1.kubeconfig
  kubectl --kubeconfig cluster_r1/kubeconfig apply -f cluster_r1/cluster-id.yaml
  kubectl --context meta apply -f cluster_r1/cluster-cr.yaml -f cluster_r1/secret-for-scheduler.yaml \
    -f cluster_r1/secret-for-vc-syncer.yaml -f cluster_r1/vc-syncer.yaml
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
content=$("${view[@]}") || fail "kubeconfig $kubeconfig: kubectl cannot read a context of it (message above)"
server=$("${view[@]}" -o 'jsonpath={.clusters[0].cluster.server}')
[[ $server =~ ^https?://(\[[0-9a-fA-F:.]+\]|[^/:]+)(:([0-9]+))? ]] || fail "kubeconfig $kubeconfig: its cluster has no server URL, but \"$server\""
host=${BASH_REMATCH[1]}
host=${host#\[}
host=${host%\]}
port=${BASH_REMATCH[3]:-443}

dir=$out/cluster_$id
mkdir -p "$dir" || fail "cannot make $dir"
umask 077 # the files hold credentials
printf '%s\n' "$content" >"$dir/kubeconfig"
encoded=$(printf '%s\n' "$content" | base64 | tr -d '\n')

cat >"$dir/cluster-id.yaml" <<YAML
apiVersion: v1
kind: ConfigMap
metadata:
  name: supercluster-info
  namespace: kube-system
data:
  id: "$id"
YAML

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
  value: $encoded
YAML

cat >"$dir/secret-for-vc-syncer.yaml" <<YAML
apiVersion: v1
kind: Secret
metadata:
  name: "vc-syncer-$id"
  namespace: vc-manager
type: Opaque
data:
  config: $encoded
YAML

cat >"$dir/vc-syncer.yaml" <<YAML
apiVersion: apps/v1
kind: Deployment
metadata:
  name: "vc-syncer-$id"
  namespace: vc-manager
  labels: {app.kubernetes.io/name: vc-syncer, app.kubernetes.io/part-of: superpool, app.kubernetes.io/instance: "$id"}
spec:
  replicas: 2 # one is the leader
  selector:
    matchLabels: {app.kubernetes.io/name: vc-syncer, app.kubernetes.io/instance: "$id"}
  template:
    metadata:
      labels: {app.kubernetes.io/name: vc-syncer, app.kubernetes.io/part-of: superpool, app.kubernetes.io/instance: "$id"}
    spec:
      serviceAccountName: vc-syncer
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
        - --metrics-bind-address=:8080
        - --health-probe-bind-address=:8081
        - -v=2
        ports:
        - {name: metrics, containerPort: 8080}
        - {name: probes, containerPort: 8081}
        livenessProbe:
          httpGet: {path: /healthz, port: probes}
        readinessProbe:
          httpGet: {path: /readyz, port: probes}
        resources:
          requests: {cpu: 100m, memory: 256Mi}
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
