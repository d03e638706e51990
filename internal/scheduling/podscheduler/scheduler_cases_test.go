package podscheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// The topology keys of kube-scheduler's cases here: each of its nodes is a super cluster with one node.
const (
	keyZone   = corev1.LabelTopologyZone
	keyRegion = corev1.LabelTopologyRegion
	keyNode   = tenancyv1alpha1.LabelSuperClusterID
)

// stockCase is a case of kube-scheduler's integration tests over the view: each node is a super cluster with this one
// node, where every namespace has the room of the node.
type stockCase struct {
	// name is as in stockCaseNames.
	name string
	// nodes have cpus, 1 if they have no capacity.
	nodes []*corev1.Node
	// existing pods run on nodes, in namespace ns1 if they have none.
	existing []*st.PodWrapper
	pod      *st.PodWrapper
	// want are the nodes that the pod may go to.
	want []string
	// best are those of them that it goes to, nil: any.
	best []string
}

// schedulerCases are the cases that run over the view.
func schedulerCases() []stockCase {
	return slices.Concat(podAffinityCases(), taintCases(), nodeAffinityCases(), spreadCases(), resourceCases(), scoringCases())
}

func stockNode(name string, pairs ...string) *corev1.Node {
	node := st.MakeNode().Name(name)
	for i := 0; i < len(pairs); i += 2 {
		node.Label(pairs[i], pairs[i+1])
	}
	return node.Obj()
}

func withTaints(node *corev1.Node, taints ...corev1.Taint) *corev1.Node {
	node.Spec.Taints = taints
	return node
}

func stockPod(name string, pairs ...string) *st.PodWrapper {
	pod := st.MakePod().Name(name)
	for i := 0; i < len(pairs); i += 2 {
		pod.Label(pairs[i], pairs[i+1])
	}
	return pod
}

// term is a term of affinity or anti-affinity with requirements "key In a,b", "key NotIn a", "key Exists",
// "key DoesNotExist".
func term(topologyKey string, requirements ...string) corev1.PodAffinityTerm {
	selector := &metav1.LabelSelector{}
	for _, text := range requirements {
		parts := strings.Split(text, " ")
		requirement := metav1.LabelSelectorRequirement{Key: parts[0], Operator: metav1.LabelSelectorOperator(parts[1])}
		if len(parts) > 2 {
			requirement.Values = strings.Split(parts[2], ",")
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return corev1.PodAffinityTerm{LabelSelector: selector, TopologyKey: topologyKey}
}

func together(pod *st.PodWrapper, terms ...corev1.PodAffinityTerm) *st.PodWrapper {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
	return pod
}

func apartFrom(pod *st.PodWrapper, terms ...corev1.PodAffinityTerm) *st.PodWrapper {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
	return pod
}

// podAffinityCases have two nodes of one zone. A pod goes to the super cluster of those that it wants to be with, where
// kube-scheduler would let it go to any node of their region.
func podAffinityCases() []stockCase {
	const of, withNamespaces = "filters/TestInterPodAffinity/", "filters/TestInterPodAffinityWithNamespaceSelector/"
	a, b := "testnode-0", "anothernode-0"
	nodes := []*corev1.Node{
		stockNode(a, keyRegion, "r1", keyZone, "z11"), stockNode(b, keyRegion, "r1", keyZone, "z11"),
	}
	scan := func() *st.PodWrapper { return stockPod("fakename2", "service", "securityscan").Node(a) }
	s1 := func() *st.PodWrapper { return stockPod("fakename", "security", "S1") }
	own := func() *st.PodWrapper { return stockPod("fakename", "service", "securityscan") }
	inScan, inVirus := term(keyRegion, "service In securityscan,value2"), "service In antivirusscan,value2"
	pods := func(pods ...*st.PodWrapper) []*st.PodWrapper { return pods }
	otherNamespace := term(keyRegion, "service In securityscan,value2")
	otherNamespace.Namespaces = []string{"diff-namespace"}
	team1 := term(keyRegion, "service In securityscan")
	team1.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"team1"}}}}
	full := func() *st.PodWrapper {
		return stockPod("full", "foo", "", "bar", "a").Node(b).Req(map[corev1.ResourceName]string{"cpu": "1"})
	}
	incoming := func() *st.PodWrapper {
		return stockPod("incoming", "foo", "", "bar", "a").Req(map[corev1.ResourceName]string{"cpu": "1"})
	}
	return []stockCase{
		{of + "validates that Inter-pod-Affinity is respected if not matching", nodes, nil, together(s1(), term(keyRegion, "security In securityscan")), nil, nil},
		{of + "InterPodAffinity is respected if matching. requiredDuringSchedulingIgnoredDuringExecution with In operator matches existing pod", nodes, pods(scan()), together(s1(), inScan), []string{a}, nil},
		{of + "PodAffinity is respected if matching. requiredDuringSchedulingIgnoredDuringExecution with NOT IN operator matches existing pod", nodes, pods(scan()), together(s1(), term(keyRegion, "service NotIn securityscan3,value3")), []string{a}, nil},
		{of + "validates that inter-pod-affinity is respected when pods have different Namespaces", nodes, pods(scan().Namespace("ns2")), together(s1(), otherNamespace), nil, nil},
		{of + "Doesn't satisfy the PodAffinity because of unmatching labelSelector with the existing pod", nodes, pods(scan()), together(own(), term(keyRegion, inVirus)), nil, nil},
		{of + "validates that InterPodAffinity is respected if matching with multiple affinities in multiple RequiredDuringSchedulingIgnoredDuringExecution", nodes, pods(scan()), together(s1(), term(keyRegion, "service Exists", "wrongkey DoesNotExist"), term(keyRegion, "service In securityscan", "service NotIn WrongValue")), []string{a}, nil},
		{of + "The labelSelector requirements(items of matchExpressions) are ANDed, the pod cannot schedule onto the node because one of the matchExpression items doesn't match.", nodes, pods(scan()), together(s1(), term(keyRegion, "service Exists", "wrongkey DoesNotExist"), term(keyRegion, "service In securityscan2", "service NotIn WrongValue")), nil, nil},
		{of + "validates that InterPod Affinity and AntiAffinity is respected if matching", nodes, pods(scan()), apartFrom(together(s1(), inScan), term(keyNode, inVirus)), []string{a}, nil},
		{of + "satisfies the PodAffinity and PodAntiAffinity and PodAntiAffinity symmetry with the existing pod", nodes, pods(apartFrom(scan(), term(keyNode, inVirus))), apartFrom(together(s1(), inScan), term(keyNode, inVirus)), []string{a}, nil},
		{of + "satisfies the PodAffinity but doesn't satisfies the PodAntiAffinity with the existing pod", nodes, pods(scan()), apartFrom(together(s1(), inScan), term(keyZone, "service In securityscan,value2")), nil, nil},
		{of + "satisfies the PodAffinity and PodAntiAffinity but doesn't satisfies PodAntiAffinity symmetry with the existing pod", nodes, pods(apartFrom(scan(), term(keyZone, "service In securityscan,value3"))), apartFrom(together(own(), inScan), term(keyNode, inVirus)), nil, nil},
		{of + "pod matches its own Label in PodAffinity and that matches the existing pod Labels", nodes, pods(scan()), together(own(), term(keyRegion, "service NotIn securityscan,value2")), nil, nil},
		{of + "Verify that PodAntiAffinity of an existing pod is respected when PodAntiAffinity symmetry is not satisfied with the existing pod", nodes, pods(apartFrom(scan(), term(keyZone, "service In securityscan,value2"))), own(), nil, nil},
		{of + "Verify that PodAntiAffinity from existing pod is respected when pod statisfies PodAntiAffinity symmetry with the existing pod", nodes, pods(apartFrom(scan(), term(keyZone, "service NotIn securityscan,value2"))), own(), []string{a, b}, nil},
		{of + "same topology label, existing pod matches affinity, fits=false", nodes, pods(stockPod("fakename2", "foo", "abc").Node(a)), apartFrom(stockPod("fakename").NodeSelector(map[string]string{keyRegion: "r1"}), term(keyRegion, "foo In abc")), nil, nil},
		{of + "validates that InterPodAffinity is respected for self affinity", nodes, pods(stockPod("p1", "security", "S1").Node(a), stockPod("p2", "security", "S1").Node(b)), together(own(), term(keyNode, "service In securityscan")), []string{a, b}, nil},
		{of + "validates that InterPodAffinity is respected with hostname topology key (fast path)", nodes, pods(scan()), together(s1(), term(keyNode, "service In securityscan")), []string{a}, nil},
		{of + "validates that InterPodAntiAffinity is respected with hostname topology key (fast path)", nodes, pods(scan(), scan().Name("fakename3").Node(b)), apartFrom(s1(), term(keyNode, "service In securityscan")), nil, nil},
		// kube-apiserver merges matchLabelKeys and mismatchLabelKeys into the selector.
		{of + "anti affinity: matchLabelKeys is merged into LabelSelector with In operator (feature flag: enabled)", nodes, pods(stockPod("pod1", "foo", "", "bar", "fuga").Node(a), stockPod("pod2", "foo", "", "bar", "hoge").Node(a)), apartFrom(stockPod("incoming", "foo", "", "bar", "a"), term(keyZone, "foo Exists", "bar In a")), []string{a, b}, nil},
		{of + "anti affinity: mismatchLabelKeys is merged into LabelSelector with NotIn operator (feature flag: enabled)", nodes, pods(stockPod("pod1", "foo", "", "bar", "a").Node(a), stockPod("pod2", "foo", "", "bar", "a").Node(a)), apartFrom(stockPod("incoming", "foo", "", "bar", "a"), term(keyZone, "foo Exists", "bar NotIn a")), []string{a, b}, nil},
		{of + "affinity: matchLabelKeys is merged into LabelSelector with In operator (feature flag: enabled)", nodes, pods(full(), stockPod("pod1", "foo", "", "bar", "fuga").Node(a), stockPod("pod2", "foo", "", "bar", "hoge").Node(a)), together(incoming(), term(keyNode, "foo Exists", "bar In a")), nil, nil},
		{of + "affinity: mismatchLabelKeys is merged into LabelSelector with NotIn operator (feature flag: enabled)", nodes, pods(full().Label("bar", "fuga"), stockPod("pod1", "foo", "", "bar", "a").Node(a), stockPod("pod2", "foo", "", "bar", "a").Node(a)), together(incoming(), term(keyNode, "foo Exists", "bar NotIn a")), nil, nil},
		{withNamespaces + "MatchingNamespaces", nodes, pods(scan().Namespace("ns2")), together(stockPod("pod-ns-selector"), team1), []string{a}, nil},
		{withNamespaces + "MismatchingNamespaces", nodes, pods(scan().Namespace("ns3")), together(stockPod("pod-ns-selector"), team1), nil, nil},
	}
}

func taintCases() []stockCase {
	const of = "filters/TestTaintTolerationFilter/"
	taint := func(i int) corev1.Taint {
		return corev1.Taint{Key: fmt.Sprintf("example.com/taint%d", i), Value: fmt.Sprintf("value%d", i), Effect: corev1.TaintEffectNoSchedule}
	}
	tolerating := func(numbers ...int) *st.PodWrapper {
		pod := stockPod("pod")
		for _, i := range numbers {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: taint(i).Key, Value: taint(i).Value, Effect: taint(i).Effect})
		}
		return pod
	}
	with := func(numbers ...int) []*corev1.Node {
		node := stockNode("node-1")
		for _, i := range numbers {
			node.Spec.Taints = append(node.Spec.Taints, taint(i))
		}
		return []*corev1.Node{node}
	}
	fits := []string{"node-1"}
	return []stockCase{
		{of + "Pod tolerates node taint", with(1), nil, tolerating(1), fits, nil},
		{of + "Pod does not tolerate node taint", with(1), nil, tolerating(), nil, nil},
		{of + "Pod tolerates some but not all node taints", with(1, 2), nil, tolerating(1), nil, nil},
		{of + "Pod tolerates all node taints", with(1, 2), nil, tolerating(1, 2), fits, nil},
		{of + "Node has one taint, pod has multiple tolerations and tolerates all node taints", with(1), nil, tolerating(1, 2), fits, nil},
		{of + "Node has no taint, pod has one toleration", with(), nil, tolerating(1), fits, nil},
	}
}

func nodeAffinityCases() []stockCase {
	const of = "filters/TestNodeAffinityFilter/"
	requires := func(operator corev1.NodeSelectorOperator, values ...string) *st.PodWrapper {
		pod := stockPod("pod")
		requiring("disktype", operator, values...)(&pod.Pod)
		return pod
	}
	ssd, hdd := stockNode("node-ssd", "disktype", "ssd"), stockNode("node-hdd", "disktype", "hdd")
	both := stockPod("pod")
	affine(corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disktype", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}},
		MatchFields:      []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-ssd.node"}}},
	})(&both.Pod)
	return []stockCase{
		{of + "Pod fits when node matches label using In operator", []*corev1.Node{ssd, hdd}, nil, requires(corev1.NodeSelectorOpIn, "ssd"), []string{"node-ssd"}, nil},
		{of + "Pod not fit when node not match label using In operator", []*corev1.Node{ssd}, nil, requires(corev1.NodeSelectorOpIn, "hdd"), nil, nil},
		{of + "Pod not fit when node matches label using NotIn operator", []*corev1.Node{hdd, stockNode("node-hdd-2", "disktype", "hdd")}, nil, requires(corev1.NodeSelectorOpNotIn, "hdd"), nil, nil},
		{of + "Pod fits when node matches label using Exists operator", []*corev1.Node{ssd}, nil, requires(corev1.NodeSelectorOpExists), []string{"node-ssd"}, nil},
		{of + "Pod not fit when node matches label using DoesNotExist operator", []*corev1.Node{ssd, stockNode("node-2", "disktype", "ssd")}, nil, requires(corev1.NodeSelectorOpDoesNotExist), nil, nil},
		{of + "Pod fits both label and metadata.name using MatchExpressions and MatchFields", []*corev1.Node{ssd}, nil, both, []string{"node-ssd"}, nil},
	}
}

// spreadPod is a pod with label foo and constraints by it.
func spreadPod(constraints ...corev1.TopologySpreadConstraint) *st.PodWrapper {
	pod := stockPod("p", "foo", "")
	pod.Spec.TopologySpreadConstraints = constraints
	return pod
}

func constraint(skew int32, key string, change ...func(*corev1.TopologySpreadConstraint)) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: st.MakeLabelSelector().Exists("foo").Obj(),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// onNodes are pods with label foo on these nodes.
func onNodes(nodes ...string) (pods []*st.PodWrapper) {
	for i, node := range nodes {
		pods = append(pods, stockPod(fmt.Sprintf("p%d", i), "foo", "").Node(node))
	}
	return pods
}

func spreadCases() []stockCase {
	const of = "filters/TestPodTopologySpreadFilter/"
	n := func(numbers ...int) (names []string) {
		for _, i := range numbers {
			names = append(names, fmt.Sprintf("node-%d", i))
		}
		return names
	}
	on := func(numbers ...int) []*st.PodWrapper { return onNodes(n(numbers...)...) }
	nodes := []*corev1.Node{
		stockNode("node-0", keyZone, "zone-0"), stockNode("node-1", keyZone, "zone-0"), stockNode("node-2", keyZone, "zone-1"), stockNode("node-3", keyZone, "zone-1"),
	}
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	labelled := func(taintedNode int) []*corev1.Node {
		all := []*corev1.Node{
			stockNode("node-1", keyZone, "zone-1", "foo", ""), stockNode("node-2", keyZone, "zone-1", "foo", ""), stockNode("node-3", keyZone, "zone-2"), stockNode("node-4", keyZone, "zone-2", "foo", ""),
		}
		if taintedNode > 0 {
			all[taintedNode-1] = withTaints(all[taintedNode-1], cordoned)
		}
		return all
	}
	in := func(pod *st.PodWrapper, key string, values ...string) *st.PodWrapper {
		requiring(key, corev1.NodeSelectorOpIn, values...)(&pod.Pod)
		return pod
	}
	but0 := func(pod *st.PodWrapper) *st.PodWrapper {
		requiring(keyNode, corev1.NodeSelectorOpNotIn, "node-0")(&pod.Pod)
		return pod
	}
	foo := func(pod *st.PodWrapper) *st.PodWrapper { return pod.NodeSelector(map[string]string{"foo": ""}) }
	min := func(domains int32) func(*corev1.TopologySpreadConstraint) {
		return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To(domains) }
	}
	ignoring := func(c *corev1.TopologySpreadConstraint) {
		c.NodeAffinityPolicy = ptr.To(corev1.NodeInclusionPolicyIgnore)
	}
	honoring := func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor) }
	keys := func(keys ...string) func(*corev1.TopologySpreadConstraint) {
		return func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = keys }
	}
	two := func() *st.PodWrapper { return spreadPod(constraint(1, keyZone), constraint(1, keyNode)) }
	withBar := on(0, 1, 2)
	withBar[2].Label("bar", "")
	return []stockCase{
		{of + "place pod on a 1/1/0/1 cluster with MaxSkew=1, node-2 is the only fit", nodes, on(0, 1, 3), spreadPod(constraint(1, keyNode)), n(2), nil},
		{of + "place pod on a 2/0/0/1 cluster with MaxSkew=2, node-{1,2,3} are good fits", nodes, on(0, 0, 3), spreadPod(constraint(2, keyNode)), n(1, 2, 3), nil},
		{of + "pod is required to be placed on zone0, so only node-1 fits", nodes, on(0, 3), in(spreadPod(constraint(1, keyNode)), keyZone, "zone-0"), n(1), nil},
		{of + "two constraints: pod can only be placed to zone-1/node-2", nodes, on(0, 1, 3, 3), two(), n(2), nil},
		{of + "pod cannot be placed onto any node", nodes, on(1, 1, 2, 2, 3), but0(two()), nil, nil},
		{of + "pods spread across nodes as 2/2/1, maxSkew is 2, and the number of domains < minDomains, then the third node fits", nodes, on(1, 1, 2, 2, 3), but0(spreadPod(constraint(2, keyNode, min(4)))), n(3), nil},
		{of + "pods spread across nodes as 2/2/1, maxSkew is 2, and the number of domains > minDomains, then the all nodes fit", nodes, on(1, 1, 2, 2, 3), but0(spreadPod(constraint(2, keyNode, min(2)))), n(1, 2, 3), nil},
		{of + "pods spread across zone as 2/1, maxSkew is 2 and the number of domains < minDomains, then the third and fourth nodes fit", nodes, on(0, 1, 2), spreadPod(constraint(2, keyZone, min(3))), n(2, 3), nil},
		{of + "pods spread across zone as 2/1, maxSkew is 2 and the number of domains < minDomains, then the all nodes fit", nodes, on(1, 2, 3), spreadPod(constraint(2, keyZone, min(1))), n(0, 1, 2, 3), nil},
		{of + "NodeAffinityPolicy honored with labelSelectors, pods spread across zone as 2/1", labelled(0), on(1, 2, 3, 4), foo(spreadPod(constraint(1, keyZone))), n(4), nil},
		{of + "NodeAffinityPolicy ignored with nodeAffinity, pods spread across zone as 1/~2~", labelled(0), on(1, 3, 4), in(spreadPod(constraint(1, keyZone, ignoring)), "foo", ""), n(1, 2), nil},
		{of + "NodeTaintsPolicy honored, pods spread across zone as 2/1", labelled(3), on(1, 2, 3, 4), spreadPod(constraint(1, keyZone, honoring)), n(4), nil},
		{of + "NodeTaintsPolicy ignored, pods spread across zone as 2/2", labelled(3), on(1, 2, 3, 4), spreadPod(constraint(1, keyZone)), n(1, 2, 4), nil},
		{of + "two node inclusion Constraints, zone: honor/ignore, node: honor/ignore", labelled(2), on(1, 2, 3, 4), foo(two()), n(4), nil},
		{of + "two node inclusion Constraints, zone: ignore/ignore, node: honor/honor", labelled(2), on(1, 2, 3, 4), foo(spreadPod(constraint(1, keyZone, ignoring), constraint(1, keyNode, honoring))), n(1, 4), nil},
		{of + "matchLabelKeys ANDed with LabelSelector when LabelSelector isn't empty, pods spread across zone as 0/1", nodes, withBar, spreadPod(constraint(1, keyZone, keys("bar"))).Label("bar", ""), n(0, 1), nil},
		{of + "matchLabelKeys ANDed with LabelSelector when LabelSelector is empty, pods spread across zone as 2/1", nodes, on(0, 1, 2), spreadPod(constraint(1, keyZone, keys("foo"), func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = &metav1.LabelSelector{} })), n(2, 3), nil},
	}
}

func resourceCases() []stockCase {
	const of = "filters/TestNodeResourcesFilter/"
	asks := func(cpu string) *st.PodWrapper {
		return stockPod("pod").Req(map[corev1.ResourceName]string{"cpu": cpu})
	}
	node := []*corev1.Node{stockNode("node")}
	return []stockCase{
		{of + "pod does not fit due to insufficient node resources", node, nil, asks("2"), nil, nil},
		{of + "pod fits with sufficient node resources", node, nil, asks("1"), []string{"node"}, nil},
	}
}

func scoringCases() []stockCase {
	weighted := func(weight int32, term corev1.PodAffinityTerm) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: term}
	}
	two := []*corev1.Node{stockNode("node1"), stockNode("node2")}
	both := []string{"node1", "node2"}
	avoiding := func(term corev1.PodAffinityTerm) *st.PodWrapper {
		pod := stockPod("incoming", "foo", "", "bar", "a")
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{weighted(50, term)}}}
		return pod
	}
	liking := func(terms ...corev1.WeightedPodAffinityTerm) *st.PodWrapper {
		pod := stockPod("pod1")
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
		return pod
	}
	there := []*st.PodWrapper{stockPod("pod1", "foo", "", "bar", "fuga").Node("node1"), stockPod("pod2", "foo", "", "bar", "a").Node("node2")}
	everywhere := term(keyNode, "service In S1,S3")
	everywhere.NamespaceSelector = &metav1.LabelSelector{}
	attractor := []*st.PodWrapper{stockPod("attractor-pod", "service", "S1").Node("node2")}
	soft := func(key string) corev1.TopologySpreadConstraint {
		return constraint(1, key, func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway })
	}
	k1 := corev1.Taint{Key: "k1", Value: "v1", Effect: corev1.TaintEffectNoSchedule}
	nodes := []*corev1.Node{
		withTaints(stockNode("node-0", keyZone, "zone-0"), k1), stockNode("node-1", keyZone, "zone-0"), stockNode("node-2", keyZone, "zone-1"), stockNode("node-3", keyZone, "zone-1"),
	}
	keyed := []*st.PodWrapper{
		stockPod("p1", "foo", "", "bar", "").Node("node-1"), stockPod("p2a", "foo", "").Node("node-2"), stockPod("p2b", "foo", "").Node("node-2"),
		stockPod("p3a", "foo", "", "bar", "").Node("node-3"), stockPod("p3b", "foo", "", "bar", "").Node("node-3"), stockPod("p3c", "foo", "").Node("node-3"),
	}
	keyedPod := func(key string, selector *metav1.LabelSelector) *st.PodWrapper {
		pod := spreadPod(soft(keyNode)).Label("bar", "")
		pod.Spec.TopologySpreadConstraints[0].LabelSelector, pod.Spec.TopologySpreadConstraints[0].MatchLabelKeys = selector, []string{key}
		return pod
	}
	prefers := stockPod("pod-with-node-affinity")
	preferring("topologyKey", "topologyvalue")(&prefers.Pod)
	const spread, affinity, taints = "scoring/TestPodTopologySpreadScoring/", "scoring/TestPodAffinityScoring/", "scoring/TestTaintTolerationScoring/"
	return []stockCase{
		{"scoring/TestNodeAffinityScoring", []*corev1.Node{stockNode("node1"), stockNode("node2", "topologyKey", "topologyvalue")}, nil, prefers, both, []string{"node2"}},
		{affinity + "pod affinity", two, attractor, liking(weighted(50, term(keyNode, "service In S1,S3"))), both, []string{"node2"}},
		{affinity + "pod affinity with namespace selector", two, attractor, liking(weighted(50, everywhere)).Namespace("ns2"), both, []string{"node2"}},
		{affinity + "anti affinity: matchLabelKeys is merged into LabelSelector with In operator (feature flag: enabled)", two, there, avoiding(term(keyNode, "foo Exists", "bar In a")), both, []string{"node1"}},
		{affinity + "anti affinity: mismatchLabelKeys is merged into LabelSelector with NotIn operator  (feature flag: enabled)", two, there, avoiding(term(keyNode, "foo Exists", "bar NotIn a")), both, []string{"node2"}},
		{affinity + "affinity: matchLabelKeys is merged into LabelSelector with In operator (feature flag: enabled)", two, there, liking(weighted(50, term(keyNode, "foo Exists", "bar In a")), weighted(10, term(keyNode, "bar In fuga"))), both, []string{"node2"}},
		{affinity + "affinity: mismatchLabelKeys is merged into LabelSelector with NotIn operator (feature flag: enabled)", two, there, liking(weighted(50, term(keyNode, "foo Exists", "bar NotIn fuga")), weighted(10, term(keyNode, "bar In fuga"))), both, []string{"node2"}},
		{taints + "no taints or tolerations", two, nil, stockPod("pod"), both, both},
		{spread + "place pod on a ~0~/1/2/3 cluster with MaxSkew=1, node-1 is the preferred fit", nodes, onNodes("node-1", "node-2", "node-2", "node-3", "node-3", "node-3"), spreadPod(soft(keyNode)), []string{"node-1", "node-2", "node-3"}, []string{"node-1"}},
		{spread + "matchLabelKeys ANDed with LabelSelector when LabelSelector isn't empty, node-2 is the preferred fit", nodes, keyed, keyedPod("bar", st.MakeLabelSelector().Exists("foo").Obj()), []string{"node-1", "node-2", "node-3"}, []string{"node-2"}},
		{spread + "matchLabelKeys ANDed with LabelSelector when LabelSelector is empty, node-1 is the preferred fit", nodes, keyed, keyedPod("foo", st.MakeLabelSelector().Obj()), []string{"node-1", "node-2", "node-3"}, []string{"node-1"}},
		{spread + "combined with hardSpread constraint on a ~4~/0/1/2 cluster", nodes, onNodes("node-0", "node-0", "node-0", "node-0", "node-2", "node-3", "node-3"), spreadPod(soft(keyNode), constraint(1, keyZone)), []string{"node-2", "node-3"}, []string{"node-2"}},
	}
}

// runStockCase schedules the pod of a case, and returns where it may go and where it goes.
func runStockCase(t *testing.T, tc stockCase) (feasible []string, chosen string) {
	t.Helper()
	c := newTenant(t)
	c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { // it shows all that the cases ask for
		spec.Pods.NodeSelectorKeys = append(spec.Pods.NodeSelectorKeys, keyNode, "disktype", "foo", "topologyKey")
		for _, toleration := range tc.pod.Spec.Tolerations {
			spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: toleration.Key})
		}
	}))
	for name, team := range map[string]string{"ns1": "team1", "ns2": "team1", "ns3": "team2"} {
		_, err := c.api.CoreV1().Namespaces().Create(c.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, node := range tc.nodes {
		virtual := builders.VirtualNode(node.Name).Obj()
		for key, value := range node.Labels {
			if key == keyZone || key == keyRegion { // those of a super cluster as a whole
				virtual.Labels[key] = value
			}
		}
		groups := nodegroups.Of([]nodegroups.Node{{Labels: node.Labels, Taints: nodegroups.TaintsOf(readyNode(node)), Allocatable: slice.Amounts{corev1.ResourceCPU: 1000}}})
		virtual.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(groups)}
		c.virtual[node.Name] = virtual
		for _, namespace := range []string{"ns1", "ns2", "ns3"} {
			c.placements = append(c.placements, *builders.Placement("tenant", namespace).Held(node.Name, 1, "cpu", "1", "pods", "100").Obj())
		}
	}
	c.project()
	logger := klog.FromContext(c.ctx)
	for _, pod := range tc.existing {
		running := pod.Obj().DeepCopy()
		running.Spec.NodeName = tenancy.NodeName(running.Spec.NodeName, "node")
		builders.Bind(running)
		require.NoError(t, c.sched.Cache.AddPod(logger, viewOf(t, running)))
	}
	projected := viewOf(t, tc.pod.Obj().DeepCopy())
	profile, state := c.sched.Profiles[corev1.DefaultSchedulerName], framework.NewCycleState()
	result, err := schedulertest.SchedulePod(c.ctx, t, c.sched, profile, state, projected)
	if err != nil {
		var unfit *framework.FitError
		require.ErrorAs(t, err, &unfit)
		return nil, ""
	}
	infos, err := profile.SnapshotSharedLister().NodeInfos().List()
	require.NoError(t, err)
	state = framework.NewCycleState()
	_, status, _ := profile.RunPreFilterPlugins(c.ctx, state, projected)
	require.True(t, status.IsSuccess(), status.Message())
	for _, info := range infos {
		if profile.RunFilterPlugins(c.ctx, state, projected, info).IsSuccess() {
			feasible = append(feasible, info.Node().Name)
		}
	}
	slices.Sort(feasible)
	return feasible, result.SuggestedHost
}

// readyNode returns a copy of a node that is Ready.
func readyNode(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

func viewOf(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if pod.Namespace == "" {
		pod.Namespace = "ns1"
	}
	pod.UID, pod.Spec.SchedulerName = types.UID(pod.Namespace+"/"+pod.Name), corev1.DefaultSchedulerName
	projected, err := view.TenantPod(pod)
	require.NoError(t, err)
	return projected.(*corev1.Pod)
}

// TestSchedulerCases runs the cases of kube-scheduler's integration tests over the view of a tenant.
func TestSchedulerCases(t *testing.T) {
	for _, tc := range schedulerCases() {
		t.Run(tc.name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				feasible, chosen := runStockCase(t, tc)
				slices.Sort(tc.want)
				if diff := cmp.Diff(tc.want, feasible); diff != "" {
					t.Errorf("where the pod may go (-want +got):\n%s", diff)
				}
				if tc.best != nil {
					require.Contains(t, tc.best, chosen)
				}
			})
		})
	}
}
