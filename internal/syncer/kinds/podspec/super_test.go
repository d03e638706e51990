package podspec_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// translated is what the super cluster gets of every pod.
func translated(change func(pod *corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "web-1"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", DeprecatedServiceAccount: "default", SchedulerName: "default-scheduler",
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			DNSPolicy: corev1.DNSDefault, Containers: []corev1.Container{{Name: "main", Image: "image:1", ImagePullPolicy: corev1.PullAlways}},
		},
	}
	tenancy.SetOwner(pod, kindtest.OwnerOf("pod-uid"))
	if change != nil {
		change(pod)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			requests := builders.Resources("cpu", "0", "memory", "0")
			maps.Copy(requests, containers[i].Resources.Requests)
			containers[i].Resources.Requests = requests
		}
	}
	return pod
}

func selector(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

func oneOf(key, value string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}
}

func noneOf(key, value string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}
}

func fieldFile(path string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: "file", FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func TestSuperPod(t *testing.T) {
	t.Parallel()
	confined := map[string]string{tenancyv1alpha1.LabelCluster: kindtest.ClusterKey}
	for _, tc := range []struct {
		name string
		// change makes the tenant's pod, want what the super cluster gets.
		change, want func(pod *corev1.Pod)
	}{
		{name: "a plain pod"},
		{
			name: "what only the tenant's control plane needs does not go down",
			change: func(pod *corev1.Pod) {
				pod.Labels = map[string]string{"app": "web", "scheduler.tenancy.x-k8s.io/superCluster": "r1", "tenancy.x-k8s.io/cluster": "other", "secret/x": "1"}
				pod.Annotations = map[string]string{"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}", "scheduler.virtualcluster.io/slice": "{}"}
				pod.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
				pod.Finalizers = []string{"finalizer"}
				pod.Status.Phase = corev1.PodRunning
			},
			want: func(pod *corev1.Pod) {
				pod.Labels["app"] = "web"
				pod.Annotations["tenancy.x-k8s.io/copied-labels"] = "app"
			},
		},
		{
			name: "the tenant's choice of scheduler and priority is its own",
			change: func(pod *corev1.Pod) {
				pod.Spec.SchedulerName, pod.Spec.PriorityClassName = "mine", "system-node-critical"
				pod.Spec.Priority, pod.Spec.PreemptionPolicy = ptr.To[int32](2000001000), ptr.To(corev1.PreemptNever)
				pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "gate"}}
				pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
				pod.Spec.Subdomain, pod.Spec.EnableServiceLinks = "db", ptr.To(true)
			},
		},
		{
			name: "tokens and the root certificates are the tenant's",
			change: func(pod *corev1.Pod) {
				pod.Spec.AutomountServiceAccountToken = ptr.To(true)
				pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](1000)}
				pod.Spec.Volumes = []corev1.Volume{
					{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
						{PodCertificate: &corev1.PodCertificateProjection{SignerName: "x/y"}}, // no API server takes one without files
						{PodCertificate: &corev1.PodCertificateProjection{
							SignerName: "x/y", CredentialBundlePath: "all.pem", KeyPath: "key.pem", CertificateChainPath: "chain.pem", User: ptr.To[int64](7),
						}},
						{PodCertificate: &corev1.PodCertificateProjection{SignerName: "x/z", CertificateChainPath: "z.pem"}},
						{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
							{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
						}}},
					}}}},
					{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}},
				}
			},
			want: func(pod *corev1.Pod) {
				pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](1000)}
				pod.Spec.Volumes = []corev1.Volume{
					{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{Secret: &corev1.SecretProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: tenancy.TokenSecret("web-1", "pod-uid")},
							Items:                []corev1.KeyToPath{{Key: "token-0-0", Path: "token", Mode: ptr.To[int32](0o600)}},
						}},
						{Secret: &corev1.SecretProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: tenancy.TokenSecret("web-1", "pod-uid")},
							Items: []corev1.KeyToPath{
								{Key: "certificate-0-2-bundle", Path: "all.pem", Mode: ptr.To[int32](0o600), User: ptr.To[int64](7)},
								{Key: "certificate-0-2-key", Path: "key.pem", Mode: ptr.To[int32](0o600), User: ptr.To[int64](7)},
								{Key: "certificate-0-2-chain", Path: "chain.pem", Mode: ptr.To[int32](0o600), User: ptr.To[int64](7)},
							},
						}},
						{Secret: &corev1.SecretProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: tenancy.TokenSecret("web-1", "pod-uid")},
							Items:                []corev1.KeyToPath{{Key: "certificate-0-3-chain", Path: "z.pem", Mode: ptr.To[int32](0o600)}},
						}},
						{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "tenant-kube-root-ca.crt"}}},
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
							{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['tenancy.x-k8s.io/namespace']"}},
						}}},
					}}}},
					{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tenant-kube-root-ca.crt"}}}},
				}
			},
		},
		{
			name: "files show the tenant's labels and annotations, all of them and no others",
			change: func(pod *corev1.Pod) {
				pod.Labels = map[string]string{"app": "web", "topology.kubernetes.io/zone": "z"}
				pod.Annotations = map[string]string{"note": "say \"n\"", "kubectl.kubernetes.io/restartedAt": "now"}
				pod.Spec.Volumes = []corev1.Volume{
					{Name: "plain", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
						{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}},
						fieldFile("metadata.name"), fieldFile("metadata.labels"), fieldFile("metadata.uid"),
					}}}},
					{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{fieldFile("metadata.annotations")}}},
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
							fieldFile("metadata.annotations['kubectl.kubernetes.io/restartedAt']"), fieldFile("metadata.labels['tenancy.x-k8s.io/cluster']"),
						}}},
					}}}},
				}
			},
			want: func(pod *corev1.Pod) {
				pod.Labels["app"] = "web"
				pod.Annotations["tenancy.x-k8s.io/copied-labels"] = "app"
				pod.Annotations["downward.tenancy.x-k8s.io/0"] = "app=\"web\"\ntopology.kubernetes.io/zone=\"z\""
				pod.Annotations["downward.tenancy.x-k8s.io/1"] = "kubectl.kubernetes.io/restartedAt=\"now\"\nnote=\"say \\\"n\\\"\""
				pod.Annotations["downward.tenancy.x-k8s.io/2"] = "now"
				pod.Annotations["downward.tenancy.x-k8s.io/3"] = ""
				pod.Spec.Volumes = []corev1.Volume{
					{Name: "plain", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
						{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}},
						fieldFile("metadata.name"), fieldFile("metadata.annotations['downward.tenancy.x-k8s.io/0']"), fieldFile("metadata.annotations['tenancy.x-k8s.io/uid']"),
					}}}},
					{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{fieldFile("metadata.annotations['downward.tenancy.x-k8s.io/1']")}}},
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
							fieldFile("metadata.annotations['downward.tenancy.x-k8s.io/2']"), fieldFile("metadata.annotations['downward.tenancy.x-k8s.io/3']"),
						}}},
					}}}},
				}
			},
		},
		{
			name: "the environment shows the tenant's fields",
			change: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "$(7)"}
				pod.Spec.Containers[0].Env = []corev1.EnvVar{
					kindtest.FieldEnv("metadata.namespace"), kindtest.FieldEnv("metadata.uid"), kindtest.FieldEnv("metadata.name"),
					kindtest.FieldEnv("metadata.annotations['kubectl.kubernetes.io/restartedAt']"), kindtest.FieldEnv("metadata.labels['app']"), kindtest.FieldEnv("spec.nodeName"),
					{Name: "CA", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}},
				}
				pod.Spec.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
					{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}, {},
				}}}
			},
			want: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{
					{Name: "V", Value: "web"},
					{Name: "V", Value: "pod-uid"},
					kindtest.FieldEnv("metadata.name"),
					{Name: "V", Value: "$$(7)"},
					kindtest.FieldEnv("metadata.labels['label.tenancy.x-k8s.io/app']"),
					kindtest.FieldEnv("spec.nodeName"),
					{Name: "V", Value: "r1.$(V)"},
					{Name: "CA", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "tenant-kube-root-ca.crt"}}}},
				}
				pod.Spec.InitContainers = []corev1.Container{{ImagePullPolicy: corev1.PullAlways, EnvFrom: []corev1.EnvFromSource{
					{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tenant-kube-root-ca.crt"}}}, {},
				}}}
			},
		},
		{
			name: "affinity stays inside the tenant",
			change: func(pod *corev1.Pod) {
				pod.Spec.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
						{Namespaces: []string{"db"}, LabelSelector: selector(map[string]string{"app": "db"})},
						{NamespaceSelector: &metav1.LabelSelector{}},
					}},
					PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
						{PodAffinityTerm: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{
							MatchLabels: map[string]string{"kubernetes.io/metadata.name": "db"},
							MatchExpressions: []metav1.LabelSelectorRequirement{
								{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{"db"}},
							},
						}}},
					}},
				}
			},
			want: func(pod *corev1.Pod) {
				pod.Spec.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
						{Namespaces: []string{kindtest.ClusterKey + "-db"}, LabelSelector: selector(map[string]string{"label.tenancy.x-k8s.io/app": "db", tenancyv1alpha1.LabelCluster: kindtest.ClusterKey})},
						{NamespaceSelector: selector(confined)},
					}},
					PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
						{PodAffinityTerm: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{
							MatchLabels: map[string]string{tenancy.LabelKey("kubernetes.io/metadata.name"): "db", tenancyv1alpha1.LabelCluster: kindtest.ClusterKey},
							MatchExpressions: []metav1.LabelSelectorRequirement{
								{Key: tenancy.LabelKey("kubernetes.io/metadata.name"), Operator: metav1.LabelSelectorOpIn, Values: []string{"db"}},
							},
						}}},
					}},
				}
			},
		},
		{
			name: "keys of labels that the tenant's API server has put into selectors are not put there again",
			change: func(pod *corev1.Pod) {
				pod.Labels = map[string]string{"pod-template-hash": "a1", "zone": "z"}
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					LabelSelector:  &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{oneOf("pod-template-hash", "a1"), noneOf("zone", "z")}},
					MatchLabelKeys: []string{"pod-template-hash"}, MismatchLabelKeys: []string{"zone"},
				}}}}
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{
						LabelSelector:  &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{oneOf("pod-template-hash", "a1")}},
						MatchLabelKeys: []string{"pod-template-hash"},
					},
					{LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"pod-template-hash"}},
				}
			},
			want: func(pod *corev1.Pod) {
				pod.Labels["pod-template-hash"], pod.Labels["zone"] = "a1", "z"
				pod.Annotations["tenancy.x-k8s.io/copied-labels"] = "pod-template-hash,zone"
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					LabelSelector: &metav1.LabelSelector{
						MatchLabels: confined, MatchExpressions: []metav1.LabelSelectorRequirement{
							oneOf("label.tenancy.x-k8s.io/pod-template-hash", "a1"), noneOf("label.tenancy.x-k8s.io/zone", "z"),
						},
					},
				}}}}
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{oneOf("label.tenancy.x-k8s.io/pod-template-hash", "a1")}}},
					// An older API server leaves it to the scheduler.
					{LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"label.tenancy.x-k8s.io/pod-template-hash"}},
				}
			},
		},
		{
			name: "what spreads over super clusters, or keeps pods together or apart there, was answered by the choice",
			change: func(pod *corev1.Pod) {
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{MaxSkew: 1, TopologyKey: tenancyv1alpha1.LabelSuperClusterID, WhenUnsatisfiable: corev1.DoNotSchedule},
					{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: ptr.To[int32](3), LabelSelector: &metav1.LabelSelector{}},
					{MaxSkew: 2, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: ptr.To[int32](2)},
				}
				over, within := corev1.PodAffinityTerm{TopologyKey: tenancyv1alpha1.LabelSuperClusterID}, corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname}
				pod.Spec.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{over, within, {TopologyKey: tenancyv1alpha1.LabelTenantNode}},
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: over}, {Weight: 2, PodAffinityTerm: within}},
					},
					PodAntiAffinity: &corev1.PodAntiAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{within, over},
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: within}, {Weight: 4, PodAffinityTerm: over}},
					},
				}
			},
			want: func(pod *corev1.Pod) {
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}},
					{MaxSkew: 2, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule},
				}
				within := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname}
				pod.Spec.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{within},
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 2, PodAffinityTerm: within}},
					},
					PodAntiAffinity: &corev1.PodAntiAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{within},
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: within}},
					},
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			from := kindtest.TenantPod(tc.change)
			untouched := from.DeepCopy()
			got := &corev1.Pod{}
			podspec.SuperPod(from, got, kindtest.OwnerOf("pod-uid"), &kind.Rules{Opaque: []string{"secret/"}}, &podspec.PodEnvironment{SuperCluster: "r1"})
			want := translated(tc.want)
			for key, value := range from.Labels {
				want.Labels[tenancy.LabelKey(key)] = value
			}
			require.Empty(t, cmp.Diff(want, got))
			require.Empty(t, cmp.Diff(untouched, from), "the tenant's pod lies in a cache")
		})
	}
}

func TestSuperPodUpdate(t *testing.T) {
	t.Parallel()
	superPod := &corev1.Pod{}
	rules := &kind.Rules{Policy: kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Tolerations = []tenancyv1alpha1.TolerationRule{{Key: "a"}, {Key: "b"}, {Key: "lost"}, {Key: "two"}}
	})}
	file := func(path string) []corev1.Volume {
		items := []corev1.DownwardAPIVolumeFile{fieldFile(path)}
		return []corev1.Volume{{Name: "labels", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}}}
	}
	podspec.SuperPod(kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"stays": "1", "goes": "1"}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "a"}, {Key: "lost", TolerationSeconds: ptr.To[int64](300)}, {Key: "two", TolerationSeconds: ptr.To[int64](1)}}
		pod.Spec.Volumes = file("metadata.labels")
	}), superPod, kindtest.OwnerOf("pod-uid"), rules, &podspec.PodEnvironment{})
	superPod.UID = "super-uid"
	superPod.Spec.NodeName = "n1"
	superPod.Annotations["cni.example.com/ip"] = "10.0.0.1"
	superPod.Spec.Tolerations = append(superPod.Spec.Tolerations, corev1.Toleration{Key: "super"})

	podspec.SuperPod(kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"stays": "2", "comes": "2"}
		pod.Spec.Containers[0].Image = "image:2"
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](10)
		pod.Spec.Tolerations = []corev1.Toleration{
			{Key: "a"},
			{Key: "lost", TolerationSeconds: ptr.To[int64](600)},
			{Key: "two", TolerationSeconds: ptr.To[int64](1)},
			{Key: "b"},
			{Key: "two", TolerationSeconds: ptr.To[int64](2)},
		}
		pod.Spec.Volumes = file("metadata.labels")
		pod.Spec.NodeName = "r1.n1"
		pod.Spec.Hostname = "immutable"
	}), superPod, kindtest.OwnerOf("pod-uid"), rules, &podspec.PodEnvironment{})
	want := translated(func(pod *corev1.Pod) {
		pod.UID = "super-uid"
		pod.Labels["stays"], pod.Labels["comes"] = "2", "2"
		pod.Labels["label.tenancy.x-k8s.io/stays"], pod.Labels["label.tenancy.x-k8s.io/comes"] = "2", "2"
		pod.Annotations["tenancy.x-k8s.io/copied-labels"] = "comes,stays"
		pod.Annotations["cni.example.com/ip"] = "10.0.0.1"
		pod.Annotations["downward.tenancy.x-k8s.io/0"] = "comes=\"2\"\nstays=\"2\""
		pod.Spec.NodeName = "n1"
		pod.Spec.Containers[0].Image = "image:2"
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](10)
		pod.Spec.Tolerations = []corev1.Toleration{
			{Key: "a"},
			{Key: "lost", TolerationSeconds: ptr.To[int64](600)},
			{Key: "two", TolerationSeconds: ptr.To[int64](1)},
			{Key: "super"},
			{Key: "b"},
			{Key: "two", TolerationSeconds: ptr.To[int64](2)},
		}
		pod.Spec.Volumes = file("metadata.annotations['downward.tenancy.x-k8s.io/0']")
	})
	require.Empty(t, cmp.Diff(want, superPod))
}

// FuzzSuperPod lets a tenant write anything.
// TestSuperPodPriorityClass: the policy maps the tenant's class and priority, and nothing else goes down.
func TestSuperPodPriorityClass(t *testing.T) {
	t.Parallel()
	rules := kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.PriorityClasses = []tenancyv1alpha1.PriorityClassRule{{Name: "high", MinPriority: ptr.To[int32](1), SuperClusterClass: "pool-high"}}
	})
	for want, class := range map[string]string{"pool-high": "high", "": "system-node-critical"} {
		superPod := &corev1.Pod{}
		podspec.SuperPod(kindtest.TenantPod(func(pod *corev1.Pod) {
			pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = class, ptr.To[int32](2000001000), ptr.To(corev1.PreemptLowerPriority)
		}), superPod, kindtest.OwnerOf("pod-uid"), &kind.Rules{Policy: rules}, &podspec.PodEnvironment{})
		require.Equal(t, want, superPod.Spec.PriorityClassName)
		require.Nil(t, superPod.Spec.Priority)
		require.Nil(t, superPod.Spec.PreemptionPolicy)
	}
}

func FuzzSuperPod(f *testing.F) {
	f.Add([]byte{}, `{}`)
	f.Add([]byte{}, `{"spec":{"nodeName":"n","volumes":[{"projected":{"sources":[{"serviceAccountToken":{"path":"t"}},{}]}},{"projected":null}]}}`)
	f.Add([]byte{}, `{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":null,"namespaceSelector":{}}]}}}}`)
	f.Add([]byte{}, `{"spec":{"containers":[{"env":[{"valueFrom":{}},{"valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['"}}}],"envFrom":[{}]}]}}`)
	f.Add([]byte{}, `{"metadata":{"labels":{"a":"b"}},"spec":{"volumes":[{"downwardAPI":{"items":[{"fieldRef":{"fieldPath":"metadata.labels"}},{"fieldRef":{"fieldPath":"metadata.annotations['']"}},{}]}}]}}`)
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		pod := &corev1.Pod{}
		if len(data) > 0 {
			randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Fill(&pod.Spec)
		}
		if err := json.Unmarshal([]byte(text), pod); err != nil {
			return
		}
		checkSuperPod(t, pod)
	})
}

// TestSuperPodOfAnySpec is FuzzSuperPod with specs that are random and the same every time.
func TestSuperPodOfAnySpec(t *testing.T) {
	t.Parallel()
	for seed := range int64(100) {
		pod := &corev1.Pod{}
		randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Fill(&pod.Spec)
		checkSuperPod(t, pod)
	}
}

// checkSuperPod checks what holds for every pod.
func checkSuperPod(t *testing.T, pod *corev1.Pod) {
	untouched := pod.DeepCopy()
	owner := kindtest.OwnerOf("pod-uid")
	superPod := &corev1.Pod{}
	podspec.SuperPod(pod, superPod, owner, &kind.Rules{Opaque: []string{"", "a"}}, &podspec.PodEnvironment{})
	require.Empty(t, cmp.Diff(untouched, pod), "the tenant's pod was changed")
	require.Empty(t, superPod.Spec.NodeName)
	require.False(t, *superPod.Spec.AutomountServiceAccountToken)
	for _, volume := range superPod.Spec.Volumes {
		if volume.DownwardAPI != nil {
			for _, file := range volume.DownwardAPI.Items {
				if ref := file.FieldRef; ref != nil {
					require.NotRegexp(t, `^metadata\.(labels(\['.*'\])?|annotations|namespace|uid)$`, ref.FieldPath, "of the super pod's own")
				}
			}
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			require.Nil(t, source.ServiceAccountToken)
			require.Nil(t, source.PodCertificate)
		}
	}
	actual, owned := tenancy.GetOwner(superPod)
	require.True(t, owned)
	require.Equal(t, owner, actual)
	for _, uid := range []types.UID{"", "super-uid"} {
		superPod.UID = uid
		again := superPod.DeepCopy()
		podspec.SuperPod(pod, again, owner, &kind.Rules{Opaque: []string{"", "a"}}, &podspec.PodEnvironment{})
		require.Empty(t, cmp.Diff(superPod, again), "a second translation differs")
	}
}

func BenchmarkSuperPod(b *testing.B) {
	for _, containers := range []int{1, 10} {
		pod := kindtest.TenantPod(func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "web", "pod-template-hash": "abc"}
			for i := range containers - 1 {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Env: []corev1.EnvVar{kindtest.FieldEnv("metadata.namespace")}})
			}
		})
		owner := kindtest.OwnerOf("pod-uid")
		superPod := &corev1.Pod{}
		podspec.SuperPod(pod, superPod, owner, nil, &podspec.PodEnvironment{})
		superPod.UID = "super-uid"
		b.Run(fmt.Sprintf("create/containers=%d", containers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				podspec.SuperPod(pod, &corev1.Pod{}, owner, nil, &podspec.PodEnvironment{})
			}
		})
		b.Run(fmt.Sprintf("update/containers=%d", containers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				podspec.SuperPod(pod, superPod.DeepCopy(), owner, nil, &podspec.PodEnvironment{})
			}
		})
	}
}

// TestPolicyOfMetadata lets an operator allow domains for one kind. The deny-list and the VirtualCluster still hold.
func TestPolicyOfMetadata(t *testing.T) {
	t.Parallel()
	spec := policy.Default().Spec().DeepCopy()
	spec.Metadata.Annotations = []string{"*.kubernetes.io", "prometheus.io"}
	spec.Metadata.ByResource = []tenancyv1alpha1.ResourceMetadata{{Resource: "pods", Labels: []string{"example.org"}}}
	allowing, err := policy.New("allowing", spec)
	require.NoError(t, err)
	metadata := map[string]string{"example.org/team": "a", "prometheus.io/scrape": "true", "pod-security.kubernetes.io/enforce": "privileged", "secret": "s"}
	pod := kindtest.TenantPod(nil)
	pod.Labels, pod.Annotations = metadata, metadata
	superPod := &corev1.Pod{}
	podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), &kind.Rules{Policy: allowing, Opaque: []string{"sec"}}, &podspec.PodEnvironment{})
	require.Equal(t, "example.org/team", superPod.Annotations["tenancy.x-k8s.io/copied-labels"])
	require.Equal(t, "prometheus.io/scrape", superPod.Annotations["tenancy.x-k8s.io/copied-annotations"])

	// Another policy takes back what this one allowed.
	superPod.UID = "super-uid"
	podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{})
	require.NotContains(t, superPod.Labels, "example.org/team")
	require.NotContains(t, superPod.Annotations, "prometheus.io/scrape")
	require.Equal(t, "s", superPod.Labels["secret"])
}

// TestMonstrousResize lets a tenant resize a container to more than can be written out.
func TestMonstrousResize(t *testing.T) {
	t.Parallel()
	superPod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: builders.Resources("memory", "1Mi"), Limits: builders.Resources("memory", "2Mi")}
	})
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = builders.Resources("memory", "1e1000000")
	})
	podspec.ResizePod(pod, superPod)
	for _, list := range []corev1.ResourceList{superPod.Spec.Containers[0].Resources.Requests, superPod.Spec.Containers[0].Resources.Limits} {
		require.EqualValues(t, 1<<53, list.Memory().Value(), "a default limit is raised to the request")
	}
}

const labelsUp = "tenancy.x-k8s.io/labels-from-super"

// FuzzMetaUp lets labels come up and go down again and again: after one turn nothing changes, and no key of ours in the
// tenant is written or removed.
func FuzzMetaUp(f *testing.F) {
	f.Add("net.io/ip", "1", "mine", "2", "net.io/ip", "net.io/")
	f.Add("scheduler.tenancy.x-k8s.io/superCluster", "r2", "net.io/a", "0", "net.io/a,,x", "s")
	f.Fuzz(func(t *testing.T, superKey, superValue, tenantKey, tenantValue, list, prefix string) {
		const ours = "scheduler.tenancy.x-k8s.io/superCluster"
		tenantPod := builders.Pod("web", "p").Obj()
		tenantPod.Labels = map[string]string{tenantKey: tenantValue, ours: "r1"}
		tenantPod.Annotations = map[string]string{labelsUp: list}
		rules := &kind.Rules{Transparent: []string{prefix}}
		superPod := &corev1.Pod{}
		podspec.SuperPod(tenantPod, superPod, kindtest.OwnerOf("uid"), rules, &podspec.PodEnvironment{})
		superPod.UID = "super"
		if _, ofTenant := superPod.Labels[superKey]; !ofTenant {
			superPod.Labels[superKey] = superValue
		}
		turn := func() (*corev1.Pod, *corev1.Pod) {
			kind.MetaUp(superPod, tenantPod, rules.Transparent)
			podspec.SuperPod(tenantPod, superPod, kindtest.OwnerOf("uid"), rules, nil)
			return tenantPod.DeepCopy(), superPod.DeepCopy()
		}
		// What a tenant has written in the list may take two turns.
		turn()
		turn()
		up, down := turn()
		againUp, againDown := turn()
		require.Empty(t, cmp.Diff(up, againUp))
		require.Empty(t, cmp.Diff(down, againDown))
		require.Equal(t, "r1", tenantPod.Labels[ours])
	})
}
