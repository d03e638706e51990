package provision

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/controlplane"
)

// The objects that rows of TestInput change.
const (
	version     = "ClusterVersion"
	outside     = "ClusterVersion, with an external etcd"
	provisioned = "VirtualCluster"
	imported    = "VirtualCluster, imported"
)

var bases = map[string]string{
	version: `{apiVersion: tenancy.x-k8s.io/v1alpha1, kind: ClusterVersion, metadata: {name: x}, spec: {
		kubernetesVersion: v1.37.2, etcd: {image: etcd}, apiServer: {image: kube-apiserver}, controllerManager: {image: kube-controller-manager}}}`,
	outside: `{apiVersion: tenancy.x-k8s.io/v1alpha1, kind: ClusterVersion, metadata: {name: x}, spec: {
		kubernetesVersion: v1.37.2, externalEtcd: {endpoints: ["https://a:2379"], secretName: x}, apiServer: {image: kube-apiserver}, controllerManager: {image: kube-controller-manager}}}`,
	provisioned: `{apiVersion: tenancy.x-k8s.io/v1alpha1, kind: VirtualCluster, metadata: {namespace: default, name: x}, spec: {clusterVersionName: v1.37}}`,
	imported:    `{apiVersion: tenancy.x-k8s.io/v1alpha1, kind: VirtualCluster, metadata: {namespace: default, name: x}, spec: {kubeconfigSecretRef: {name: x}}}`,
}

// row is a field, what is written into the spec of a base, and the words by which the API server refuses it, "" where
// it takes it. PART in all of them is etcd, apiServer and controllerManager, one after the other.
type row struct{ base, field, spec, want string }

// rows are what TestInput tries.
var rows = []row{
	{version, "kubernetesVersion", `kubernetesVersion: 1.37.2`, "write a version with all its numbers, for example v1.37.2"},
	{version, "kubernetesVersion", `kubernetesVersion: v1.37`, "write a version with all its numbers, for example v1.37.2"},
	{version, "kubernetesVersion", `kubernetesVersion: v1.37.02`, "write a version with all its numbers, for example v1.37.2"},
	{version, "kubernetesVersion", `kubernetesVersion: v` + strings.Repeat("1", 32), "Too long: may not be more than 32"},
	{version, "kubernetesVersion", `kubernetesVersion: null`, "give kubernetesVersion, the version of Kubernetes of the images"},
	{version, "kubernetesVersion", `apiServer: {image: "registry.k8s.io/kube-apiserver:v1.36.1"}`, "an image of apiServer or controllerManager says another version in its tag than kubernetesVersion: change both together"},
	{version, "kubernetesVersion", `controllerManager: {image: "localhost:5000/kube-controller-manager:v1.38.0@sha256:` + strings.Repeat("0", 64) + `"}`, "change both together"},
	{version, "kubernetesVersion", `apiServer: {image: "registry.k8s.io/kube-apiserver:v1.37.9-eks"}`, ""},

	{version, "PART.image", `PART: {image: "registry.k8s.io/kube apiserver:1"}`, "spec.PART.image: Invalid value: \"registry.k8s.io/kube apiserver:1\": name an image, for example registry.k8s.io/kube-apiserver:v1.37.2"},
	{version, "PART.image", `PART: {image: " etcd"}`, "name an image, for example"},
	{version, "PART.image", `PART: {image: "etcd:"}`, "name an image, for example"},
	{version, "PART.image", `PART: {image: "https://registry.k8s.io/etcd:1"}`, "name an image, for example"},
	{version, "PART.image", `PART: {image: ""}`, "spec.PART.image in body should be at least 1 chars long"},
	{version, "PART.image", `PART: {image: null}`, "give an image, or the statefulset of the first VirtualCluster"},
	{version, "PART.image", `PART: {image: "[2001:db8::7]:5000/a/b__c-d.e:X_1@sha256:` + strings.Repeat("0", 64) + `"}`, ""},
	{version, "PART.replicas", `PART: {replicas: 0}`, "spec.PART.replicas in body should be greater than or equal to 1"},
	{version, "PART.replicas", `PART: {replicas: 10}`, "spec.PART.replicas in body should be less than or equal to 9"},
	{version, "etcd.replicas", `etcd: {replicas: 2}`, "etcd has 1 replica or 3"},
	{version, "etcd.replicas", `etcd: {replicas: 9}`, "etcd has 1 replica or 3"},
	{version, "PART.extraArgs", `PART: {extraArgs: {--v: "2"}}`, "spec.PART.extraArgs: Invalid value: name flags without dashes before them, and give their values apart from them, for example v: '2'"},
	{version, "PART.extraArgs", `PART: {extraArgs: {"v=2": ""}}`, "name flags without dashes before them"},
	{version, "PART.extraArgs", `PART: {extraArgs: {"v ": "2"}}`, "name flags without dashes before them"},
	{version, "PART.extraArgs", `PART: {extraArgs: {secure_port: "2"}}`, "name flags without dashes before them"},
	{version, "PART.extraArgs", `PART: {extraArgs: {"": "2"}}`, "name flags without dashes before them"},
	{version, "etcd.extraArgs", `etcd: {extraArgs: {data-dir: /tmp}}`, "extraArgs has a flag that vc-manager sets: of folders, members, addresses, certificates or keys; leave it out"},
	{version, "etcd.extraArgs", `etcd: {extraArgs: {quota-backend-bytes: "16777216", auto-compaction-retention: 1s, snapshot-count: "20000"}}`, ""},
	{
		version, "apiServer.extraArgs", `apiServer: {extraArgs: {secure-port: "1"}}`,
		"extraArgs has a flag that vc-manager sets: of addresses, etcd, certificates, keys or ranges of Services, or anonymous-auth, as probes ask without a name; leave it out",
	},
	{version, "apiServer.extraArgs", `apiServer: {extraArgs: {etcd-servers: "https://127.0.0.1:2379"}}`, "extraArgs has a flag that vc-manager sets"},
	{version, "apiServer.extraArgs", `apiServer: {extraArgs: {service-cluster-ip-range: 10.0.0.0/16}}`, "extraArgs has a flag that vc-manager sets"},
	{version, "apiServer.extraArgs", `apiServer: {extraArgs: {goaway-chance: "0", enable-admission-plugins: NodeRestriction, audit-log-path: "-"}}`, ""},
	{
		version, "controllerManager.extraArgs", `controllerManager: {extraArgs: {leader-elect: "false"}}`,
		"extraArgs has a flag that vc-manager sets: of addresses, kubeconfigs, certificates, keys, ranges of Services or leader-elect; leave it out",
	},
	{version, "PART.resources.limits", `PART: {resources: {limits: {memory: 512}}}`, "memory is in bytes, for example 512Mi, and no program runs in less than 32Mi"},
	{version, "PART.resources.limits", `PART: {resources: {limits: {memory: 128m}}}`, "memory is in bytes"},
	{version, "PART.resources.limits", `PART: {resources: {limits: {memory: -1Gi}}}`, "memory is in bytes"},
	{version, "PART.resources.limits", `PART: {resources: {limits: {cpu: 0}}}`, "a limit is more than 0: leave it out for none"},
	{version, "PART.resources.requests", `PART: {resources: {limits: {cpu: 1}, requests: {cpu: 1001m}}}`, "a request is 0 at least, and its limit at most"},
	{version, "PART.resources.requests", `PART: {resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}}`, "a request is 0 at least, and its limit at most"},
	{version, "PART.resources.requests", `PART: {resources: {requests: {memory: -1}}}`, "a request is 0 at least, and its limit at most"},
	{version, "PART.resources.requests", `PART: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 250m, memory: 1073741824}}}`, ""},
	{version, "PART.resources.claims", `PART: {resources: {claims: [{name: gpu}]}}`, "a program of a control plane has no devices: leave claims out"},
	{version, "PART.files.name", `PART: {files: [{name: ../x, content: x}]}`, "spec.PART.files[0].name in body should match"},
	{version, "PART.files.name", `PART: {files: [{name: x, content: x}, {name: x, content: y}]}`, "spec.PART.files[1]: Duplicate value"},
	{version, "PART.files.content", `PART: {files: [{name: x}]}`, "give the content, or the name of a Secret that has it"},
	{version, "PART.files.content", `PART: {files: [{name: x, content: x, secretName: x}]}`, "give the content, or the name of a Secret that has it"},
	{version, "PART.files.content", `PART: {files: [{name: x, content: ` + strings.Repeat("x", 16385) + `}]}`, "Too long: may not be more than 16384"},
	{version, "PART.files.secretName", `PART: {files: [{name: x, secretName: a..b}]}`, "name a Secret in the namespace of vc-manager"},
	{version, "PART.files.secretName", `PART: {files: [{name: x, secretName: A/b}]}`, "name a Secret in the namespace of vc-manager"},
	{version, "PART.statefulset", `PART: {statefulset: {}}`, "give an image, or the statefulset of the first VirtualCluster"},
	{version, "PART.statefulset", `PART: {image: null, statefulset: {}, extraArgs: {v: "2"}}`, "extraArgs and resources are those of the statefulset's container"},
	{version, "PART.statefulset", `PART: {image: null, statefulset: {}, files: [{name: x, content: x}]}`, "give files with an image: those of a statefulset are left out"},
	{version, "PART.statefulset", `PART: {image: null, statefulset: x}`, "spec.PART.statefulset in body must be of type object"},
	{version, "PART.service", `PART: {service: {spec: {type: NodePort}}}`, "with an image leave them out, and set spec.exposure of VirtualClusters"},
	{version, "PART.service", `PART: {image: null, statefulset: {}, service: x}`, "spec.PART.service in body must be of type object"},
	{version, "PART.metadata", `PART: {metadata: {name: etcd}}`, "service, apiVersion, kind and metadata are beside a statefulset"},
	{version, "PART.metadata", `PART: {image: null, statefulset: {}, metadata: x}`, "spec.PART.metadata in body must be of type object"},
	{version, "PART.apiVersion", `PART: {apiVersion: apps/v1}`, "service, apiVersion, kind and metadata are beside a statefulset"},
	{version, "PART.apiVersion", `PART: {image: null, statefulset: {}, apiVersion: ` + strings.Repeat("x", 254) + `}`, "Too long"},
	{version, "PART.kind", `PART: {kind: StatefulSet}`, "service, apiVersion, kind and metadata are beside a statefulset"},
	{version, "PART.kind", `PART: {image: null, statefulset: {}, kind: ` + strings.Repeat("x", 254) + `}`, "Too long"},

	{version, "backup.schedule", `backup: {schedule: "61 * * * *"}`, "give five fields as those of a CronJob, for example 30 2 * * *, or @daily or @every 6h"},
	{version, "backup.schedule", `backup: {schedule: "* 24 * * *"}`, "give five fields as those of a CronJob"},
	{version, "backup.schedule", `backup: {schedule: "0 2 * *"}`, "give five fields as those of a CronJob"},
	{version, "backup.schedule", `backup: {schedule: "*/0 2 * * *"}`, "give five fields as those of a CronJob"},
	{version, "backup.schedule", `backup: {schedule: "@reboot"}`, "give five fields as those of a CronJob"},
	{version, "backup.schedule", `backup: {schedule: "@every day"}`, "give five fields as those of a CronJob"},
	{version, "backup.schedule", `backup: {schedule: "@every 1s"}`, "a backup is made every 15m at most"},
	{version, "backup.schedule", `backup: {schedule: "CRON_TZ=Asia/Tokyo 0 2 * * *"}`, "a schedule is in UTC"},
	{version, "backup.schedule", `backup: {schedule: "` + strings.Repeat("1", 65) + `"}`, "Too long: may not be more than 64"},
	{version, "backup.schedule", `backup: {schedule: "0,30  2-4/2 1,15 JAN-jun,12 MON-FRI "}`, ""},
	{version, "backup.schedule", `backup: {schedule: "@every 1h30m"}`, ""},
	{version, "backup.keep", `backup: {keep: 1}`, "spec.backup.keep in body should be greater than or equal to 2"},
	{version, "backup.keep", `backup: {keep: 100}`, "spec.backup.keep in body should be less than or equal to 99"},
	{version, "backup.storage", `backup: {storage: -1Gi}`, "give bytes, 100Mi at least, for example 20Gi: it has keep snapshots, and one that is being made"},
	{version, "backup.storage", `backup: {storage: 20}`, "give bytes, 100Mi at least"},
	{version, "backup.storage", `backup: {storage: 20 GB}`, "spec.backup.storage in body should match"},
	{version, "backup.storage", `backup: {storage: "0"}`, ""}, // as Go writes one that is not given
	{version, "backup.storageClassName", `backup: {storageClassName: Fast SSD}`, "name a StorageClass: kubectl get storageclasses"},
	{version, "backup.storageClassName", `backup: {storageClassName: ""}`, "spec.backup.storageClassName in body should be at least 1 chars long"},

	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: []}`, "spec.externalEtcd.endpoints in body should have at least 1 items"},
	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: ["http://a:2379"]}`, "give URLs as https://etcd-0.example.org:2379"},
	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: ["https://a"]}`, "give URLs as https://etcd-0.example.org:2379"},
	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: ["https://a:2379/x"]}`, "give URLs as https://etcd-0.example.org:2379"},
	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: ["https://a:2379,https://b:2379"]}`, "give URLs as https://etcd-0.example.org:2379"},
	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: ["https://a:0"]}`, "give URLs as https://etcd-0.example.org:2379"},
	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: ["https://a:2379", "https://a:2379"]}`, "spec.externalEtcd.endpoints[1]: Duplicate value"},
	{outside, "externalEtcd.endpoints", `externalEtcd: {endpoints: ["https://[2001:db8::7]:2379", "https://10.0.0.1:2379"]}`, ""},
	{outside, "externalEtcd.secretName", `externalEtcd: {secretName: A/b}`, "name a Secret in the namespace of vc-manager"},
	{outside, "externalEtcd.secretName", `etcd: {image: etcd}`, "give etcd, or externalEtcd in its place"},
	{outside, "externalEtcd.secretName", `externalEtcd: null`, "give etcd, or externalEtcd in its place"},
	{outside, "externalEtcd.secretName", `backup: {}`, "backup is of etcd: whoever runs an external one backs it up"},
	{outside, "externalEtcd.secretName", `apiServer: {image: null, statefulset: {}}`, "externalEtcd is of ClusterVersions with images"},
	{provisioned, "clusterVersionName", `clusterVersionName: ""`, "spec.clusterVersionName in body should be at least 1 chars long"},
	{provisioned, "clusterVersionName", `clusterVersionName: V1 37`, "name a ClusterVersion: kubectl get clusterversions"},
	{provisioned, "clusterVersionName", `clusterVersionName: null`, "set exactly one of clusterVersionName (provision a control plane) and kubeconfigSecretRef (import one)"},
	{provisioned, "kubeconfigSecretRef.name", `kubeconfigSecretRef: {name: x}`, "set exactly one of clusterVersionName (provision a control plane) and kubeconfigSecretRef (import one)"},
	{imported, "kubeconfigSecretRef.name", `kubeconfigSecretRef: {name: ""}`, "spec.kubeconfigSecretRef.name in body should be at least 1 chars long"},
	{imported, "kubeconfigSecretRef.name", `kubeconfigSecretRef: {name: A_b}`, "name a Secret in the namespace of the VirtualCluster"},
	{imported, "kubeconfigSecretRef.key", `kubeconfigSecretRef: {key: a/b}`, "name a key of the Secret's data, for example value"},
	{provisioned, "clusterDomain", `clusterDomain: Cluster.Local`, "give a domain of DNS in lower case, 230 characters at most, without a dot at its ends, for example cluster.local"},
	{provisioned, "clusterDomain", `clusterDomain: .local`, "give a domain of DNS in lower case"},
	{provisioned, "clusterDomain", `clusterDomain: cluster.local.`, "give a domain of DNS in lower case"},
	{provisioned, "clusterDomain", `clusterDomain: a..b`, "give a domain of DNS in lower case"},
	{provisioned, "clusterDomain", `clusterDomain: ` + strings.Repeat("a", 64), "give a domain of DNS in lower case"},
	{provisioned, "clusterDomain", `clusterDomain: ` + strings.Repeat("a.", 115) + "a", "give a domain of DNS in lower case"},
	{imported, "clusterDomain", `clusterDomain: "-"`, "give a domain of DNS in lower case"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [10.97.0.0]`, "use CIDR notation, for example 10.97.0.0/16"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [10.97.0.0/16, 10.98.0.0/16]`, "give one range per IP family at most"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [10.97.0.0/16, "fd97::/112", 10.98.0.0/16]`, "Too many: 3: must have at most 2 items"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [10.97.0.0/32]`, "a range has 8 addresses at least, as 10.97.0.0/29, and none that are unspecified, loopback, link-local or multicast"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [10.97.0.0/16, "fd97::/126"]`, "a range has 8 addresses at least"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [127.0.0.0/16]`, "a range has 8 addresses at least"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [0.0.0.0/0]`, "a range has 8 addresses at least"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: ["fe80::/112"]`, "a range has 8 addresses at least"},
	{provisioned, "serviceCIDRs", `serviceCIDRs: [10.0.0.0/8, "fd97::/64"]`, ""}, // API servers of 1.34 and later take it
	{provisioned, "serviceCIDRs", `serviceCIDRs: [10.97.0.0/29, "fd97::/125"]`, ""},
	{provisioned, "serviceCidr", `serviceCidr: ""`, "use CIDR notation, for example 10.97.0.0/16"},
	{provisioned, "serviceCidr", `serviceCidr: 10.97.0.0/30`, "a range has 8 addresses at least"},
	{provisioned, "serviceCidr", `{serviceCidr: 10.97.0.0/16, serviceCIDRs: [10.98.0.0/16]}`, "serviceCidr is the older name of the first of serviceCIDRs: set one of them"},
	{provisioned, "pkiExpireDays", `pkiExpireDays: 0`, "spec.pkiExpireDays in body should be greater than or equal to 1"},
	{provisioned, "pkiExpireDays", `pkiExpireDays: 3651`, "spec.pkiExpireDays in body should be less than or equal to 3650"},
	{provisioned, "serviceNodePortRange", `serviceNodePortRange: 0-10`, "give the first and the last port, for example 30100-30199"},
	{provisioned, "serviceNodePortRange", `serviceNodePortRange: 30199-30100`, "give the first and the last port, for example 30100-30199"},
	{provisioned, "serviceNodePortRange", `serviceNodePortRange: "30100"`, "give the first and the last port, for example 30100-30199"},
	{provisioned, "serviceNodePortRange", `serviceNodePortRange: 30100-70000`, "give the first and the last port, for example 30100-30199"},
	{provisioned, "exposure.type", `exposure: {type: ExternalName}`, `supported values: "ClusterIP", "NodePort", "LoadBalancer"`},
	{provisioned, "exposure.type", `exposure: {type: NodePort}`, "NodePort needs hosts: the name or the address of a node, or of what is before the nodes"},
	{imported, "exposure.type", `exposure: {}`, "exposure is of a control plane that is provisioned: one that is imported is reached by its kubeconfig"},
	{provisioned, "exposure.hosts", `exposure: {hosts: []}`, "spec.exposure.hosts in body should have at least 1 items"},
	{provisioned, "exposure.hosts", `exposure: {hosts: [Acme.example.com]}`, "give names of DNS in lower case, or addresses, without a port"},
	{provisioned, "exposure.hosts", `exposure: {hosts: ["acme.example.com:443"]}`, "give names of DNS in lower case, or addresses, without a port"},
	{
		provisioned, "exposure.hosts", `exposure: {hosts: [acme.example.com, 127.0.0.1]}`,
		"give names and addresses that others reach: none that are loopback, unspecified, link-local or multicast, and no part of an address",
	},
	{provisioned, "exposure.hosts", `exposure: {hosts: [0.0.0.0]}`, "give names and addresses that others reach"},
	{provisioned, "exposure.hosts", `exposure: {hosts: ["::1"]}`, "give names and addresses that others reach"},
	{provisioned, "exposure.hosts", `exposure: {hosts: [169.254.1.1]}`, "give names and addresses that others reach"},
	{provisioned, "exposure.hosts", `exposure: {hosts: [localhost]}`, "give names and addresses that others reach"},
	{provisioned, "exposure.hosts", `exposure: {hosts: [10.0.256.1]}`, "give names and addresses that others reach"},
	{provisioned, "exposure.hosts", `exposure: {hosts: ["10.0.1"]}`, "give names and addresses that others reach"},
	{provisioned, "exposure.hosts", `exposure: {hosts: [` + strings.Repeat("a", 64) + `]}`, "give names and addresses that others reach"},
	{provisioned, "exposure.hosts", `exposure: {hosts: [acme-1.example.com, 192.0.2.7, "2001:db8::7", a]}`, ""},
	{provisioned, "exposure.port", `exposure: {port: 443}`, "port is that of the first of hosts: set hosts, too"},
	{provisioned, "exposure.port", `exposure: {hosts: [a], port: 0}`, "spec.exposure.port in body should be greater than or equal to 1"},
	{provisioned, "exposure.nodePort", `exposure: {nodePort: 30123}`, "nodePort is of type NodePort or LoadBalancer"},
	{provisioned, "exposure.nodePort", `exposure: {type: NodePort, hosts: [a], nodePort: 65536}`, "spec.exposure.nodePort in body should be less than or equal to 65535"},
	{provisioned, "exposure.loadBalancerClass", `exposure: {loadBalancerClass: a/b}`, "loadBalancerClass is of type LoadBalancer"},
	{provisioned, "exposure.loadBalancerClass", `exposure: {type: LoadBalancer, loadBalancerClass: a b}`, "spec.exposure.loadBalancerClass in body should match"},
	{provisioned, "exposure.loadBalancerClass", `exposure: {type: LoadBalancer, loadBalancerClass: a..b/c}`, "spec.exposure.loadBalancerClass in body should match"},
	{
		provisioned, "exposure.annotations", `exposure: {annotations: {a b: x}}`,
		"give keys of annotations, for example service.beta.kubernetes.io/aws-load-balancer-scheme, and none of tenancy.x-k8s.io",
	},
	{provisioned, "exposure.annotations", `exposure: {annotations: {a..b/c: x}}`, "give keys of annotations"},
	{provisioned, "exposure.annotations", `exposure: {annotations: {tenancy.x-k8s.io/applied: x}}`, "give keys of annotations"},
	{provisioned, "exposure.annotations", `exposure: {annotations: {a: ` + strings.Repeat("x", 1025) + `}}`, "Too long: may not be more than 1024"},
	{provisioned, "restoreFrom", `restoreFrom: yesterday`, "name a Job of the tenant's root namespace: kubectl get jobs -l app.kubernetes.io/name=etcd-backup"},
	{imported, "restoreFrom", `restoreFrom: etcd-backup-20260101-000000`, "restoreFrom is of a control plane that is provisioned"},
	{provisioned, "rotateAfter", `rotateAfter: tomorrow`, "must be of type date-time"},
	{provisioned, "rotateAfter", `rotateAfter: "1970-01-01T00:00:00Z"`, "a time is 2026-12-01T22:00:00Z, or with another offset than Z"},
	{provisioned, "backupAfter", `backupAfter: tomorrow`, "must be of type date-time"},
	{imported, "backupAfter", `backupAfter: "2026-12-01T22:00:00Z"`, "backupAfter is of a control plane that is provisioned"},
	{imported, "rotateAfter", `rotateAfter: "2026-12-01T22:00:00Z"`, "rotateAfter and distrustAfter are of a control plane that is provisioned: the authorities of one that is imported are its owner's"},
	{
		provisioned, "distrustAfter", `{rotateAfter: "2026-12-01T22:00:00Z", distrustAfter: "2026-12-01T22:00:00Z"}`,
		"distrustAfter is to be later than rotateAfter, for what is replaced is trusted until then: set a later one, or remove it",
	},
	{provisioned, "distrustAfter", `distrustAfter: "1970-01-01T00:00:00Z"`, "a time is 2026-12-01T22:00:00Z, or with another offset than Z"},
	{provisioned, "nodes", `nodes: All`, `supported values: "OnDemand", "Placed"`},
}

// unrefused are the fields in which nothing is refused, with the reason.
var unrefused = map[string]string{
	"VirtualCluster paused":                  "both values mean something",
	"VirtualCluster policyName":              "it is not about the control plane: condition PolicyFound, TestNamesThatMeanNothing of test/integration/registry",
	"VirtualCluster opaqueMetaPrefixes":      "it is not about the control plane: any text is a prefix",
	"VirtualCluster transparentMetaPrefixes": "it is not about the control plane: any text is a prefix",
}

var parts = []string{"etcd", "apiServer", "controllerManager"}

// expanded returns all rows, one for each part where they are of all.
func expanded() (all []row) {
	for _, r := range rows {
		if !strings.Contains(r.spec, "PART") {
			all = append(all, r)
			continue
		}
		for _, part := range parts {
			put := func(text string) string { return strings.ReplaceAll(text, "PART", part) }
			all = append(all, row{r.base, put(r.field), put(r.spec), put(r.want)})
		}
	}
	return all
}

// TestInput: the API server refuses bad values of all fields, and says what to do; samples and the documents of the
// first VirtualCluster it takes. TestInputThatIsRefusedLater of internal/provision has what no single object shows.
func TestInput(t *testing.T) {
	t.Parallel()
	crds, err := controlplane.MetaCRDs(t.Context())
	require.NoError(t, err)
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Meta, CRDs: crds})
	t.Cleanup(stop)
	require.NoError(t, err)
	c, err := client.New(started[0].Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	for _, r := range expanded() {
		object, change := map[string]any{}, map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(bases[r.base], "\t", " ")), &object))
		require.NoError(t, yaml.Unmarshal([]byte(r.spec), &change), r.spec)
		merge(object["spec"].(map[string]any), change)
		err := c.Create(t.Context(), &unstructured.Unstructured{Object: object}, client.DryRunAll)
		switch {
		case r.want == "" && err != nil, r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want)):
			t.Errorf("%s %s: %s\n got %v\nwant %s", r.base, r.field, r.spec, err, cmp.Or(r.want, "it is taken"))
		}
	}
	for _, file := range []string{
		"manifests/samples/clusterversion.yaml", "manifests/samples/clusterversion-files.yaml", "manifests/samples/clusterversion-external.yaml", "manifests/samples/virtualcluster.yaml", "internal/controlplane/testdata/bundles.yaml",
	} {
		text, err := os.Open(filepath.Join("..", "..", "..", file))
		require.NoError(t, err)
		documents := utilyaml.NewYAMLOrJSONDecoder(text, 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := documents.Decode(object); errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, c.Create(t.Context(), object, client.DryRunAll), file)
		}
		require.NoError(t, text.Close())
	}
}

// merge changes an object: what is nil is removed.
func merge(into, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		below, hasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && hasMap:
			merge(below, inner)
		default:
			into[key] = value
		}
	}
}

// TestInputOfAllFields: TestInput has a row for each field of the specs, or it is said why none is refused.
func TestInputOfAllFields(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for _, r := range expanded() {
		if r.want != "" {
			kind, _, _ := strings.Cut(r.base, ",")
			tried[kind+" "+r.field] = true
		}
	}
	var fields []string
	for _, name := range []string{"clusterversions", "virtualclusters"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "crds", "tenancy.x-k8s.io_"+name+".yaml"))
		require.NoError(t, err)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(text, crd))
		for _, version := range crd.Spec.Versions {
			spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
			fields = append(fields, leaves(crd.Spec.Names.Kind+" ", &spec)...)
		}
	}
	require.Greater(t, len(fields), 50)
	for _, field := range fields {
		require.NotEqual(t, tried[field], unrefused[field] != "", "%s: give TestInput a row with a bad value of it, or say in unrefused why there is none", field)
	}
	for _, field := range slices.Concat(slices.Collect(maps.Keys(tried)), slices.Collect(maps.Keys(unrefused))) {
		require.Contains(t, fields, field, "there is no such field")
	}
}

// leaves returns the fields of a schema that have none below them. Elements of lists are below them; quantities, texts
// and what is not described are not.
func leaves(path string, of *apiextensionsv1.JSONSchemaProps) (paths []string) {
	if of.Items != nil {
		of = of.Items.Schema
	}
	if len(of.Properties) == 0 || strings.HasSuffix(path, ".claims.") {
		return []string{strings.TrimSuffix(path, ".")}
	}
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		inner := of.Properties[name]
		paths = append(paths, leaves(path+name+".", &inner)...)
	}
	return paths
}

// TestInputIsNotHalfMade: what the meta cluster alone refuses is said before anything is made, and before what runs is
// changed. Once it is mended all is made.
func TestInputIsNotHalfMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "acme.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: tenancy.x-k8s.io/v1alpha1
kind: ClusterVersion
metadata: {name: v1.37}
spec:
  kubernetesVersion: v1.37.2
  etcd: {image: etcd}
  apiServer: {image: kube-apiserver}
  controllerManager: {image: kube-controller-manager, resources: {requests: {cpus: 1}}}
---
apiVersion: tenancy.x-k8s.io/v1alpha1
kind: VirtualCluster
metadata: {namespace: default, name: acme}
spec:
  clusterVersionName: v1.37
  exposure: {type: NodePort, hosts: [192.0.2.7], nodePort: 8080}
`), 0o600))
	w := newWorld(t, time.Hour, file)
	refuses := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			said := meta.FindStatusCondition(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionUpToDate)
			return said != nil && said.Reason == tenancyv1alpha1.ReasonInvalid && strings.Contains(said.Message, want) && strings.HasSuffix(said.Message, "; what runs goes on")
		}, time.Minute, tick, want)
	}
	made := func() (n int) {
		t.Helper()
		for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}, &policyv1.PodDisruptionBudgetList{}} {
			require.NoError(t, w.client.List(t.Context(), list, client.InNamespace(root)))
			n += meta.LenList(list)
		}
		return n
	}
	outside := `Service "kube-apiserver" is invalid: spec.ports[0].nodePort: Invalid value: 8080: provided port is not in the valid range. The range of valid ports is 30000-32767`
	refuses(`Deployment.apps "kube-controller-manager" is invalid: [spec.template.spec.containers[0].resources.requests[cpus]: Invalid value: "cpus": must be a standard resource`)
	require.Zero(t, made())
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.ControllerManager.Resources = corev1.ResourceRequirements{}
	})
	refuses(outside)
	require.Zero(t, made())
	require.NoError(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.Exposure = nil }))
	w.whole(t, "v1.37.2")
	pids := w.kubelet.pids()
	require.NoError(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) {
		spec.ServiceNodePortRange = "30100-30199" // of the API servers, which come before the Service
		spec.Exposure = &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeNodePort, Hosts: []string{"192.0.2.7"}, NodePort: 8080}
	}))
	refuses(outside)
	require.Equal(t, pids, w.kubelet.pids(), "nothing is replaced")
	w.remember(t, "meanwhile")
}
