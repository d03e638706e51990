package podspec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// host is a node of a super cluster with a host name.
func host(name, hostname string) client.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: hostname}}}
}

func requirement(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

// where returns a term of requirements about labels.
func where(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

// named returns a term of requirements about fields.
func named(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: requirements}
}

const (
	in, notIn, exists, doesNotExist = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist
	hostKey, nameKey, zoneKey       = corev1.LabelHostname, metav1.ObjectNameField, corev1.LabelTopologyZone
)

// TestNodeNames translates every operator, for nodes of this super cluster, of another and of both.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 70)
	nodes := kindtest.Cache{kind.Node: {host("a", "a"), host("b", "host-b"), host("c", ""), host(long+"1", "long-1"), host(long+"2", "long-2")}}
	longHost := ("r1." + long)[:validation.LabelValueMaxLength]
	nowhere := []corev1.NodeSelectorTerm{{}}
	zone := requirement(zoneKey, in, "z1")
	for _, tc := range []struct {
		name     string
		pinned   string
		selector map[string]string
		required []corev1.NodeSelectorTerm
		// wantSelector and want are what they become; a nil want requires nothing.
		wantSelector map[string]string
		want         []corev1.NodeSelectorTerm
	}{
		{name: "nothing"},
		{name: "of other labels", selector: map[string]string{"disk": "ssd"}, wantSelector: map[string]string{"disk": "ssd"}, required: []corev1.NodeSelectorTerm{where(zone)}, want: []corev1.NodeSelectorTerm{where(zone)}},

		{name: "selector", selector: map[string]string{hostKey: "r1.b"}, wantSelector: map[string]string{hostKey: "host-b"}},
		{name: "selector of another", selector: map[string]string{hostKey: "r2.a"}, want: nowhere},
		{name: "selector of a name that is no tenant's", selector: map[string]string{hostKey: "a"}, want: nowhere},
		{name: "selector of a node without the label", selector: map[string]string{hostKey: "r1.c"}, wantSelector: map[string]string{hostKey: "c"}},
		{name: "selector of a node that is gone", selector: map[string]string{hostKey: "r1.gone"}, wantSelector: map[string]string{hostKey: "gone"}},
		{name: "selector of two nodes", selector: map[string]string{hostKey: longHost}, want: []corev1.NodeSelectorTerm{where(requirement(hostKey, in, "long-1", "long-2"))}},
		{
			name: "selector of two nodes, and a term", selector: map[string]string{hostKey: longHost}, required: []corev1.NodeSelectorTerm{where(zone), {}},
			want: []corev1.NodeSelectorTerm{where(zone, requirement(hostKey, in, "long-1", "long-2"))},
		},
		{name: "selector of another, and a term", selector: map[string]string{hostKey: "r2.a"}, required: []corev1.NodeSelectorTerm{where(zone)}, want: nowhere},

		{name: "In", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, in, "r1.a", "r2.a", "r1.b"))}, want: []corev1.NodeSelectorTerm{where(requirement(hostKey, in, "a", "host-b"))}},
		{name: "In of another", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, in, "r2.a"))}, want: nowhere},
		{name: "In of another, or a zone", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, in, "r2.a")), where(zone)}, want: []corev1.NodeSelectorTerm{where(zone)}},
		{name: "In of another, and a zone", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, in, "r2.a"), zone)}, want: nowhere},
		{name: "NotIn", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, "r1.a", "r2.b"))}, want: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, "a"))}},
		{name: "NotIn of another", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, "r2.a"))}},
		{name: "NotIn of another, and a zone", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, "r2.a"), zone)}, want: []corev1.NodeSelectorTerm{where(zone)}},
		{name: "NotIn of another, or a zone", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, "r2.a")), where(zone)}},
		{name: "NotIn of nodes of one name", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, longHost))}, want: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, "long-1", "long-2"))}},
		{name: "Exists", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, exists))}, want: []corev1.NodeSelectorTerm{where(requirement(hostKey, exists))}},
		{name: "DoesNotExist", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, doesNotExist))}, want: []corev1.NodeSelectorTerm{where(requirement(hostKey, doesNotExist))}},
		{name: "Gt", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, corev1.NodeSelectorOpGt, "3"))}, want: nowhere},
		{name: "Lt", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, corev1.NodeSelectorOpLt, "3"))}, want: nowhere},
		{name: "an empty term", required: []corev1.NodeSelectorTerm{{}}, want: nowhere},
		{name: "an empty term, or a zone", required: []corev1.NodeSelectorTerm{{}, where(zone)}, want: []corev1.NodeSelectorTerm{where(zone)}},

		{name: "field In, as of a DaemonSet", required: []corev1.NodeSelectorTerm{named(requirement(nameKey, in, "r1.b"))}, want: []corev1.NodeSelectorTerm{named(requirement(nameKey, in, "b"))}},
		{name: "field In of a name that is cut", required: []corev1.NodeSelectorTerm{named(requirement(nameKey, in, "r1."+long+"1"))}, want: []corev1.NodeSelectorTerm{named(requirement(nameKey, in, long+"1"))}},
		{name: "field In of another", required: []corev1.NodeSelectorTerm{named(requirement(nameKey, in, "r2.b"))}, want: nowhere},
		{name: "field NotIn", required: []corev1.NodeSelectorTerm{named(requirement(nameKey, notIn, "r1.b"))}, want: []corev1.NodeSelectorTerm{named(requirement(nameKey, notIn, "b"))}},
		{name: "field NotIn of another", required: []corev1.NodeSelectorTerm{named(requirement(nameKey, notIn, "r2.b"))}},

		{name: "super cluster", selector: map[string]string{tenancyv1alpha1.LabelSuperClusterID: "r1", tenancyv1alpha1.LabelTenantNode: "true"}},
		{name: "another super cluster", selector: map[string]string{tenancyv1alpha1.LabelSuperClusterID: "r2"}, want: nowhere},
		{name: "super cluster In", required: []corev1.NodeSelectorTerm{where(requirement(tenancyv1alpha1.LabelSuperClusterID, in, "r1", "r2"), zone)}, want: []corev1.NodeSelectorTerm{where(zone)}},
		{name: "super cluster NotIn", required: []corev1.NodeSelectorTerm{where(requirement(tenancyv1alpha1.LabelSuperClusterID, notIn, "r1"))}, want: nowhere},
		{name: "super cluster Exists", required: []corev1.NodeSelectorTerm{where(requirement(tenancyv1alpha1.LabelSuperClusterID, exists))}},
		{name: "super cluster DoesNotExist", required: []corev1.NodeSelectorTerm{where(requirement(tenancyv1alpha1.LabelSuperClusterID, doesNotExist))}, want: nowhere},

		{name: "pinned", pinned: "r1.b", want: []corev1.NodeSelectorTerm{named(requirement(nameKey, in, "b"))}},
		{name: "pinned to another", pinned: "r2.b", want: nowhere},
		{
			name: "pinned, and terms", pinned: "r1.b", required: []corev1.NodeSelectorTerm{where(zone), named(requirement(nameKey, in, "r1.a"))},
			want: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{zone}, MatchFields: []corev1.NodeSelectorRequirement{requirement(nameKey, in, "b")}},
				named(requirement(nameKey, in, "a"), requirement(nameKey, in, "b")),
			},
		},
		{name: "pinned, and nowhere", pinned: "r1.b", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, in, "r2.a"))}, want: nowhere},
		{name: "pinned, and everywhere", pinned: "r1.b", required: []corev1.NodeSelectorTerm{where(requirement(hostKey, notIn, "r2.a"))}, want: []corev1.NodeSelectorTerm{named(requirement(nameKey, in, "b"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := &corev1.PodSpec{NodeSelector: tc.selector}
			preferred := corev1.PreferredSchedulingTerm{Weight: 1}
			if tc.required != nil {
				preferred.Preference = *tc.required[0].DeepCopy()
				spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: tc.required},
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{preferred},
				}}
			}
			podspec.NewNodeNames("r1", nodes).Translate(spec, tc.pinned)
			require.Empty(t, cmp.Diff(tc.wantSelector, spec.NodeSelector, kindtest.EmptyIsNil))
			var got []corev1.NodeSelectorTerm
			if spec.Affinity != nil && spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
				got = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
				require.NotEmpty(t, got, "an API server refuses a selector without terms")
			}
			require.Empty(t, cmp.Diff(tc.want, got, kindtest.EmptyIsNil))
			if spec.Affinity == nil {
				return
			}
			for _, left := range spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
				require.NotEmpty(t, len(left.Preference.MatchExpressions)+len(left.Preference.MatchFields), "an empty preference would prefer all nodes")
			}
		})
	}
}

// FuzzNodeNames holds the translation against kube-scheduler's own matching: a translated pod matches a super node
// where the tenant's matches the tenant's Node for it.
func FuzzNodeNames(f *testing.F) {
	f.Add("a", "b", "r1.a", "r2.b", uint8(0), "r1.a", false)
	f.Add("a", "b", "r1.a", "r1.b", uint8(1), "", true)
	f.Add(strings.Repeat("n", 80)+"1", strings.Repeat("n", 80)+"2", "r1."+strings.Repeat("n", 60), "", uint8(0), "", false)
	f.Add(strings.Repeat("n", 252), strings.Repeat("n", 251)+"m", "x", "", uint8(2), "", false)
	f.Add("5", "7", "3", "", uint8(4), "", false)
	operators := [...]corev1.NodeSelectorOperator{in, notIn, exists, doesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt}
	f.Fuzz(func(t *testing.T, one, two, first, second string, operator uint8, selected string, byField bool) {
		var superNodes []client.Object
		for i, name := range []string{one, two} {
			if len(validation.IsDNS1123Subdomain(name)) > 0 || i > 0 && one == two {
				t.Skip()
			}
			superNodes = append(superNodes, host(name, fmt.Sprintf("host-%d", i)))
		}
		op := operators[int(operator)%len(operators)]
		wanted := requirement(hostKey, op)
		switch op {
		case in, notIn:
			wanted.Values = []string{first, second}
			if byField {
				wanted.Key, wanted.Values = nameKey, []string{first}
			}
		case exists, doesNotExist:
		default:
			wanted.Values = []string{"3"}
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{where(wanted)}},
		}}}}
		if wanted.Key == nameKey {
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = []corev1.NodeSelectorTerm{named(wanted)}
		}
		if selected != "" {
			pod.Spec.NodeSelector = map[string]string{hostKey: selected}
		}
		superPod := pod.DeepCopy()
		podspec.NewNodeNames("r1", kindtest.Cache{kind.Node: superNodes}).Translate(&superPod.Spec, "")
		for _, object := range superNodes {
			superNode, _ := object.(*corev1.Node)
			tenantNode := kindtest.TenantNode(superNode)
			require.Equal(t, tenancy.NodeName("r1", superNode.Name), tenantNode.Name)
			before, errBefore := nodeaffinity.GetRequiredNodeAffinity(pod).Match(tenantNode)
			after, errAfter := nodeaffinity.GetRequiredNodeAffinity(superPod).Match(superNode)
			if errBefore != nil || errAfter != nil {
				continue // what no API server accepts
			}
			require.Equal(t, before, after, "%s: %v and %v", superNode.Name, pod.Spec.Affinity, superPod.Spec.Affinity)
		}
	})
}

// TestLabelsOfTheTenantsNodes: a pod that wants a label which its tenant has given to a Node goes to that node.
func TestLabelsOfTheTenantsNodes(t *testing.T) {
	t.Parallel()
	tenantNode := func(superCluster, name string, labels map[string]string) client.Object {
		labels[tenancyv1alpha1.LabelTenantNode], labels[tenancyv1alpha1.LabelSuperClusterID] = "true", superCluster
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: superCluster + "." + name, Labels: labels}}
	}
	for _, tc := range []struct {
		name     string
		mode     tenancyv1alpha1.NodesMode
		selector map[string]string
		want     *corev1.PodSpec
		told     string
		waits    bool
	}{
		{
			name: "one of its Nodes", mode: tenancyv1alpha1.NodesPlaced, selector: map[string]string{"disk": "ssd", zoneKey: "z"},
			want: &corev1.PodSpec{NodeSelector: map[string]string{zoneKey: "z", "pool": "small"}, Affinity: requiring(where(requirement(hostKey, in, "host-b")))},
		},
		{
			name: "no Node here has it, yet", mode: tenancyv1alpha1.NodesPlaced, selector: map[string]string{"disk": "tape"}, waits: true,
			told: "Warning FailedCreate Super cluster r1: no Node of this control plane has label disk=tape",
		},
		{
			name: "the policy's own selector stays, whatever its Nodes say", mode: tenancyv1alpha1.NodesPlaced, selector: map[string]string{"pool": "large", "disk": "ssd"},
			want: &corev1.PodSpec{NodeSelector: map[string]string{"pool": "small"}, Affinity: requiring(where(requirement(hostKey, in, "host-b")))},
		},
		{name: "Nodes that are there for its pods alone", selector: map[string]string{"disk": "ssd"}, told: "spec.nodeSelector[disk]: node label disk (is ssd) is not allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.Governed(t, interceptor.Funcs{})
			p.Tenant.Nodes = tc.mode
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.NodeSelector = map[string]string{"pool": "small"}
			}))
			p.SuperCache[kind.Node] = []client.Object{host("a", "a"), host("b", "host-b")}
			p.TenantCache[kind.Node] = []client.Object{
				tenantNode("r1", "a", map[string]string{"disk": "hdd", "pool": "large"}), tenantNode("r1", "b", map[string]string{"disk": "ssd", hostKey: "r1.a"}),
				tenantNode("r2", "b", map[string]string{"disk": "tape"}),
			}
			pod := kindtest.TenantPod(func(pod *corev1.Pod) { pod.Spec.NodeSelector = tc.selector })
			p.TenantCache[kind.Pod] = []client.Object{pod}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}, 20e9)
			wait := &engine.WaitError{}
			require.Equal(t, tc.waits, errors.As(err, &wait), "%v", err)
			require.Equal(t, tc.waits, err != nil, "%v", err)
			superPod := &corev1.Pod{}
			err = p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: pod.Name}, superPod)
			if tc.want == nil {
				require.Error(t, err)
				require.Contains(t, strings.Join(p.Told(), "\n"), tc.told)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want.NodeSelector, superPod.Spec.NodeSelector))
			require.Empty(t, cmp.Diff(tc.want.Affinity, superPod.Spec.Affinity))
		})
	}
}

// requiring returns the affinity to nodes that match one of terms.
func requiring(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}
