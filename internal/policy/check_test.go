package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// plenty is what a namespace holds that no pod of these tests asks too much of.
func plenty() policy.Facts {
	return policy.Facts{Held: slice.Of(builders.Resources("cpu", "10", "memory", "10Gi", "pods", "10"))}
}

// plain is a pod of a Deployment as a syncer creates it.
func plain(change func(spec *corev1.PodSpec)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "vc-web", Name: "web-7d4b9-x2x4z",
			Labels:      map[string]string{"app": "web", "label.tenancy.x-k8s.io/app": "web", "tenancy.x-k8s.io/cluster": "vc", "scheduler.tenancy.x-k8s.io/superCluster": "r1"},
			Annotations: map[string]string{"tenancy.x-k8s.io/namespace": "web", "tenancy.x-k8s.io/copied-labels": "app", "downward.tenancy.x-k8s.io/0": ""},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", DeprecatedServiceAccount: "default", SchedulerName: "default-scheduler", DNSPolicy: corev1.DNSNone,
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](30),
			Containers: []corev1.Container{{
				Name: "web", Image: "web:1", ImagePullPolicy: corev1.PullAlways, Resources: builders.Requests("cpu", "100m", "memory", "1Mi"),
				Ports:         []corev1.ContainerPort{{ContainerPort: 80}},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}},
				VolumeMounts:  []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{}}, {ConfigMap: &corev1.ConfigMapProjection{}}, {DownwardAPI: &corev1.DownwardAPIProjection{}},
				}}}},
				{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
				{Name: "scratch"},
			},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
			},
			NodeSelector: map[string]string{"kubernetes.io/arch": "amd64"},
		},
	}
	if change != nil {
		change(&pod.Spec)
	}
	return pod
}

func volume(source corev1.VolumeSource) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
}

func ephemeral(class *string, change func(*corev1.PersistentVolumeClaimTemplate)) func(*corev1.PodSpec) {
	template := &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: class, Resources: corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
	}}
	if change != nil {
		change(template)
	}
	return volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}})
}

func tolerate(toleration corev1.Toleration) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.Tolerations = append(spec.Tolerations, toleration) }
}

func required(term corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}, term}},
		}}
	}
}

func expression(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
}

const (
	onlyVolumes  = "pods.volumes allows configMap, secret, downwardAPI, projected, emptyDir, image"
	onlyTaints   = "pods.tolerations allows node.kubernetes.io/not-ready:NoExecute, node.kubernetes.io/unreachable:NoExecute"
	onlyNodeKeys = "pods.nodeSelectorKeys allows kubernetes.io/os, kubernetes.io/arch, kubernetes.io/hostname, topology.kubernetes.io/zone, topology.kubernetes.io/region"
	template     = "spec.volumes[0].ephemeral.volumeClaimTemplate."
)

// claiming allows generic ephemeral volumes of some StorageClasses.
func claiming(classes ...string) func(*tenancyv1alpha1.TenantPolicySpec) {
	return func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Volumes = append(spec.Pods.Volumes, "ephemeral")
		spec.Pods.StorageClasses = classes
		spec.Limits.PersistentVolumeClaims, spec.Limits.Storage = 1, resource.MustParse("1Gi")
	}
}

func TestCheckPod(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// policy changes the shipped one; nil for that one.
		policy func(*tenancyv1alpha1.TenantPolicySpec)
		pod    func(*corev1.PodSpec)
		want   []policy.Refusal
	}{
		{name: "a plain pod"},

		{
			name: "Pod Security, twice", pod: func(spec *corev1.PodSpec) {
				spec.HostNetwork, spec.HostPID = true, true
				spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
			},
			want: []policy.Refusal{
				{Field: "spec", Message: "Pod Security forbids host namespaces (hostNetwork=true, hostPID=true): pods.securityLevel is baseline"},
				{Field: "spec", Message: `Pod Security forbids privileged (container "web" must not set securityContext.privileged=true): pods.securityLevel is baseline`},
			},
		},
		{
			name: "a host in a probe", pod: func(spec *corev1.PodSpec) { spec.Containers[0].LivenessProbe.HTTPGet.Host = "169.254.169.254" },
			want: []policy.Refusal{{Field: "spec", Message: `Pod Security forbids probe or lifecycle host (container "web" uses probe or lifecycle host "169.254.169.254"): pods.securityLevel is baseline`}},
		},
		{
			name: "all that is privileged",
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.SecurityLevel = tenancyv1alpha1.PodSecurityPrivileged
			},
			pod: func(spec *corev1.PodSpec) {
				spec.HostNetwork = true
				spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
				spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			},
		},

		{name: "an image volume", pod: volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{PullPolicy: corev1.PullAlways}})},
		{
			name: "a claim", pod: volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}),
			want: []policy.Refusal{{Field: "spec.volumes[0].persistentVolumeClaim", Message: "volumes of kind persistentVolumeClaim are not allowed: " + onlyVolumes}},
		},
		{
			name: "NFS", pod: volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}),
			want: []policy.Refusal{{Field: "spec.volumes[0].nfs", Message: "volumes of kind nfs are not allowed: " + onlyVolumes}},
		},
		{
			name: "an ephemeral volume", pod: ephemeral(nil, nil),
			want: []policy.Refusal{{Field: "spec.volumes[0].ephemeral", Message: "volumes of kind ephemeral are not allowed: " + onlyVolumes}},
		},
		{
			name: "no volumes", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.Volumes = nil },
			pod:  func(spec *corev1.PodSpec) { spec.Volumes = spec.Volumes[2:] },
			want: []policy.Refusal{{Field: "spec.volumes[0].emptyDir", Message: "volumes of kind emptyDir are not allowed: pods.volumes allows none"}},
		},
		{name: "a StorageClass", policy: claiming("fast"), pod: ephemeral(ptr.To("fast"), nil)},
		{name: "the default StorageClass", policy: claiming(""), pod: ephemeral(nil, nil)},
		{
			name: "another StorageClass", policy: claiming("fast", "slow"), pod: ephemeral(ptr.To("gold"), nil),
			want: []policy.Refusal{{Field: template + "spec.storageClassName", Message: "StorageClass gold is not allowed: pods.storageClasses allows fast, slow"}},
		},
		{
			name: "the default StorageClass, unlisted", policy: claiming("fast"), pod: ephemeral(nil, nil),
			want: []policy.Refusal{{Field: template + "spec.storageClassName", Message: "a claim of the default StorageClass is not allowed: pods.storageClasses allows fast"}},
		},
		{
			name: "no StorageClass", policy: claiming("", "fast"), pod: ephemeral(ptr.To(""), nil),
			want: []policy.Refusal{{Field: template + "spec.storageClassName", Message: "a claim without StorageClass would be bound to a volume that exists: pods.storageClasses allows \"\", fast"}},
		},
		{
			name: "a StorageClass in an annotation", policy: claiming("fast"), pod: ephemeral(ptr.To("fast"), func(template *corev1.PersistentVolumeClaimTemplate) {
				template.Annotations = map[string]string{"volume.beta.kubernetes.io/storage-class": "gold"}
			}),
			want: []policy.Refusal{{Field: template + "spec.storageClassName", Message: "StorageClass gold is not allowed: pods.storageClasses allows fast"}},
		},
		{
			name: "sources of one name and two kinds", policy: claiming("fast"), pod: ephemeral(ptr.To("fast"), func(template *corev1.PersistentVolumeClaimTemplate) {
				template.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
				template.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "x"}
			}),
			want: []policy.Refusal{
				{Field: template + "spec.dataSource", Message: `a claim may have no data source but a VolumeSnapshot of its namespace, as PersistentVolumeClaim "x"`},
			},
		},
		{
			name: "sources of one name and one kind", policy: claiming("fast"), pod: ephemeral(ptr.To("fast"), func(template *corev1.PersistentVolumeClaimTemplate) {
				template.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "x"}
				template.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "x"}
			}),
		},
		{
			name: "a claim of what exists", policy: claiming("fast"), pod: ephemeral(ptr.To("fast"), func(template *corev1.PersistentVolumeClaimTemplate) {
				template.Labels = map[string]string{"app": "web", "backup.example.com/group": "all"}
				template.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n1"}
				template.Spec.VolumeName, template.Spec.Selector = "pv-1", &metav1.LabelSelector{}
				template.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
				template.Spec.VolumeAttributesClassName = ptr.To("gold")
			}),
			want: []policy.Refusal{
				{Field: template + "spec.volumeName", Message: `a claim may not name a volume, as "pv-1"`},
				{Field: template + "spec.selector", Message: `a claim may not select volumes, as by "<none>"`},
				{Field: template + "spec.dataSource", Message: `a claim may have no data source but a VolumeSnapshot of its namespace, as PersistentVolumeClaim "other"`},
				{Field: template + "spec.volumeAttributesClassName", Message: `a claim may not name a VolumeAttributesClass, as "gold"`},
				{
					Field:   template + "metadata.labels[backup.example.com/group]",
					Message: "label backup.example.com/group is not allowed: metadata.labels allows \"\", app.kubernetes.io, apps.kubernetes.io, batch.kubernetes.io, statefulset.kubernetes.io",
				},
				{
					Field:   template + "metadata.annotations[volume.kubernetes.io/selected-node]",
					Message: "annotation volume.kubernetes.io/selected-node is not allowed: metadata.annotations allows none",
				},
			},
		},
		{
			name: "more claims than the limit", policy: claiming("fast"), pod: func(spec *corev1.PodSpec) {
				ephemeral(ptr.To("fast"), nil)(spec)
				spec.Volumes = append(spec.Volumes, spec.Volumes[0])
			},
			want: []policy.Refusal{
				{Field: template + "spec", Message: "makes 2 claims, and limits.persistentVolumeClaims is 1"},
				{Field: template + "spec.resources.requests[storage]", Message: "requests 2Gi storage in total, and limits.storage is 1Gi"},
			},
		},
		{
			name: "a monstrous claim", policy: claiming("fast"), pod: ephemeral(ptr.To("fast"), func(template *corev1.PersistentVolumeClaimTemplate) {
				template.Spec.Resources.Requests = builders.Resources("storage", "1e1000000")
			}),
			want: []policy.Refusal{{Field: template + "spec.resources.requests[storage]", Message: "requests 8Pi storage in total, and limits.storage is 1Gi"}},
		},

		{name: "a toleration for ever", pod: tolerate(corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})},
		{
			name: "another effect", pod: tolerate(corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}),
			want: []policy.Refusal{{Field: "spec.tolerations[2]", Message: "tolerating taint node.kubernetes.io/not-ready:NoSchedule is not allowed: " + onlyTaints}},
		},
		{
			name: "all effects", pod: tolerate(corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}),
			want: []policy.Refusal{{Field: "spec.tolerations[2]", Message: "tolerating taint node.kubernetes.io/not-ready is not allowed: " + onlyTaints}},
		},
		{
			name: "another taint", pod: tolerate(corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Value: "x", Effect: corev1.TaintEffectNoSchedule}),
			want: []policy.Refusal{{Field: "spec.tolerations[2]", Message: "tolerating taint node-role.kubernetes.io/control-plane:NoSchedule is not allowed: " + onlyTaints}},
		},
		{
			name: "every taint", pod: tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}),
			want: []policy.Refusal{{
				Field: "spec.tolerations[2]", Message: "a toleration without key tolerates every taint (effect \"NoExecute\"): pods.securityLevel is baseline, and only privileged allows it",
			}},
		},
		{
			name: "a rule for all effects",
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "gpu"})
			},
			pod: func(spec *corev1.PodSpec) {
				tolerate(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists})(spec)
				tolerate(corev1.Toleration{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule})(spec)
			},
		},

		{
			name: "a node selector", pod: func(spec *corev1.PodSpec) { spec.NodeSelector["pool"] = "others" },
			want: []policy.Refusal{{Field: "spec.nodeSelector[pool]", Message: "node label pool (is others) is not allowed: " + onlyNodeKeys}},
		},
		{
			name: "node affinities", pod: func(spec *corev1.PodSpec) {
				required(expression("pool", "a"))(spec)
				spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Preference: expression("disk", "ssd")}}
			},
			want: []policy.Refusal{
				{
					Field:   "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[0]",
					Message: "node label pool (In a) is not allowed: " + onlyNodeKeys,
				},
				{
					Field:   "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0]",
					Message: "node label disk (In ssd) is not allowed: " + onlyNodeKeys,
				},
			},
		},
		{
			name: "topology keys that a node must have",
			pod: func(spec *corev1.PodSpec) {
				spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{TopologyKey: "rack", WhenUnsatisfiable: corev1.DoNotSchedule},
					{TopologyKey: "row", WhenUnsatisfiable: corev1.ScheduleAnyway},
					{TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.DoNotSchedule},
					{TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule},
				}
				spec.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{{TopologyKey: "pool"}},
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "row"}}},
					},
					PodAntiAffinity: &corev1.PodAntiAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}, {TopologyKey: "disk"}},
					},
				}
			},
			want: []policy.Refusal{
				{Field: "spec.topologySpreadConstraints[0].topologyKey", Message: "node label rack (Exists) is not allowed: " + onlyNodeKeys},
				{Field: "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey", Message: "node label pool (Exists) is not allowed: " + onlyNodeKeys},
				{Field: "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].topologyKey", Message: "node label disk (Exists) is not allowed: " + onlyNodeKeys},
			},
		},
		{name: "an affinity to a zone", pod: required(expression("topology.kubernetes.io/zone", "a", "b"))},
		{name: "a node by its name", pod: required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name"}}})},
		{
			name: "a node by its name, where host names are not allowed", pod: required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}),
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.NodeSelectorKeys = []string{"kubernetes.io/arch"}
			},
			want: []policy.Refusal{{
				Field:   "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchFields[0]",
				Message: "naming a node (metadata.name In n1) is not allowed: pods.nodeSelectorKeys lacks kubernetes.io/hostname",
			}},
		},
		{
			name: "the nodes of the policy", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.NodeSelector = map[string]string{"pool": "small"}
			},
			pod: func(spec *corev1.PodSpec) {
				required(expression("pool", "small"))(spec)
				spec.NodeSelector["pool"] = "small"
			},
		},
		{
			name: "other nodes than the policy's", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.NodeSelector = map[string]string{"pool": "small", "zone": "a"}
			},
			pod: func(spec *corev1.PodSpec) {
				required(expression("pool", "small", "large"))(spec)
				spec.NodeSelector["pool"] = "large"
			},
			want: []policy.Refusal{
				{Field: "spec.nodeSelector[pool]", Message: `is "large": pods.nodeSelector wants "small"`},
				{Field: "spec.nodeSelector[zone]", Message: `is "": pods.nodeSelector wants "a"`},
				{
					Field:   "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[0]",
					Message: "node label pool (In small, large) is not allowed: " + onlyNodeKeys,
				},
			},
		},

		{
			name: "a RuntimeClass", pod: func(spec *corev1.PodSpec) { spec.RuntimeClassName = ptr.To("kata") },
			want: []policy.Refusal{{Field: "spec.runtimeClassName", Message: `RuntimeClass "kata" is not allowed: pods.runtimeClasses allows none`}},
		},
		{
			name: "an allowed RuntimeClass", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.RuntimeClasses = []string{"kata"} },
			pod: func(spec *corev1.PodSpec) { spec.RuntimeClassName = ptr.To("kata") },
		},
		{
			name: "no RuntimeClass", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.RuntimeClass, spec.Pods.RuntimeClasses = "gvisor", []string{"kata"}
			},
			want: []policy.Refusal{{Field: "spec.runtimeClassName", Message: `RuntimeClass "" is not allowed: pods.runtimeClasses allows gvisor, kata`}},
		},

		{
			name: "images of others", pod: func(spec *corev1.PodSpec) {
				volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1", PullPolicy: corev1.PullNever}})(spec)
				spec.InitContainers = []corev1.Container{{Name: "i", Image: "init:1", ImagePullPolicy: corev1.PullIfNotPresent}}
			},
			want: []policy.Refusal{
				{Field: "spec.initContainers[0]", Message: `image "init:1" is pulled IfNotPresent: pods.imagePull is Always`},
				{Field: "spec.volumes[0]", Message: `image "data:1" is pulled Never: pods.imagePull is Always`},
			},
		},
		{
			name: "images as requested", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.ImagePull = tenancyv1alpha1.ImagePullAsRequested
			},
			pod: func(spec *corev1.PodSpec) { spec.Containers[0].ImagePullPolicy = corev1.PullNever },
		},

		{name: "the longest grace period", pod: func(spec *corev1.PodSpec) { spec.TerminationGracePeriodSeconds = ptr.To[int64](600) }},
		{
			name: "longer grace periods", pod: func(spec *corev1.PodSpec) {
				spec.TerminationGracePeriodSeconds = ptr.To[int64](601)
				spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = ptr.To[int64](31_536_000)
			},
			want: []policy.Refusal{
				{Field: "spec.terminationGracePeriodSeconds", Message: "601 s is longer than pods.maxGracePeriodSeconds, 600"},
				{Field: "spec.containers[0]", Message: "31536000 s is longer than pods.maxGracePeriodSeconds, 600"},
			},
		},
		{
			name: "the API server's grace period", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.MaxGracePeriodSeconds = 10 },
			pod:  func(spec *corev1.PodSpec) { spec.TerminationGracePeriodSeconds = nil },
			want: []policy.Refusal{{Field: "spec.terminationGracePeriodSeconds", Message: "30 s is longer than pods.maxGracePeriodSeconds, 10"}},
		},

		{
			name: "more than is held", pod: func(spec *corev1.PodSpec) { spec.Containers[0].Resources = builders.Requests("cpu", "11") },
			want: []policy.Refusal{{
				Field:   "spec.containers[0].resources.requests[cpu]",
				Message: "requests 11 cpu in total, and the namespace holds 10 in this super cluster: request less, or raise requests.cpu in the ResourceQuota of the namespace or the size of its slices",
			}},
		},
		{
			name: "devices", pod: func(spec *corev1.PodSpec) { spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
			want: []policy.Refusal{{Field: "spec.resourceClaims[0]", Message: `the devices of super clusters cannot be claimed, as by "gpu"`}},
		},
		{
			name: "what no translation leaves", pod: func(spec *corev1.PodSpec) {
				spec.NodeName, spec.SchedulerName, spec.PriorityClassName, spec.AutomountServiceAccountToken = "n1", "other", "system-node-critical", nil
				spec.Volumes[0].Projected.Sources[1] = corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}
			},
			want: []policy.Refusal{
				{Field: "spec.nodeName", Message: "the super cluster's scheduler chooses the node"},
				{Field: "spec.schedulerName", Message: `scheduler "other" is not allowed: super clusters schedule with default-scheduler`},
				{Field: "spec.automountServiceAccountToken", Message: "a token for the super cluster is not for tenants"},
				{Field: "spec.volumes[0].projected.sources[1]", Message: "tokens, certificates and trust bundles of the super cluster are not for tenants"},
				{Field: "spec.priorityClassName", Message: `PriorityClass "system-node-critical" is not allowed: pods.priorityClasses and offers.priorityClasses allow none`},
			},
		},
		{
			name: "a priority", pod: func(spec *corev1.PodSpec) { spec.PriorityClassName, spec.Priority = "pool-high", ptr.To[int32](7) },
			policy: priorities, want: []policy.Refusal{{Field: "spec.priority", Message: "priorities of the super cluster are not for tenants"}},
		},
		{
			name: "another PriorityClass", pod: func(spec *corev1.PodSpec) { spec.PriorityClassName = "others" },
			policy: priorities,
			want: []policy.Refusal{{
				Field: "spec.priorityClassName", Message: `PriorityClass "others" is not allowed: pods.priorityClasses and offers.priorityClasses allow pool-named, pool-high, pool-low`,
			}},
		},
		{name: "a PriorityClass that is listed", pod: func(spec *corev1.PodSpec) { spec.PriorityClassName = "pool-low" }, policy: priorities},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rules := policy.Default()
			if tc.policy != nil {
				rules = policyWith(t, tc.policy)
			}
			pod := plain(tc.pod)
			before := pod.DeepCopy()
			require.Empty(t, cmp.Diff(tc.want, policy.Check(rules, pod, plenty())))
			require.Empty(t, cmp.Diff(before, pod), "it changes nothing")
		})
	}
}

// TestCheckPodThatExists: what a super cluster sets on the pods that it has is no tenant's doing.
func TestCheckPodThatExists(t *testing.T) {
	t.Parallel()
	pod := plain(func(spec *corev1.PodSpec) {
		spec.NodeName, spec.PriorityClassName, spec.Priority = "n1", "batch", ptr.To[int32](10)
	})
	pod.UID = "uid"
	pod.Annotations["cni.projectcalico.org/podIP"] = "10.1.2.3"
	pod.Labels["istio.io/rev"] = "default"
	require.Empty(t, policy.Check(policy.Default(), pod, plenty()))
	pod.Spec.HostIPC = true
	require.Len(t, policy.Check(policy.Default(), pod, plenty()), 1)
}

// TestCheckNamesValues: what an existing object breaks in the same words may stay (Refusal), so another value that is
// forbidden too must be another refusal.
func TestCheckNamesValues(t *testing.T) {
	t.Parallel()
	claim := func(change func(*corev1.PersistentVolumeClaimSpec)) client.Object {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "exists"}}
		change(&claim.Spec)
		return claim
	}
	pod := func(change func(*corev1.PodSpec)) client.Object {
		pod := plain(change)
		pod.UID = "exists"
		return pod
	}
	term := func(value string) *corev1.Affinity {
		requirement := []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Preference: corev1.NodeSelectorTerm{MatchExpressions: requirement}},
		}}}
	}
	ports := func(value string, kind corev1.ServiceType) client.Object {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: make([]corev1.ServicePort, len(value))}}
	}
	for name, with := range map[string]func(value string) client.Object{
		"an image": func(value string) client.Object {
			return pod(func(spec *corev1.PodSpec) {
				spec.Containers[0].Image, spec.Containers[0].ImagePullPolicy = value, corev1.PullIfNotPresent
			})
		},
		"an image of an ephemeral container": func(value string) client.Object {
			return pod(func(spec *corev1.PodSpec) {
				spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: value}}}
			})
		},
		"a node selector": func(value string) client.Object {
			return pod(func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"pool": value} })
		},
		"a node affinity": func(value string) client.Object {
			return pod(func(spec *corev1.PodSpec) { spec.Affinity = term(value) })
		},
		"a toleration of all": func(value string) client.Object {
			return pod(func(spec *corev1.PodSpec) {
				spec.Tolerations = []corev1.Toleration{{Effect: corev1.TaintEffect(value)}}
			})
		},
		"devices": func(value string) client.Object {
			return pod(func(spec *corev1.PodSpec) { spec.ResourceClaims = []corev1.PodResourceClaim{{Name: value}} })
		},
		"a volume": func(value string) client.Object {
			return claim(func(spec *corev1.PersistentVolumeClaimSpec) { spec.VolumeName = value })
		},
		"a selector of volumes": func(value string) client.Object {
			return claim(func(spec *corev1.PersistentVolumeClaimSpec) {
				spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": value}}
			})
		},
		"a data source": func(value string) client.Object {
			return claim(func(spec *corev1.PersistentVolumeClaimSpec) {
				spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: value}
			})
		},
		"a reference to a data source": func(value string) client.Object {
			return claim(func(spec *corev1.PersistentVolumeClaimSpec) {
				spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c", Namespace: &value}
			})
		},
		"a VolumeAttributesClass": func(value string) client.Object {
			return claim(func(spec *corev1.PersistentVolumeClaimSpec) { spec.VolumeAttributesClassName = &value })
		},
		"an external IP": func(value string) client.Object {
			return &corev1.Service{Spec: corev1.ServiceSpec{ExternalIPs: []string{value}}}
		},
		"node ports":                 func(value string) client.Object { return ports(value, corev1.ServiceTypeNodePort) },
		"ports of the load balancer": func(value string) client.Object { return ports(value, corev1.ServiceTypeLoadBalancer) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := policy.Check(policy.Default(), with("a"), plenty()), policy.Check(policy.Default(), with("ab"), plenty())
			require.True(t, slices.ContainsFunc(after, func(refusal policy.Refusal) bool { return !slices.Contains(before, refusal) }), "%v", after)
		})
	}
}

// TestCheckIsBounded: a tenant decides how many fields are wrong.
func TestCheckIsBounded(t *testing.T) {
	t.Parallel()
	pod := plain(func(spec *corev1.PodSpec) {
		for i := range 100_000 {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: fmt.Sprint("k", i)})
		}
	})
	found := policy.Check(policy.Default(), pod, plenty())
	require.Len(t, found, 33)
	require.Equal(t, policy.Refusal{Message: "99968 more fields are forbidden"}, found[32])
}

func TestCheckService(t *testing.T) {
	t.Parallel()
	limits := func(nodePorts, loadBalancers int32) func(*tenancyv1alpha1.TenantPolicySpec) {
		return func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.NodePorts, spec.Limits.LoadBalancers = nodePorts, loadBalancers
		}
	}
	two := []corev1.ServicePort{{Port: 80}, {Port: 443}}
	for _, tc := range []struct {
		name   string
		policy func(*tenancyv1alpha1.TenantPolicySpec)
		spec   corev1.ServiceSpec
		want   []policy.Refusal
	}{
		{name: "a cluster IP", spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: two}},
		{name: "an external name", spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}},
		{
			name: "node ports", spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: two},
			want: []policy.Refusal{{Field: "spec.type", Message: "type NodePort of 2 ports is not allowed: limits.nodePorts is 0"}},
		},
		{name: "two node ports", policy: limits(2, 0), spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: two}},
		{
			name: "two node ports of one", policy: limits(1, 0), spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: two},
			want: []policy.Refusal{{Field: "spec.ports", Message: "2 node ports are wanted, and limits.nodePorts is 1"}},
		},
		{
			name: "a load balancer", spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: two},
			want: []policy.Refusal{{Field: "spec.type", Message: "type LoadBalancer of 2 ports is not allowed: limits.loadBalancers is 0"}},
		},
		{
			name: "a load balancer without node ports", policy: limits(0, 1),
			spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Ports: two, AllocateLoadBalancerNodePorts: ptr.To(false), LoadBalancerSourceRanges: []string{"192.0.2.0/24"},
			},
		},
		{
			name: "a load balancer with node ports", policy: limits(1, 1), spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: two},
			want: []policy.Refusal{{Field: "spec.ports", Message: "2 node ports are wanted, and limits.nodePorts is 1: set spec.allocateLoadBalancerNodePorts to false"}},
		},
		{
			name: "addresses of others", policy: limits(2, 1), spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Ports: two, ExternalIPs: []string{"192.0.2.1"}, LoadBalancerIP: "192.0.2.2", LoadBalancerClass: ptr.To("example.com/lb"),
			},
			want: []policy.Refusal{
				{Field: "spec.externalIPs[0]", Message: "external IP 192.0.2.1 is not allowed: it takes the traffic of others"},
				{Field: "spec.loadBalancerIP", Message: "address 192.0.2.2 is not allowed: the super cluster chooses the addresses of load balancers"},
				{Field: "spec.loadBalancerClass", Message: "load balancer class example.com/lb is not allowed: traffic.loadBalancerClasses allows none"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rules := policy.Default()
			if tc.policy != nil {
				rules = policyWith(t, tc.policy)
			}
			require.Empty(t, cmp.Diff(tc.want, policy.Check(rules, &corev1.Service{Spec: tc.spec}, policy.Facts{})))
		})
	}
}

func TestCheckEndpoints(t *testing.T) {
	t.Parallel()
	facts := policy.Facts{Forbidden: func(address netip.Addr) bool { return address == netip.MustParseAddr("10.0.0.1") }}
	endpoints := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "syncer.tenancy.x-k8s.io", corev1.IsHeadlessService: "", "tenancy.x-k8s.io/cluster": "vc",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.1", "10.0.0.1"}}, {Addresses: []string{"nonsense"}}},
	}
	require.Empty(t, cmp.Diff([]policy.Refusal{
		{Field: "endpoints[1]", Message: "address 10.0.0.1 is not allowed: it is the pool's, and no pod of the tenant has it"},
		{Field: "endpoints[2]", Message: "address nonsense is not allowed: it is the pool's, and no pod of the tenant has it"},
	}, policy.Check(policy.Default(), endpoints, facts)))
	require.Empty(t, policy.Check(policy.Default(), endpoints, policy.Facts{}))
	endpoints.AddressType = discoveryv1.AddressTypeFQDN
	endpoints.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"a.internal", "b.internal"}}}
	want := []policy.Refusal{
		{Field: "endpoints[0]", Message: "name a.internal is not allowed: it may lead anywhere"},
		{Field: "endpoints[0]", Message: "name b.internal is not allowed: it may lead anywhere"},
	}
	require.Empty(t, cmp.Diff(want, policy.Check(policy.Default(), endpoints, facts)))
	require.Empty(t, cmp.Diff(want, policy.Check(policy.Default(), endpoints, policy.Facts{})), "whatever is forbidden besides")
	endpoints.Endpoints = nil
	require.Empty(t, policy.Check(policy.Default(), endpoints, facts))
}

func TestCheckClaim(t *testing.T) {
	t.Parallel()
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("fast"), Resources: corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
	}}
	require.Empty(t, policy.Check(policyWith(t, claiming("fast")), claim, policy.Facts{}))
	require.Empty(t, cmp.Diff([]policy.Refusal{
		{Field: "spec", Message: "makes 1 claims, and limits.persistentVolumeClaims is 0"},
		{Field: "spec.storageClassName", Message: "StorageClass fast is not allowed: pods.storageClasses allows none"},
		{Field: "spec.resources.requests[storage]", Message: "requests 1Gi storage in total, and limits.storage is 0"},
	}, policy.Check(policy.Default(), claim, policy.Facts{})))
}

// TestCheckMetadata: a new object has no key that the policy does not allow, of whatever kind.
func TestCheckMetadata(t *testing.T) {
	t.Parallel()
	metadata := metav1.ObjectMeta{
		Labels:      map[string]string{"app": "web", "istio.io/rev": "x", "tenancy.x-k8s.io/cluster": "vc"},
		Annotations: map[string]string{"tenancy.x-k8s.io/uid": "u", "eks.amazonaws.com/role-arn": "arn", "eviltenancy.x-k8s.io/a": ""},
	}
	const onlyLabels = "metadata.labels allows \"\", app.kubernetes.io, apps.kubernetes.io, batch.kubernetes.io, statefulset.kubernetes.io"
	want := []policy.Refusal{
		{Field: "metadata.labels[istio.io/rev]", Message: "label istio.io/rev is not allowed: " + onlyLabels},
		{Field: "metadata.annotations[eks.amazonaws.com/role-arn]", Message: "annotation eks.amazonaws.com/role-arn is not allowed: metadata.annotations allows none"},
		{Field: "metadata.annotations[eviltenancy.x-k8s.io/a]", Message: "annotation eviltenancy.x-k8s.io/a is not allowed: metadata.annotations allows none"},
	}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metadata}, &corev1.Secret{ObjectMeta: metadata}, &corev1.ServiceAccount{ObjectMeta: metadata},
		&corev1.Service{ObjectMeta: metadata}, &discoveryv1.EndpointSlice{ObjectMeta: metadata},
	} {
		require.Empty(t, cmp.Diff(want, policy.Check(policy.Default(), object, policy.Facts{})), "%T", object)
		object.SetUID("exists")
		require.Empty(t, policy.Check(policy.Default(), object, policy.Facts{}), "%T", object)
	}
}

// priorities maps a class, the priorities from 1000 on, and those from 1 to 999.
func priorities(spec *tenancyv1alpha1.TenantPolicySpec) {
	spec.Pods.PriorityClasses = []tenancyv1alpha1.PriorityClassRule{
		{Name: "named", MaxPriority: ptr.To[int32](10), SuperClusterClass: "pool-named"},
		{MinPriority: ptr.To[int32](1000), SuperClusterClass: "pool-high"},
		{MinPriority: ptr.To[int32](1), MaxPriority: ptr.To[int32](999), SuperClusterClass: "pool-low"},
	}
}

func TestPriorityClass(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		priority *int32
		want     string
	}{
		{want: ""},
		{priority: ptr.To[int32](0), want: ""},
		{priority: ptr.To[int32](-5), want: ""},
		{priority: ptr.To[int32](1), want: "pool-low"},
		{priority: ptr.To[int32](999), want: "pool-low"},
		{priority: ptr.To[int32](1000), want: "pool-high"},
		{name: "named", priority: ptr.To[int32](10), want: "pool-named"},
		{name: "named", priority: ptr.To[int32](11), want: "pool-low"},
		{name: "named", want: "pool-named"},
		{name: "pool-high", want: ""},
	} {
		spec := &corev1.PodSpec{PriorityClassName: tc.name, Priority: tc.priority}
		require.Equal(t, tc.want, policyWith(t, priorities).PriorityClass(spec), "%+v", tc)
		require.Empty(t, policy.Default().PriorityClass(spec))
	}
}

// TestClaims: what a policy says of the claims of a pod of the pod view.
func TestClaims(t *testing.T) {
	t.Parallel()
	named := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	spec := &corev1.PodSpec{Volumes: []corev1.Volume{named, named}}
	refusals := policy.Claims(policy.Default(), spec)
	require.Len(t, refusals, 1)
	require.Equal(t, "persistentVolumeClaim", refusals[0].Field)
	require.Empty(t, policy.Claims(policy.Default(), &corev1.PodSpec{}))

	changed := policy.Default().Spec().DeepCopy()
	changed.Pods.Volumes = append(changed.Pods.Volumes, "ephemeral")
	ephemeralOnly, err := policy.New("few", changed)
	require.NoError(t, err)
	require.Len(t, policy.Claims(ephemeralOnly, spec), 1, "a claim of the tenant's is no ephemeral volume")
	changed = changed.DeepCopy()
	changed.Pods.Volumes = append(changed.Pods.Volumes, "persistentVolumeClaim")
	both, err := policy.New("more", changed)
	require.NoError(t, err)
	require.Empty(t, policy.Claims(both, spec))
}
