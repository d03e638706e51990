package podscheduler

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

var update = flag.Bool("update", false, "write the table of docs/pod-scheduling.md")

// What the pod view makes of a field.
const (
	kept       = "kept"
	translated = "translated"
	leftOut    = "left out"
)

// specFields are the fields of a PodSpec: what the view makes of them, and who answers.
var specFields = []struct {
	field, view, answer string
	// set sets the field. Nil where the view is told to leave out what cannot matter to scheduling.
	set func(*corev1.PodSpec)
}{
	{"nodeSelector", kept, "NodeGroups. Labels that the tenant gives to its own Nodes become names of Nodes first, as in affinity", func(s *corev1.PodSpec) { s.NodeSelector = zone("a") }},
	{"affinity", translated, "NodeGroups, InterPodAffinity: see above", func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms("a", corev1.LabelTopologyZone)}}
	}},
	{"tolerations", translated, "NodeGroups for nodes, TaintToleration for super clusters; what the policy does not list is left out", func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{{Key: "k"}} }},
	{"topologySpreadConstraints", translated, "NodeGroups, PodTopologySpread: see above", func(s *corev1.PodSpec) {
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway}}
	}},
	{"containers", translated, "names, restart policies and requests, as room of the namespace: NodeResourcesFit; their size: NodeGroups. Ports and images are left out", func(s *corev1.PodSpec) {
		s.Containers = []corev1.Container{{Name: "c", Resources: builders.Requests("cpu", "1")}}
	}},
	{"initContainers", translated, "as containers", func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{{Name: "c", Resources: builders.Requests("cpu", "1")}}
	}},
	{"resources", translated, "as requests of the first container", func(s *corev1.PodSpec) {
		s.Containers = []corev1.Container{{Name: "c"}}
		s.Resources = &corev1.ResourceRequirements{Requests: builders.Resources("cpu", "1")}
	}},
	{"overhead", translated, "as room of the namespace: NodeResourcesFit", func(s *corev1.PodSpec) { s.Overhead = builders.Resources("cpu", "1") }},
	{"nodeName", translated, "the super cluster of that node; a pod with a node is not scheduled", func(s *corev1.PodSpec) { s.NodeName = "r1.node" }},
	{"schedulerName", kept, "the profile", func(s *corev1.PodSpec) { s.SchedulerName = "s" }},
	{"priority", kept, "PrioritySort, DefaultPreemption: among the tenant's own pods", func(s *corev1.PodSpec) { s.Priority = ptr.To(int32(7)) }},
	{"priorityClassName", kept, "as priority", func(s *corev1.PodSpec) { s.PriorityClassName = "high" }},
	{"preemptionPolicy", kept, "DefaultPreemption", func(s *corev1.PodSpec) { s.PreemptionPolicy = ptr.To(corev1.PreemptNever) }},
	{"schedulingGates", kept, "SchedulingGates", func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }},
	{"terminationGracePeriodSeconds", kept, "DefaultPreemption", func(s *corev1.PodSpec) { s.TerminationGracePeriodSeconds = ptr.To(int64(7)) }},
	{"volumes", kept, "VolumeHome, VolumeBinding: claims alone, until the pod is bound. Others are for the super cluster", func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	}},
	{"resourceClaims", kept, "refused, with condition PodScheduled and Event PolicyForbids: claims of devices are not synced", func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}} }},
	{"hostNetwork", leftOut, "the super scheduler, with the ports; the TenantPolicy allows it or not", func(s *corev1.PodSpec) { s.HostNetwork = true }},
	{"os", leftOut, "the super scheduler's kubelet; select nodes by kubernetes.io/os", func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Linux} }},
	{"runtimeClassName", leftOut, "the super cluster; its overhead and node selector are in the fields above", func(s *corev1.PodSpec) { s.RuntimeClassName = ptr.To("gvisor") }},
	{"hostnameOverride", leftOut, "NodeGroups, as for other fields that older versions of Kubernetes lack, on volumes and containers", func(s *corev1.PodSpec) { s.HostnameOverride = ptr.To("h") }},
	{"schedulingGroup", leftOut, "nobody: PodGroups of scheduling.k8s.io are not read", func(s *corev1.PodSpec) {
		s.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
	}},
	{"ephemeralContainers", leftOut, "nobody: they request nothing", func(s *corev1.PodSpec) { s.EphemeralContainers = []corev1.EphemeralContainer{{}} }},
}

// notScheduling are the fields that say nothing about where a pod may run.
var notScheduling = []string{
	"restartPolicy", "activeDeadlineSeconds", "dnsPolicy", "serviceAccountName", "serviceAccount", "automountServiceAccountToken", "hostPID",
	"hostIPC", "shareProcessNamespace", "securityContext", "imagePullSecrets", "hostname", "subdomain", "hostAliases", "dnsConfig",
	"readinessGates", "enableServiceLinks", "setHostnameAsFQDN", "hostUsers", "evictionResponders",
}

// TestEveryFieldOfPodSpec: each field is in one row, and the view does what the row says.
func TestEveryFieldOfPodSpec(t *testing.T) {
	rows := map[string]int{}
	for _, field := range notScheduling {
		rows[field]++
	}
	for _, row := range specFields {
		rows[row.field]++
		t.Run(row.field, func(t *testing.T) {
			require.Equal(t, row.view, madeOf(t, row.field, row.set))
		})
	}
	want := map[string]int{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[corev1.PodSpec]()) {
		want[strings.Split(field.Tag.Get("json"), ",")[0]] = 1
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("fields with a row (-want +got):\n%s", diff)
	}
}

// madeOf returns what the view makes of a field: it is the same afterwards, another, or changes nothing.
func madeOf(t *testing.T, field string, set func(*corev1.PodSpec)) string {
	t.Helper()
	project := func(spec corev1.PodSpec) corev1.PodSpec {
		projected, err := view.TenantPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web"}, Spec: spec})
		require.NoError(t, err)
		return projected.(*corev1.Pod).Spec
	}
	of := func(spec corev1.PodSpec) any {
		for _, f := range reflect.VisibleFields(reflect.TypeFor[corev1.PodSpec]()) {
			if strings.Split(f.Tag.Get("json"), ",")[0] == field {
				return reflect.ValueOf(spec).FieldByIndex(f.Index).Interface()
			}
		}
		return nil
	}
	var plain, spec corev1.PodSpec
	set(&spec)
	before := *spec.DeepCopy()
	projected := project(spec)
	switch {
	case cmp.Equal(project(plain), projected):
		return leftOut
	case cmp.Equal(of(before), of(projected)):
		return kept
	}
	return translated
}

// requiring returns a change to a pod with one required node affinity term.
func requiring(key string, operator corev1.NodeSelectorOperator, values ...string) func(*corev1.Pod) {
	return affine(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}})
}

func affine(term ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: term}}}
	}
}

func namedNode(operator corev1.NodeSelectorOperator, name string) func(*corev1.Pod) {
	return affine(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: operator, Values: []string{name}}}})
}

func preferring(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}},
		}}}}
	}
}

func tolerating(key string, change func(*corev1.Pod)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		change(pod)
		pod.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
}

func restartingAll(pod *corev1.Pod) {
	pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
}

// demandRows are what a pod may demand of its node, in a pool of three super clusters. Of those that would do, r1 is
// before r2.
var demandRows = []struct {
	demand string
	change func(*corev1.Pod)
	// want is the super cluster, or what the pod is told where there is none.
	want string
}{
	{"nodeSelector zone=b", selecting("zone", "b"), "r2"},
	{"nodeSelector zone=d", selecting("zone", "d"), "3 have no node with zone=d"},
	{"nodeSelector, zone=b and gen=3: no one node has both", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b", "gen": "3"} }, "3 have no node with gen=3 and with zone=b"},
	{"In (b, d)", requiring("zone", corev1.NodeSelectorOpIn, "b", "d"), "r2"},
	{"NotIn (a)", requiring("zone", corev1.NodeSelectorOpNotIn, "a"), "r2"},
	{"Exists", requiring("disk", corev1.NodeSelectorOpExists), "r1"},
	{"DoesNotExist", requiring("disk", corev1.NodeSelectorOpDoesNotExist), "r2"},
	{"Gt 2", requiring("gen", corev1.NodeSelectorOpGt, "2"), "r2"},
	{"Lt 2", requiring("gen", corev1.NodeSelectorOpLt, "2"), "r1"},
	{"terms: one of them", affine(
		corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"d"}}}},
		corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}},
	), "r2"},
	{"a term without requirements", affine(corev1.NodeSelectorTerm{}), "3 have no node that matches its node affinity"},
	{"matchFields metadata.name In (r2.node-7)", namedNode(corev1.NodeSelectorOpIn, "r2.node-7"), "r2"},
	{"matchFields metadata.name NotIn (r1.node-7)", namedNode(corev1.NodeSelectorOpNotIn, "r1.node-7"), "r1"},
	{"host name In (r2.node-7)", requiring(corev1.LabelHostname, corev1.NodeSelectorOpIn, "r2.node-7"), "r2"},
	{"nodeSelector with a host name", selecting(corev1.LabelHostname, "r2.node-7"), "r2"},
	{"a host name that no super cluster has", selecting(corev1.LabelHostname, "node-7"), "3 have no node named node-7"},
	{"the super cluster's own label", selecting(tenancyv1alpha1.LabelSuperClusterID, "r2"), "r2"},
	{"a taint that is not tolerated", requiring("gpu", corev1.NodeSelectorOpExists), "2 have no node with label gpu, 1 has no node for it whose taints it tolerates (dedicated)"},
	{"a taint that is tolerated", tolerating("dedicated", requiring("gpu", corev1.NodeSelectorOpExists)), "r3"},
	{"preferred: gen=2", preferring("gen", "2"), "r2"},
	{"nodeSelector rack=1, which the tenant has written onto its Node r2.node-7", selecting("rack", "1"), "r2"},
	{"rack=2, which the tenant has written onto none", selecting("rack", "2"), "no Node of this control plane has label rack=2"},
	{"hostnameOverride, which r1 lacks", func(pod *corev1.Pod) { pod.Spec.HostnameOverride = ptr.To("h") }, "r2"},
	{"an action that all lack", restartingAll, "1 has Kubernetes 1.34.10, and spec.containers[0].restartPolicyRules[0].action needs 1.36, " +
		"1 has Kubernetes 1.35.4, and spec.containers[0].restartPolicyRules[0].action needs 1.36, 1 has no node for it whose taints it tolerates (dedicated)"},
	{"larger than any node", func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = builders.Requests("cpu", "5") }, "2 have no node large enough, 1 has no node for it whose taints it tolerates (dedicated)"},
}

// demandBed is a tenant with the super clusters that demandRows are about.
func demandBed(t *testing.T) *tenantControlPlane {
	t.Helper()
	c := newTenantWith(t, func(c *tenantControlPlane) {
		c.tenantNodes, c.api = true, newAPI()
		_, err := c.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "r2.node-7", Labels: map[string]string{tenancyv1alpha1.LabelTenantNode: "true", "rack": "1"},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	})
	publish := func(version string, nodes ...nodegroups.Node) func(*corev1.Node) {
		for i := range nodes {
			nodes[i].Allocatable = slice.Amounts{corev1.ResourceCPU: 4000}
		}
		return func(node *corev1.Node) {
			node.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(nodegroups.Of(nodes))}
			node.Status.NodeInfo.KubeletVersion = version
		}
	}
	c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.NodeSelectorKeys = append(spec.Pods.NodeSelectorKeys, "zone", "gen", "disk", "gpu")
		spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "dedicated"})
	}))
	c.cluster("r1", publish("v1.34.10", nodegroups.Node{Labels: map[string]string{"zone": "a", "gen": "1", "disk": "ssd"}}))
	c.cluster("r2", publish("v1.35.4", nodegroups.Node{Labels: map[string]string{"zone": "b", "gen": "2"}}, nodegroups.Node{Labels: map[string]string{"zone": "c", "gen": "3"}}))
	c.cluster("r3", publish("", nodegroups.Node{
		Labels: map[string]string{"zone": "c", "gen": "5", "gpu": "yes"},
		Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
	}))
	for _, name := range []string{"r1", "r2", "r3"} {
		c.place("web", name, "1000")
	}
	return c
}

// TestDemands: each pod goes to the super cluster of its row, or is told why there is none.
func TestDemands(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := demandBed(t)
		for i, row := range demandRows {
			name := fmt.Sprintf("pod-%d", i)
			c.create("web", name, "1m", row.change)
			outcome := ""
			require.Eventually(t, func() bool {
				outcome = c.get("web", name).Annotations[schedulerv1alpha1.AnnotationSuperCluster]
				if outcome == "" {
					outcome = c.refused(name)
				}
				return outcome != "" && outcome != nodesUnread
			}, patience, patience/4000)
			require.Equal(t, row.want, strings.TrimPrefix(outcome, "0/3 super clusters are available: "), row.demand)
		}
	})
}

// TestPodSchedulingPage holds docs/pod-scheduling.md to the table: -update writes it.
func TestPodSchedulingPage(t *testing.T) {
	const page, begin, end = "../../../docs/pod-scheduling.md", "<!-- begin: go test ./internal/scheduling/podscheduler -run PodSchedulingPage -update -->\n", "<!-- end -->\n"
	var text strings.Builder
	text.WriteString("| field | in the view | who answers |\n|---|---|---|\n")
	for _, row := range specFields {
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", row.field, row.view, row.answer)
	}
	fmt.Fprintf(&text, "| %s | left out | they say nothing about where a pod may run |\n", "`"+strings.Join(notScheduling, "`, `")+"`")
	was, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(was), begin)
	require.True(t, found, "the page has the mark %s", begin)
	_, tail, found := strings.Cut(rest, end)
	require.True(t, found, "the page has the mark %s", end)
	want := head + begin + text.String() + end + tail
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644)) //nolint:gosec // a page of the repository
		return
	}
	if diff := cmp.Diff(want, string(was)); diff != "" {
		t.Errorf("the page (-want +got):\n%s", diff)
	}
}
