package skew_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"

	"github.com/superpool/superpool/internal/skew"
)

func container(change func(*corev1.Container)) []corev1.Container {
	c := corev1.Container{Name: "c"}
	change(&c)
	return []corev1.Container{{Name: "before"}, c}
}

func restarting(policy corev1.ContainerRestartPolicy, actions ...corev1.ContainerRestartRuleAction) func(*corev1.Container) {
	return func(c *corev1.Container) {
		c.RestartPolicy = &policy
		for _, action := range actions {
			c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{Action: action})
		}
	}
}

func fromFile(c *corev1.Container) {
	c.Env = []corev1.EnvVar{{Name: "a"}, {Name: "b", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{Key: "k"}}}}
}

var needs = []struct {
	name string
	gate featuregate.Feature
	spec corev1.PodSpec
	want string
}{
	{name: "nothing", spec: corev1.PodSpec{Containers: container(func(*corev1.Container) {}), Volumes: []corev1.Volume{{Name: "v"}}}},
	{name: "a sidecar", spec: corev1.PodSpec{InitContainers: container(restarting(corev1.ContainerRestartPolicyAlways))}},
	{name: "host name", gate: features.HostnameOverride, spec: corev1.PodSpec{HostnameOverride: new("web")}, want: "1.35 spec.hostnameOverride"},
	{
		name: "image", gate: features.ImageVolume, want: "1.35 spec.volumes[1].image",
		spec: corev1.PodSpec{Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}}}},
	},
	{name: "file", gate: features.EnvFiles, spec: corev1.PodSpec{Containers: container(fromFile)}, want: "1.35 spec.containers[1].env[1].valueFrom.fileKeyRef"},
	{name: "file, init", gate: features.EnvFiles, spec: corev1.PodSpec{InitContainers: container(fromFile)}, want: "1.35 spec.initContainers[1].env[1].valueFrom.fileKeyRef"},
	{
		name: "restart policy", gate: features.ContainerRestartRules, want: "1.35 spec.containers[1].restartPolicy",
		spec: corev1.PodSpec{Containers: container(restarting(corev1.ContainerRestartPolicyAlways))},
	},
	{
		name: "restart policy, init", gate: features.ContainerRestartRules, want: "1.35 spec.initContainers[1].restartPolicy",
		spec: corev1.PodSpec{InitContainers: container(restarting(corev1.ContainerRestartPolicyNever, corev1.ContainerRestartRuleActionRestart))},
	},
	{
		name: "rules alone", gate: features.ContainerRestartRules, want: "1.35 spec.containers[1].restartPolicyRules",
		spec: corev1.PodSpec{Containers: container(func(c *corev1.Container) { c.RestartPolicyRules = []corev1.ContainerRestartRule{{}} })},
	},
	{
		name: "restart all", gate: features.RestartAllContainersOnContainerExits, want: "1.36 spec.containers[1].restartPolicyRules[1].action",
		spec: corev1.PodSpec{Containers: container(restarting(corev1.ContainerRestartPolicyNever,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)), HostnameOverride: new("web")},
	},
	{
		name: "rules of a sidecar", gate: features.RestartAllContainersOnContainerExits, want: "1.36 spec.initContainers[1].restartPolicyRules",
		spec: corev1.PodSpec{InitContainers: container(restarting(corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartRuleActionRestart))},
	},
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	for _, tc := range needs {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := skew.Needs(&tc.spec)
			require.Equal(t, tc.want, got.String())
			require.Equal(t, got, skew.ParseNeed(got.String()))
			older, same := skew.Version{Text: "v1.34.10", Minor: 34}, skew.Version{Text: "v1.40.0", Minor: got.Minor}
			require.Equal(t, tc.want == "", older.Lacks(got) == "")
			require.Empty(t, same.Lacks(got))
			require.Empty(t, skew.Version{}.Lacks(got), "an unknown version")
		})
	}
	require.Equal(t, "Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35", skew.Version{Text: "v1.34.10", Minor: 34}.Lacks(skew.ParseNeed("1.35 spec.hostnameOverride")))
	for _, text := range []string{"", "1.35", "1.35 ", "x y", "1.-1 y", "1.99999999999 y"} {
		require.Empty(t, skew.ParseNeed(text), text)
	}
}

// otherGates came to be on by default in the window, and need no row of Needs.
const otherGates = `
of fields that do not go down, or that policies forbid:
ClusterTrustBundle ClusterTrustBundleProjection PodCertificateRequest
DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints DRAExtendedResource DRAFractionalCapacityRange
DRAPartitionableDevices DRAResourceClaimGranularStatusAuthorization

of changes to a pod that runs, which its super cluster refuses in words:
InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers

of status, of other kinds, and of programs, which no field of a pod asks for:
AllowUnsafeMalformedObjectDeletion AtomicFIFO AuthorizePodWebsocketUpgradeCreatePermission
CRDObservedGenerationTracking CSIServiceAccountTokenSecrets ClearingNominatedNodeNameAfterBinding
ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz ConcurrentWatchObjectDecode
ConstrainedImpersonation CustomCPUCFSQuotaPeriod DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
EtcdRangeStream ExcludeAdmissionWebhookVirtualResources ExtendWebSocketsToKubelet HPAConfigurableTolerance
HPAGeneration HPAOptimizedSelectorStore HPAScaleToZero HugepageAwareEviction InOrderInformersBatchProcess
InformerResourceVersion KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletInUserNamespace
ManifestBasedAdmissionControlConfig MaxUnavailableStatefulSet MemoryQoS MutableCSINodeAllocatableCount
MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy
NFTablesNetlink NodeControllerLeaseCircuitBreaker NodeDeclaredFeatures NodeLogQuery NominatedNodeNameForExpectation
OpportunisticBatching PLEGOnDemandRelist PersistentVolumeClaimUnusedSinceTime PodLevelResourcesFixDefaulting
PodLevelResourcesFixKubeletQOSClass PodTopologyLabelsAdmission PodsAPI RelaxedServiceNameValidation
ReloadKubeletClientCAFile ResourceHealthStatus ResourceHealthStatusMessage SELinuxMount ServiceCIDRStatusFieldWiping
StaleControllerConsistencyDaemonSet StaleControllerConsistencyHPA StaleControllerConsistencyJob
StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet StorageCapacityScoring
StorageVersionMigrator StrictIPCIDRValidation StructuredAuthenticationConfigurationJWKSMetrics
UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO VolumeLimitScaling WatchCacheInitializationPostStartHook
WatchListClient WatchListCompression WebhookRoundTripLoadBalancing`

// TestNeedsOfAllGates: somebody has decided about each feature gate that came to be on by default since the oldest
// version that Superpool works with, and Needs has no row of an older one.
func TestNeedsOfAllGates(t *testing.T) {
	t.Parallel()
	decided := map[string]uint{}
	for _, tc := range needs {
		if tc.want != "" {
			decided[string(tc.gate)] = skew.ParseNeed(tc.want).Minor
		}
	}
	others := strings.Fields(otherGates)
	want, got := map[string]uint{}, maps.Clone(decided)
	for gate, specs := range utilfeature.DefaultMutableFeatureGate.GetAllVersioned() {
		at := slices.IndexFunc(specs, func(spec featuregate.FeatureSpec) bool { return spec.Default })
		if at < 0 || specs[at].Version.Minor()+skew.Minors <= skew.Ours() || specs[at].Version.Major() != 1 {
			continue
		}
		want[string(gate)] = specs[at].Version.Minor()
		if slices.Contains(others, string(gate)) {
			got[string(gate)] = want[string(gate)]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gates and since when (-all, +decided):\n%s", diff)
	}
}
