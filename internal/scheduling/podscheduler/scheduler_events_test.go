package podscheduler

import (
	"cmp"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// eventCase is a case of kube-scheduler's in which a pod fits nowhere until something changes. As in stockCase, each
// node is a super cluster with this one node.
type eventCase struct {
	// name is as in stockCaseNames.
	name string
	// nodes are there from the beginning, and existing pods run on them.
	nodes    []*corev1.Node
	existing []*st.PodWrapper
	pod      *st.PodWrapper
	// change is what happens once the pod was refused.
	change func(e *eventBed)
	// want is where the pod goes then, "": it is not even tried again.
	want string
}

// eventBed is a tenant whose namespace ns1 holds room in super clusters.
type eventBed struct{ *tenantControlPlane }

// node adds or changes a super cluster. The namespace holds 1 CPU in a new one, and as many pods as label pods says.
func (e *eventBed) node(node *corev1.Node) {
	virtual := builders.VirtualNode(node.Name).Obj()
	for _, key := range []string{keyZone, keyRegion} {
		if value, has := node.Labels[key]; has {
			virtual.Labels[key] = value
		}
	}
	groups := nodegroups.Of([]nodegroups.Node{{Labels: node.Labels, Taints: nodegroups.TaintsOf(readyNode(node)), Allocatable: slice.Amounts{corev1.ResourceCPU: 4000}}})
	virtual.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(groups)}
	_, known := e.virtual[node.Name]
	e.virtual[node.Name] = virtual
	if known {
		e.project()
		return
	}
	e.place("ns1", node.Name, "1")
	if pods := node.Labels["pods"]; pods != "" {
		e.placements[len(e.placements)-1] = *builders.Placement("tenant", "ns1").Held(node.Name, 1, "cpu", "1", "pods", pods).Obj()
		e.project()
	}
}

// gone removes a super cluster.
func (e *eventBed) gone(name string) {
	delete(e.virtual, name)
	var left []client.Object // kube-scheduler keeps a Node with pods that is gone, so it is not waited for
	for _, node := range view.TenantNodes(e.virtual, e.placements) {
		left = append(left, node)
	}
	e.nodes.Set("", left...)
}

// add creates a pod. One that names a node runs there.
func (e *eventBed) add(wrapper *st.PodWrapper) {
	pod := wrapper.Obj().DeepCopy()
	pod.Namespace, pod.UID, pod.Spec.SchedulerName = "ns1", types.UID(pod.Name), cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	pod.CreationTimestamp = metav1.Now()
	if pod.Spec.NodeName != "" {
		pod.Labels = merge(pod.Labels, map[string]string{schedulerv1alpha1.LabelSuperCluster: pod.Spec.NodeName})
		pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: pod.Spec.NodeName}
		pod.Spec.NodeName = tenancy.NodeName(pod.Spec.NodeName, "node")
		builders.Bind(pod)
	}
	_, err := e.api.CoreV1().Pods("ns1").Create(e.ctx, pod, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// change updates a pod.
func (e *eventBed) change(name string, change func(*corev1.Pod)) {
	pod := e.get("ns1", name)
	change(pod)
	_, err := e.api.CoreV1().Pods("ns1").Update(e.ctx, pod, metav1.UpdateOptions{})
	require.NoError(e.t, err)
}

// end deletes a pod.
func (e *eventBed) end(name string) {
	require.NoError(e.t, e.api.CoreV1().Pods("ns1").Delete(e.ctx, name, metav1.DeleteOptions{}))
}

// tries returns how often a pod that waits was tried, and false if it waits not. Whoever had something to do in the
// bubble has done it then.
func (e *eventBed) tries(name string) (int, bool) {
	synctest.Wait()
	info, exists := e.sched.SchedulingQueue.GetPod(name, "ns1", nil)
	_, condition := podutil.GetPodCondition(&e.get("ns1", name).Status, corev1.PodScheduled)
	if !exists || condition == nil {
		return 0, false
	}
	return info.Attempts, info.Attempts > 0
}

func asks1(pod *st.PodWrapper, cpu string) *st.PodWrapper {
	return pod.Req(map[corev1.ResourceName]string{corev1.ResourceCPU: cpu})
}

// triedInVain are the cases in which a pod is tried once more although nothing has changed for it: its namespace has
// room in another super cluster now (NamespacePlacement), whose nodes NodeGroups then refuses.
var triedInVain = map[string]bool{
	"queueing/TestCoreResourceEnqueue/Pod rejected by the NodeUnschedulable plugin isn't requeued when another unschedulable node is created": true,
	"queueing/TestCoreResourceEnqueue/Pod without a required toleration to a node isn't requeued to activeQ":                                  true,
}

// eventCases are the cases of kube-scheduler in which events try a pod again, or do not.
func eventCases() []eventCase {
	const filters, queueing, gates = "filters/TestUnschedulablePodBecomesSchedulable/", "queueing/TestCoreResourceEnqueue/Pod ", "queueing/TestSchedulingGates/"
	const spread = "queueing/TestCoreResourceEnqueue/Pods with PodTopologySpread should be requeued when "
	taint := corev1.Taint{Key: "foo", Value: "bar", Effect: corev1.TaintEffectNoSchedule}
	tolerates := func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "foo", Operator: corev1.TolerationOpExists}}
	}
	one, two := stockNode("node-1", keyZone, "z1"), stockNode("node-2", keyZone, "z2")
	bare := stockNode("node-1")
	cordoned := func(node *corev1.Node) *corev1.Node {
		node = node.DeepCopy()
		node.Spec.Unschedulable = true
		return node
	}
	nodes := func(nodes ...*corev1.Node) []*corev1.Node { return nodes }
	add := func(node *corev1.Node) func(*eventBed) { return func(e *eventBed) { e.node(node) } }
	relabel := func(name, app string) func(*eventBed) {
		return func(e *eventBed) {
			e.change(name, func(pod *corev1.Pod) { pod.Labels = merge(pod.Labels, map[string]string{"app": app}) })
		}
	}
	inA, pod := term(keyZone, "app In a"), func() *st.PodWrapper { return stockPod("pod") }
	self := func() *st.PodWrapper { return together(stockPod("pod", "app", "a"), inA) }
	apart := func() *st.PodWrapper { return apartFrom(stockPod("pod"), inA) }
	a1 := func() *st.PodWrapper { return stockPod("a-1", "app", "a").Node("node-1") }
	full := func() *st.PodWrapper { return asks1(stockPod("full").Node("node-1"), "1") }
	large := func() *st.PodWrapper { return asks1(pod(), "1") }
	inZone2 := pod().NodeSelector(map[string]string{keyZone: "z2"})
	spreads := func() *st.PodWrapper { return asks1(spreadPod(constraint(1, keyZone)).Name("pod"), "1") }
	on := func(name, node string) *st.PodWrapper { return stockPod(name, "foo", "").Node(node) }
	// Two pods are in z1, none is in z2, which has no room left: the pod may not make it three.
	crowd := []*st.PodWrapper{on("a-1", "node-1"), asks1(stockPod("full").Node("node-2"), "1")}
	return []eventCase{
		{filters + "node gets taint removed", nodes(withTaints(one.DeepCopy(), taint)), nil, pod(), add(one), "node-1"},
		{filters + "scheduled pod gets updated to match affinity", nodes(one), []*st.PodWrapper{stockPod("a-1").Node("node-1")}, together(pod(), inA), relabel("a-1", "a"), "node-1"},
		{queueing + "without a required toleration to a node isn't requeued to activeQ", nodes(withTaints(one.DeepCopy(), taint)), nil, pod(), add(withTaints(two.DeepCopy(), taint)), ""},
		{queueing + "rejected by the NodeAffinity plugin is requeued when a Node's label is updated", nodes(one), nil, inZone2, add(stockNode("node-1", keyZone, "z2")), "node-1"},
		{queueing + "rejected by the NodeAffinity plugin is not requeued when an updated Node haven't changed the 'match' verdict", nodes(one), nil, inZone2, add(stockNode("node-1", keyZone, "z3")), ""},
		{queueing + "rejected by the NodeAffinity plugin is requeued when a Node is added", nodes(one), nil, inZone2, add(two), "node-2"},
		{queueing + "updated with toleration requeued to activeQ", nodes(withTaints(one.DeepCopy(), taint)), nil, pod(), func(e *eventBed) { e.change("pod", tolerates) }, "node-1"},
		{queueing + "rejected by the TaintToleration plugin is requeued when the Node's taint is updated", nodes(withTaints(one.DeepCopy(), taint)), nil, pod(), add(one), "node-1"},
		{queueing + "rejected by the TaintToleration plugin is requeued when a Node that has the correspoding taint is added", nodes(withTaints(one.DeepCopy(), corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule})), nil, pod().Toleration("foo"), add(withTaints(two.DeepCopy(), taint)), "node-2"},
		{queueing + "rejected by the NodeResourcesFit plugin is requeued when the Pod is updated to scale down", nodes(one), nil, asks1(pod(), "2"), func(e *eventBed) {
			e.change("pod", func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			})
		}, "node-1"},
		{queueing + "rejected by the NodeResourcesFit plugin is requeued when a Pod is deleted", nodes(one), []*st.PodWrapper{full()}, large(), func(e *eventBed) { e.end("full") }, "node-1"},
		{queueing + "rejected by the NodeResourcesFit plugin is requeued when a Node is created", nodes(one), []*st.PodWrapper{full()}, large(), add(two), "node-2"},
		{queueing + "rejected by the NodeResourcesFit plugin is requeued when a Node is updated", nodes(one), nil, asks1(pod(), "2"), func(e *eventBed) { e.place("ns1", "node-1", "2") }, "node-1"},
		{queueing + "rejected by the NodeResourcesFit plugin isn't requeued when a Node is updated without increase in the requested resources", nodes(one), nil, asks1(pod(), "2"), add(stockNode("node-1", keyZone, "z3")), ""},
		{queueing + "rejected by the NodeResourcesFit plugin is requeued when a Node is updated with increase in the requested resources", nodes(one), []*st.PodWrapper{full()}, large(), func(e *eventBed) { e.place("ns1", "node-1", "2") }, "node-1"},
		{queueing + "rejected by the NodeResourcesFit plugin is requeued when a Node is updated with increase in the allowed pods number", nodes(stockNode("node-1", "pods", "1")), []*st.PodWrapper{a1()}, pod(), func(e *eventBed) { e.place("ns1", "node-1", "1") }, "node-1"},
		{"queueing/TestCoreResourceEnqueue/Updating pod label doesn't retry scheduling if the Pod was rejected by TaintToleration", nodes(withTaints(one.DeepCopy(), taint)), nil, pod(), relabel("pod", "b"), ""},
		{queueing + "rejected by the InterPodAffinity plugin is requeued when deleting the existed pod's label that matches the podAntiAffinity", nodes(one), []*st.PodWrapper{a1()}, apart(), relabel("a-1", "b"), "node-1"},
		{queueing + "rejected by the InterPodAffinity plugin is requeued when deleting the existing pod that matches the target podAntiAffinity", nodes(one), []*st.PodWrapper{a1()}, apart(), func(e *eventBed) { e.end("a-1") }, "node-1"},
		{queueing + "rejected by the InterPodAffinity plugin is requeued when deleting the existing pod with podAntiAffinity that matches the target pod", nodes(one), []*st.PodWrapper{apartFrom(stockPod("b-1", "app", "b").Node("node-1"), inA)}, stockPod("pod", "app", "a"), func(e *eventBed) { e.end("b-1") }, "node-1"},
		{queueing + "rejected by the PodAffinity plugin is requeued when updating the existed pod's label to make it match the pod's podAffinity", nodes(one), []*st.PodWrapper{stockPod("a-1", "app", "b").Node("node-1")}, together(pod(), inA), relabel("a-1", "a"), "node-1"},
		{queueing + "rejected by the InterPodAffinity plugin is requeued when creating the node with the topologyKey label of the pod anti affinity", nodes(one), []*st.PodWrapper{a1()}, apart(), add(two), "node-2"},
		{queueing + "rejected by the InterPodAffinity plugin is requeued when updating the node with the topologyKey label of the pod anti affinity", nodes(one, withTaints(stockNode("node-2", keyZone, "z1"))), []*st.PodWrapper{a1()}, apart(), add(two), "node-2"},
		{queueing + "rejected by the InterPodAffinity plugin is requeued when creating the node with the topologyKey label of the pod affinity", nodes(bare), nil, self(), add(two), "node-2"},
		{queueing + "rejected by the InterPodAffinity plugin is requeued when updating the node with the topologyKey label of the pod affinity", nodes(bare), nil, self(), add(one), "node-1"},
		{queueing + "rejected by the PodAffinity plugin is requeued when a new Node is created", nodes(bare), nil, self(), func(e *eventBed) { e.node(cordoned(two)); e.node(two) }, "node-2"},
		{queueing + "rejected by the NodeUnschedulable plugin is requeued when the node is turned to ready", nodes(cordoned(one)), nil, pod(), add(one), "node-1"},
		{queueing + "rejected by the NodeUnschedulable plugin is requeued when a new node is created", nodes(cordoned(one)), nil, pod(), add(two), "node-2"},
		{queueing + "rejected by the NodeUnschedulable plugin isn't requeued when another unschedulable node is created", nodes(cordoned(one)), nil, pod(), add(cordoned(two)), ""},
		{spread + "a Pod with matching label is scheduled", nodes(one, two), crowd, spreads(), func(e *eventBed) { e.add(on("a-2", "node-2")) }, "node-1"},
		{spread + "a scheduled Pod label is updated to match the selector", nodes(one, two), append([]*st.PodWrapper{stockPod("b-1").Node("node-2")}, crowd...), spreads(), func(e *eventBed) {
			e.change("b-1", func(pod *corev1.Pod) { pod.Labels = merge(pod.Labels, map[string]string{"foo": ""}) })
		}, "node-1"},
		{spread + "a scheduled Pod with matching label is deleted", nodes(one, two), crowd, spreads(), func(e *eventBed) { e.end("a-1") }, "node-1"},
		{spread + "a Node with topology label is created", nodes(one, two), crowd, spreads(), add(stockNode("node-3", keyZone, "z2")), "node-3"},
		{spread + "a Node is updated to have the topology label", nodes(one, two, stockNode("node-3", keyZone, "z1")), crowd, spreads(), add(stockNode("node-3", keyZone, "z3")), "node-3"},
		{spread + "a Node with a topology label is deleted", nodes(one, two), crowd, spreads(), func(e *eventBed) { e.gone("node-2") }, "node-1"},
		{spread + "a NodeTaint of a Node with a topology label has been updated", nodes(one, two, withTaints(stockNode("node-3", keyZone, "z2"), taint)), crowd, spreads(), add(stockNode("node-3", keyZone, "z2")), "node-3"},
		{gates + "two pod carrying scheduling gates, and remove gates of one pod", nodes(one), []*st.PodWrapper{stockPod("other").SchedulingGates([]string{"foo"})}, pod().SchedulingGates([]string{"bar"}), func(e *eventBed) {
			e.change("pod", func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil })
		}, "node-1"},
		{gates + "gated pod schedulable after deleting the scheduled pod and removing gate", nodes(one), []*st.PodWrapper{full()}, large().SchedulingGates([]string{"bar"}), func(e *eventBed) {
			e.end("full")
			e.change("pod", func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil })
		}, "node-1"},
	}
}

// newEventBed returns a tenant with super clusters and pods that run there.
func newEventBed(t *testing.T, nodes []*corev1.Node, existing []*st.PodWrapper) *eventBed {
	t.Helper()
	e := &eventBed{newTenant(t)}
	e.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "foo"})
	}))
	_, err := e.api.CoreV1().Namespaces().Create(e.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, node := range nodes {
		e.node(node)
	}
	for _, pod := range existing {
		e.add(pod)
	}
	running := 0
	for _, pod := range existing {
		if pod.Spec.NodeName != "" {
			running++
		}
	}
	require.Eventually(t, func() bool {
		count, err := e.sched.Cache.PodCount()
		return err == nil && count == running
	}, patience, time.Millisecond, "the scheduler sees the pods")
	return e
}

// TestSchedulerEventCases runs the cases of kube-scheduler's integration tests about its queue over the view of a
// tenant.
func TestSchedulerEventCases(t *testing.T) {
	for _, tc := range eventCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			schedulertest.Bubble(t, func(t *testing.T) {
				e := newEventBed(t, tc.nodes, tc.existing)
				e.add(tc.pod)
				tries := 0
				if len(tc.pod.Spec.SchedulingGates) == 0 {
					var waits bool
					tries, waits = e.tries("pod")
					require.True(t, waits, "it fits nowhere")
				}
				require.Empty(t, e.get("ns1", "pod").Labels[schedulerv1alpha1.LabelSuperCluster])
				tc.change(e)
				if tc.want != "" {
					e.wantIn("ns1", "pod", tc.want)
					return
				}
				<-time.After(time.Minute) // the backoff of one that is tried again is shorter, and five minutes try all
				if triedInVain[tc.name] {
					tries++
				}
				again, waits := e.tries("pod")
				require.True(t, waits)
				require.Equal(t, tries, again, "it is not tried again")
				require.Empty(t, e.get("ns1", "pod").Labels[schedulerv1alpha1.LabelSuperCluster])
			})
		})
	}
}

// preemptionCases are those in which pods give way.
func preemptionCases() map[string]struct {
	nodes    []*corev1.Node
	existing []*st.PodWrapper
	pod      *st.PodWrapper
	budgets  map[string]int32
	want     string // where the pod goes, "": nobody gives way
	left     []string
} {
	const of = "preemption/TestPreemption/preemption is "
	const budgets = "preemption/misc/TestPDBInPreemption/A node "
	with := func(name string, priority int32, node, cpu string) *st.PodWrapper {
		return asks1(stockPod(name, "pod", name).Priority(priority).Node(node), cpu)
	}
	node := func(name string) *corev1.Node { return stockNode(name, keyZone, name) }
	preemptor := func() *st.PodWrapper {
		return apartFrom(asks1(stockPod("pod", "pod", "preemptor").Priority(100), "400m"), term(keyZone, "pod In p0"))
	}
	avoids := func(pod *st.PodWrapper) *st.PodWrapper { return apartFrom(pod, term(keyZone, "pod In preemptor")) }
	type preemption = struct {
		nodes    []*corev1.Node
		existing []*st.PodWrapper
		pod      *st.PodWrapper
		budgets  map[string]int32
		want     string
		left     []string
	}
	high := func() *st.PodWrapper { return asks1(stockPod("pod").Priority(100), "1") }
	return map[string]preemption{
		of + "performed to satisfy anti-affinity": {
			nodes: []*corev1.Node{node("r1")}, existing: []*st.PodWrapper{with("p0", 50, "r1", "200m"), avoids(with("p1", 1, "r1", "200m"))},
			pod: preemptor(), want: "r1",
		},
		of + "not performed when anti-affinity is not satisfied": {
			nodes: []*corev1.Node{node("r1")}, existing: []*st.PodWrapper{with("p0", 50, "r1", "200m"), avoids(with("p1", 100, "r1", "200m"))},
			pod: preemptor(), left: []string{"p0", "p1"},
		},
		"filters/TestPodTopologySpreadFilter/high priority pod can preempt others": {
			nodes: []*corev1.Node{node("r1"), node("r2")},
			existing: []*st.PodWrapper{
				stockPod("p0", "foo", "").Priority(1).Node("r1"), asks1(stockPod("p1").Priority(100).Node("r2"), "1"),
			},
			pod:  asks1(spreadPod(constraint(1, keyZone)).Name("pod").Priority(100), "100m"),
			want: "r1", left: []string{"p1"},
		},
		"preemption/misc/TestDisablePreemption/pod preemption will not happen": {
			nodes: []*corev1.Node{node("r1")}, existing: []*st.PodWrapper{with("p0", 1, "r1", "1")},
			pod: high().SchedulerName("gang"), left: []string{"p0"}, // this profile has no preemption
		},
		budgets + "without any PDB violating pods is preferred for preemption": {
			nodes: []*corev1.Node{node("r1"), node("r2")}, existing: []*st.PodWrapper{with("p0", 1, "r1", "1"), with("p1", 50, "r2", "1")},
			pod: high(), budgets: map[string]int32{"p0": 0}, want: "r2", left: []string{"p0"},
		},
		budgets + "with fewer PDB violating pods is preferred for preemption": {
			nodes: []*corev1.Node{node("r1"), node("r2")},
			existing: []*st.PodWrapper{
				with("p0", 1, "r1", "500m"), with("p1", 1, "r1", "500m"), with("p2", 50, "r2", "500m"), with("p3", 50, "r2", "500m"),
			},
			pod: high(), budgets: map[string]int32{"p0": 0, "p1": 0, "p2": 0}, want: "r2", left: []string{"p0", "p1"},
		},
	}
}

// TestSchedulerPreemptionCases runs the cases of kube-scheduler's integration tests about preemption.
func TestSchedulerPreemptionCases(t *testing.T) {
	for name, tc := range preemptionCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schedulertest.Bubble(t, func(t *testing.T) {
				e := newEventBed(t, tc.nodes, tc.existing)
				for pod, allowed := range tc.budgets {
					_, err := e.api.PolicyV1().PodDisruptionBudgets("ns1").Create(e.ctx, &policyv1.PodDisruptionBudget{
						ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: pod},
						Spec:       policyv1.PodDisruptionBudgetSpec{Selector: metav1.SetAsLabelSelector(map[string]string{"pod": pod})},
						Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
					}, metav1.CreateOptions{})
					require.NoError(t, err)
				}
				for _, profile := range e.sched.Profiles {
					known := profile.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()
					require.Eventually(t, func() bool {
						budgets, err := known.List(labels.Everything())
						return err == nil && len(budgets) == len(tc.budgets)
					}, patience, time.Millisecond, "kube-scheduler knows the budgets")
				}
				e.add(tc.pod)
				if tc.want != "" {
					e.wantIn("ns1", "pod", tc.want)
				} else {
					_, waits := e.tries("pod")
					require.True(t, waits)
				}
				left := map[string]bool{}
				pods, err := e.api.CoreV1().Pods("ns1").List(e.ctx, metav1.ListOptions{})
				require.NoError(t, err)
				for i := range pods.Items {
					left[pods.Items[i].Name] = true
				}
				want := map[string]bool{"pod": true}
				for _, name := range tc.left {
					want[name] = true
				}
				require.Equal(t, want, left)
			})
		})
	}
}

// otherCases are the names of the cases that run beside schedulerCases.
func otherCases() map[string]bool {
	names := map[string]bool{}
	for _, tc := range eventCases() {
		names[tc.name] = true
	}
	for name := range maps.Keys(preemptionCases()) {
		names[name] = true
	}
	return names
}
