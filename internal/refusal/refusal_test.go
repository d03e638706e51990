package refusal_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/choicebackoff"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/volumehome"
	"github.com/superpool/superpool/test/builders"
)

// snapshot holds what kube-scheduler knows of super clusters, by name.
type snapshot []fwk.NodeInfo

func (s snapshot) List() ([]fwk.NodeInfo, error) { return s, nil }

func (s snapshot) Get(name string) (fwk.NodeInfo, error) {
	for _, info := range s {
		if info.Node().Name == name {
			return info, nil
		}
	}
	return nil, fmt.Errorf("node %s is not known", name)
}

// with adds a super cluster with a capacity of which so much is used.
func (s snapshot) with(name string, capacity, used corev1.ResourceList, change ...func(*corev1.Node)) snapshot {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: capacity}}
	for _, f := range change {
		f(node)
	}
	info := framework.NewNodeInfo(podOf("used", used))
	info.SetNode(node)
	return append(s, info)
}

func cordon(node *corev1.Node) { node.Spec.Unschedulable = true }

func label(key, value string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Labels = map[string]string{key: value} }
}

func taint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

func podOf(name string, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}},
	}
}

// room is so much of a resource that namespace web holds, and rooms the same of cpu and memory.
func room(name corev1.ResourceName, amount string) corev1.ResourceList {
	amounts := slice.Of(builders.Resources(string(name), amount))
	return slice.Amounts{slicepod.Resource(name, "web"): amounts[name]}.List()
}

func rooms(cpu, memory string) corev1.ResourceList {
	list := room("cpu", cpu)
	for name, quantity := range room("memory", memory) {
		list[name] = quantity
	}
	return list
}

// sliceOf is a slice of a gang that wants total.
func sliceOf(requests corev1.ResourceList, total slice.Amounts) *corev1.Pod {
	pod := podOf("web.slice.0000", requests)
	slicepod.Encode(slicepod.Gang{Name: "tenant/web@1", Size: 2, Total: total}, pod)
	return pod
}

func rejected(plugin string, reasons ...string) *fwk.Status {
	return fwk.NewStatus(fwk.Unschedulable, reasons...).WithPlugin(plugin)
}

func unfit(nodes int, preFilter string, absent *fwk.Status, explicit map[string]*fwk.Status) *fwk.Status {
	diagnosis := framework.Diagnosis{PreFilterMsg: preFilter, NodeToStatus: framework.NewNodeToStatus(explicit, absent)}
	return fwk.NewStatus(fwk.Unschedulable).WithError(&framework.FitError{Pod: &corev1.Pod{}, NumAllNodes: nodes, Diagnosis: diagnosis})
}

// after adds what PostFilter said.
func after(status *fwk.Status, message string) *fwk.Status {
	var fit *framework.FitError
	errors.As(status.AsError(), &fit)
	fit.Diagnosis.PostFilterMsg = message
	return status
}

type clusters = map[string]*fwk.Status

const (
	fitName, taintName = "NodeResourcesFit", "TaintToleration"
	untolerated        = "node(s) had untolerated taint(s)"
	unschedulable      = "node(s) were unschedulable"
	shortOfCPU         = "Insufficient cpu.slice.tenancy.kubernetes.io/web"
	shortOfMemory      = "Insufficient memory.slice.tenancy.kubernetes.io/web"
	roomKept           = namespacegang.ErrReasonRoomKept + ": 5 cpu (of 12 free 8 are kept for the loss of r1 at most), 3 nvidia.com/gpu (of 4 free 2 are kept for the loss of r2.eu at most)"
)

var unresolvable = fwk.NewStatus(fwk.UnschedulableAndUnresolvable)

func TestNothingIsRefused(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]*fwk.Status{
		"success":                  nil,
		"an error":                 fwk.AsStatus(errors.New("the write was lost")),
		"released":                 rejected(namespacegang.Name, namespacegang.ErrReasonReleased),
		"released by Permit":       unfit(1, "", unresolvable, clusters{"r1": rejected(namespacegang.Name, namespacegang.ErrReasonReleased)}),
		"a gang that has lost one": unfit(2, namespacegang.ErrReasonReleased, rejected(namespacegang.Name, namespacegang.ErrReasonReleased), nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.True(t, refusal.Of(sliceOf(nil, nil), status, nil).IsZero())
		})
	}
}

// TestMessage is about what tenants read: pods first, then slices.
func TestMessage(t *testing.T) {
	t.Parallel()
	pod := func(cpu string) *corev1.Pod { return podOf("web-0", room("cpu", cpu)) }
	asking := pod("100m")
	asking.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"}
	sliced := sliceOf(builders.Resources("cpu", "100m"), slice.Amounts{"cpu": 5000, "nvidia.com/gpu": 3})
	noRoom := rejected(fitName, shortOfCPU)
	pinned := sliceOf(builders.Resources("cpu", "100m"), slice.Amounts{"cpu": 5000})
	slicepod.Pin("r2", pinned)
	ruledOut := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) didn't satisfy plugin(s) [NamespaceGang]")
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		status *fwk.Status
		nodes  snapshot
		want   string
	}{
		"the example of the docs": {
			pod: pod("100m"), status: unfit(3, "", unresolvable, clusters{"r1": rejected("NodeUnschedulable", unschedulable), "r2": noRoom, "r3": noRoom}),
			nodes: snapshot{}.with("r1", nil, nil, cordon).with("r2", room("cpu", "100m"), room("cpu", "100m")).with("r3", room("cpu", "200m"), room("cpu", "200m")),
			want:  "0/3 super clusters are available: 2 hold no room of namespace web: 300m of 300m cpu used, 1 cordoned",
		},
		"a slice that is wanted in one super cluster": {
			pod: pinned, status: unfit(3, "", ruledOut, clusters{"r2": rejected(fitName, "Insufficient cpu", "Insufficient memory")}),
			nodes: snapshot{}.with("r2", builders.Resources("cpu", "1"), builders.Resources("cpu", "1")),
			want:  "super cluster r2: has too little free cpu and memory",
		},
		"a slice that is wanted in one super cluster, which is cordoned": {
			pod: pinned, status: unfit(3, "", ruledOut, clusters{"r2": rejected("NodeUnschedulable", unschedulable)}), want: "super cluster r2: cordoned",
		},
		"a slice that is wanted in a super cluster that is not in the pool": {
			pod: pinned, status: unfit(3, "", ruledOut, clusters{}), want: "super cluster r2: it is not in the pool",
		},
		"room that is kept": {
			pod: sliced, status: unfit(3, roomKept, rejected(namespacegang.Name, roomKept), nil),
			want: "0/3 super clusters are available: the pool keeps what it has free for the loss of a super cluster: 5 cpu, 3 nvidia.com/gpu",
		},
		"room that is kept, for a slice beside others of its namespace that have a super cluster": {
			pod: sliced, status: unfit(1, roomKept, rejected(namespacegang.Name, roomKept), nil),
			nodes: snapshot{}.with("r1", builders.Resources("cpu", "12", "nvidia.com/gpu", "4"), builders.Resources("cpu", "9")),
			want:  "0/1 super clusters are available: the pool keeps what it has free for the loss of a super cluster: 5 cpu, 3 nvidia.com/gpu",
		},
		"room that is kept, and a slice that is wanted in one super cluster": {
			pod: pinned, status: unfit(3, roomKept, rejected(namespacegang.Name, roomKept), nil),
			want: "0/3 super clusters are available: the pool keeps what it has free for the loss of a super cluster: 5 cpu, 3 nvidia.com/gpu",
		},
		"one super cluster": {
			pod: pod("200m"), status: unfit(1, "", unresolvable, clusters{"r1": noRoom}), nodes: snapshot{}.with("r1", room("cpu", "300m"), room("cpu", "150m")),
			want: "0/1 super clusters are available: 1 holds no room of namespace web: 150m of 300m cpu used",
		},
		"room in pieces": {
			pod: pod("100m"), status: unfit(2, "", unresolvable, clusters{"r1": noRoom, "r2": noRoom}),
			nodes: snapshot{}.with("r1", room("cpu", "300m"), room("cpu", "250m")).with("r2", room("cpu", "300m"), room("cpu", "220m")),
			want:  "0/2 super clusters are available: 2 hold no room of namespace web: 470m of 600m cpu used, at most 80m free in one",
		},
		"two resources": {
			pod:    podOf("web-0", rooms("1", "1Gi")),
			status: unfit(2, "", unresolvable, clusters{"r1": rejected(fitName, shortOfMemory, shortOfCPU), "r2": rejected(fitName, shortOfMemory)}),
			nodes:  snapshot{}.with("r1", rooms("1", "1Gi"), rooms("1", "1Gi")).with("r2", rooms("2", "1Gi"), rooms("1", "512Mi")),
			want: "0/2 super clusters are available: 1 holds no room of namespace web: 1 of 1 cpu used and 1Gi of 1Gi memory used, " +
				"1 holds no room of namespace web: 512Mi of 1Gi memory used",
		},
		"figures that are not known": {
			pod: pod("1"), status: unfit(2, "", unresolvable, clusters{"r1": noRoom, "r2": noRoom}), nodes: snapshot{}.with("r1", room("cpu", "1"), room("cpu", "1")),
			want: "0/2 super clusters are available: 2 hold no room of namespace web: cpu",
		},
		"no figures at all": {
			pod: pod("1"), status: unfit(1, "", unresolvable, clusters{"r1": rejected(fitName, "Insufficient nvidia.comz2fgpu.slice.tenancy.kubernetes.io/web")}),
			want: "0/1 super clusters are available: 1 holds no room of namespace web: nvidia.com/gpu",
		},
		"taints": {
			pod: pod("1"),
			status: unfit(8, "", unresolvable, clusters{
				"r1": rejected(taintName, untolerated), "r2": rejected(taintName, untolerated), "r3": rejected(taintName, untolerated), "r4": rejected(taintName, untolerated),
				"r5": rejected(taintName, untolerated), "r6": rejected(taintName, untolerated), "r7": rejected(taintName, untolerated), "r8": rejected(taintName, untolerated),
			}),
			nodes: snapshot{}.
				with("r1", nil, nil, taint("maintenance", corev1.TaintEffectNoSchedule)).
				with("r2", nil, nil, taint("maintenance", corev1.TaintEffectNoExecute)).
				with("r3", nil, nil, taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)).
				with("r4", nil, nil, taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)).
				with("r5", nil, nil, taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)).
				with("r6", nil, nil, taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)).
				with("r7", nil, nil, taint(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)),
			want: "0/8 super clusters are available: 2 do not answer, 1 cordoned, 1 drained, 1 not ready, 1 out of service, 1 tainted, " +
				"1 tainted by the operator (maintenance)",
		},
		"only a taint that a pod does not tolerate counts": {
			pod: func() *corev1.Pod {
				pod := pod("1")
				pod.Spec.Tolerations = []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}}
				return pod
			}(),
			status: unfit(1, "", unresolvable, clusters{"r1": rejected(taintName, untolerated)}),
			nodes:  snapshot{}.with("r1", nil, nil, taint("maintenance", corev1.TaintEffectNoSchedule), taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)),
			want:   "0/1 super clusters are available: 1 does not answer",
		},
		"super clusters without placement": {
			pod: pod("1"), status: unfit(3, "", rejected("", "node(s) didn't satisfy plugin(s) [NamespacePlacement]"), clusters{"r1": noRoom}),
			want: "0/3 super clusters are available: 2 hold nothing of namespace web, 1 holds no room of namespace web: cpu",
		},
		"super clusters that were not asked for": {
			pod: asking, status: unfit(3, "", rejected("", "node(s) didn't satisfy plugin(s) [NamespacePlacement]"), clusters{"r1": noRoom}),
			want: "0/3 super clusters are available: 2 not asked for, 1 holds no room of namespace web: cpu",
		},
		"super clusters that other plugins leave out": {
			pod: pod("1"), status: unfit(2, "", rejected("", "node(s) didn't satisfy plugin(s) [NodeAffinity NamespacePlacement]"), nil),
			want: "0/2 super clusters are available: 2 ruled out by NodeAffinity NamespacePlacement",
		},
		"sentences of plugins": {
			pod: pod("1"),
			status: unfit(4, "", unresolvable, clusters{
				"r1": rejected("NodeGroups", "super cluster(s) had no node large enough"), "r2": rejected("Other", "is too far away", "has "+"cpu.slice.tenancy.kubernetes.io/web"),
				"r3": rejected("NodeGroups", "super cluster(s) had no node large enough"), "r4": rejected("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
			}),
			want: "0/4 super clusters are available: 2 have no node large enough, 1 didn't match Pod's node affinity/selector, 1 has cpu of the namespace, 1 is too far away",
		},
		"versions": {
			pod: pod("1"),
			status: unfit(3, "", unresolvable, clusters{
				"r1": rejected("NodeGroups", "super cluster(s) had Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35"),
				"r2": rejected("NodeGroups", "super cluster(s) had Kubernetes 1.34.9, and spec.hostnameOverride needs 1.35"),
				"r3": rejected("NodeGroups", "super cluster(s) had Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35"),
			}),
			want: "0/3 super clusters are available: 2 have Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35, 1 has Kubernetes 1.34.9, and spec.hostnameOverride needs 1.35",
		},
		"what the freest node has is not told": {
			pod: pod("1"),
			status: unfit(2, "", unresolvable, clusters{
				"r1": rejected("NodeShape", "super cluster(s) had no node with 2 cpu free (1 at most) or 8Gi memory free (4Gi at most)"),
				"r2": rejected("NodeShape", "super cluster(s) had no node with 2 cpu free (1500m at most) or 8Gi memory free (1Gi at most)"),
			}),
			want: "0/2 super clusters are available: 2 had no node with 2 cpu free or 8Gi memory free",
		},
		"claims": {
			pod: pod("1"), status: unfit(4, "", unresolvable, clusters{
				"r1": rejected(volumehome.Name, volumehome.ErrReasonNoStorage), "r2": rejected(volumehome.Name, volumehome.ErrReasonNoStorage),
				"r3": rejected(volumehome.Name, volumehome.ErrReasonFailed), "r4": rejected(choicebackoff.Name, choicebackoff.ErrReasonFailed),
			}),
			want: "0/4 super clusters are available: 2 had too little storage of the namespace left for the pod's claims, " +
				"1 did not make the pod's claims when it was chosen lately, 1 did not take the pod when it was chosen lately",
		},
		"a PreFilter": {
			pod: pod("1"), status: unfit(2, "too large", rejected("P", "too large"), nil), want: "0/2 super clusters are available: too large",
		},
		"no super cluster, a pod":   {pod: pod("1"), status: fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(scheduler.ErrNoNodesAvailable), want: namespaceplacement.ErrReasonNoPlacement},
		"no super cluster, a slice": {pod: sliced, status: fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(scheduler.ErrNoNodesAvailable), want: refusal.ErrReasonNoSuperCluster},
		"a policy":                  {pod: pod("1"), status: unfit(0, "schedulerName is not allowed", nil, nil), want: "schedulerName is not allowed"},
		"no FitError":               {pod: pod("1"), status: rejected("P", "no"), want: "no"},
		"no reason":                 {pod: pod("1"), status: unfit(2, "", unresolvable, nil), want: "0/2 super clusters are available"},
		"preemption that does not help": {
			pod: pod("1"), status: after(unfit(1, "", unresolvable, clusters{"r1": noRoom}), "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."),
			want: "0/1 super clusters are available: 1 holds no room of namespace web: cpu",
		},
		"preemption that is not allowed": {
			pod: pod("1"), status: after(unfit(1, "", unresolvable, clusters{"r1": noRoom}), "preemption: not eligible due to preemptionPolicy=Never."),
			want: "0/1 super clusters are available: 1 holds no room of namespace web: cpu; preemption: not eligible due to preemptionPolicy=Never",
		},
		"a policy of the view, for a pod that asks": {
			pod: asking, status: after(unfit(1, "", unresolvable, clusters{"r1": noRoom}), "preemption: not eligible due to preemptionPolicy=Never."),
			want: "0/1 super clusters are available: 1 holds no room of namespace web: cpu",
		},
		"slices: what is free is not told": {
			pod: sliced, status: unfit(3, "", unresolvable, clusters{
				"r1": rejected(fitName, "Insufficient cpu"), "r2": rejected(fitName, "Insufficient cpu"), "r3": rejected(fitName, "Insufficient memory", "Insufficient cpu"),
			}),
			nodes: snapshot{}.with("r1", builders.Resources("cpu", "4"), builders.Resources("cpu", "3950m")),
			want:  "0/3 super clusters are available: 2 have too little free cpu, 1 has too little free cpu and memory",
		},
		"slices: pods are a resource of the pool": {
			pod: sliced, status: unfit(1, "", unresolvable, clusters{"r1": rejected(fitName, "Insufficient "+string(slicepod.ResourcePods))}),
			want: "0/1 super clusters are available: 1 has too little free pods",
		},
		"slices: labels": {
			pod: func() *corev1.Pod {
				pod := sliceOf(nil, nil)
				pod.Spec.NodeSelector = map[string]string{"pool": "shared"}
				return pod
			}(),
			status: unfit(6, "", unresolvable, clusters{
				"r1": rejected("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"), "r2": rejected("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
				"r3": rejected("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"), "r4": rejected("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
				"r5": rejected("PodTopologySpread", "node(s) didn't match pod topology spread constraints"),
				"r6": rejected("PodTopologySpread", "node(s) didn't match pod topology spread constraints (missing required label)"),
			}),
			nodes: snapshot{}.with("r1", nil, nil, label("pool", "shared")).with("r2", nil, nil, label("pool", "shared")).with("r3", nil, nil),
			want: "0/6 super clusters are available: 3 do not match the namespace's node selector, 1 does not fit the namespace's topology spread, " +
				"1 lacks a label of the namespace's topology spread, 1 not for this tenant",
		},
		"slices: the whole pool": {
			pod: sliced, status: unfit(3, "too large", rejected(namespacegang.Name, "too large"), nil),
			nodes: snapshot{}.with("r1", builders.Resources("cpu", "4"), nil, cordon).with("r2", builders.Resources("cpu", "2"), nil).with("r3", builders.Resources("cpu", "2"), nil),
			want:  "0/3 super clusters are available: 2 together have too little free for the namespace: 5 cpu and 3 nvidia.com/gpu, 1 cordoned",
		},
		"slices: the whole pool, without figures": {
			pod: sliced, status: unfit(3, "too large", rejected(namespacegang.Name, "too large"), nil), want: "0/3 super clusters are available: too large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes refusal.Nodes
			if tc.nodes != nil {
				nodes = tc.nodes
			}
			for range 5 { // maps have no order
				require.Equal(t, tc.want, refusal.Of(tc.pod, tc.status, nodes).Message)
			}
		})
	}
}

func TestClusterOf(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"super cluster r2: has too little free cpu: 1": "r2",
		"super cluster a.b-c: cordoned":                "a.b-c",
		"0/3 super clusters are available: 3 cordoned": "",
		"super cluster": "",
		"":              "",
	} {
		require.Equal(t, want, refusal.ClusterOf(message), message)
	}
}

// TestASuperClusterOfOthers: whoever asks for a super cluster that the operator keeps for others, or chooses by its
// name, learns nothing of it.
func TestASuperClusterOfOthers(t *testing.T) {
	t.Parallel()
	total := slice.Amounts{"cpu": 5000}
	short := func() *fwk.Status {
		return unfit(2, "too large", rejected(namespacegang.Name, "too large"), nil)
	}
	only := func(status *fwk.Status) func() *fwk.Status {
		return func() *fwk.Status { return unfit(2, "", unresolvable, clusters{"r2": status}) }
	}
	capacity := builders.Resources("cpu", "1")
	for name, tc := range map[string]struct {
		status  func() *fwk.Status
		change  func(*corev1.Node)
		details string
	}{
		"cordoned": {only(rejected("NodeUnschedulable", unschedulable)), cordon, "cordoned"},
		"skewed":   {only(rejected(taintName, untolerated)), taint(schedulerv1alpha1.TaintVersionSkew, corev1.TaintEffectNoSchedule), "has a version of Kubernetes that the pool does not work with"},
		"tainted":  {only(rejected(taintName, untolerated)), taint("maintenance", corev1.TaintEffectNoSchedule), "tainted by the operator (maintenance)"},
		"labels":   {only(rejected("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")), nil, "not for this tenant"},
		"full":     {only(rejected(fitName, "Insufficient cpu")), nil, "has too little free: 100m cpu wanted, 0 of 1 free"},
		"nodes":    {only(rejected("NodeShape", "super cluster(s) had no node with 2 cpu free (1 at most)")), nil, "had no node with 2 cpu free (1 at most)"},

		"the whole pool is too small":                  {short, nil, "not for this tenant"},
		"the whole pool is too small, and this closed": {short, cordon, "cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.change == nil {
				tc.change = func(*corev1.Node) {}
			}
			nodes := snapshot{}.with("r1", capacity, nil, label("pool", "shared")).with("r2", capacity, capacity, tc.change)
			slice := sliceOf(builders.Resources("cpu", "100m"), total)
			slice.Spec.NodeSelector = map[string]string{"pool": "shared"}
			require.Contains(t, refusal.Of(slice, tc.status(), nodes).Message, "1 not for this tenant")

			slicepod.Pin("r2", slice)
			got := refusal.Of(slice, tc.status(), nodes)
			require.Equal(t, "super cluster r2: it is not in the pool", got.Message)
			require.Contains(t, got.Details(), "r2: "+tc.details, "the operator reads why")
			require.Equal(t, got.Message, refusal.Of(slice, only(rejected(taintName, untolerated))(), nil).Message, "it is not known what it is")
		})
	}
}

// TestDetails is about what the operator reads.
func TestDetails(t *testing.T) {
	t.Parallel()
	sliced := sliceOf(builders.Resources("cpu", "100m"), slice.Amounts{"cpu": 5000})
	nodes := snapshot{}.with("r1", builders.Resources("cpu", "4"), builders.Resources("cpu", "3950m")).with("r2", nil, nil, cordon)
	status := unfit(4, "", rejected("P", "elsewhere"), clusters{
		"r2": rejected("NodeUnschedulable", unschedulable), "r1": rejected(fitName, "Insufficient cpu"), "r3": rejected(fitName, "Insufficient cpu"),
	})
	got := refusal.Of(sliced, status, nodes)
	want := []refusal.ClusterReason{
		{Cluster: "", Plugin: "P", Reason: "elsewhere"},
		{Cluster: "r1", Plugin: fitName, Reason: "has too little free: 100m cpu wanted, 50m of 4 free"},
		{Cluster: "r2", Plugin: "NodeUnschedulable", Reason: "cordoned"},
		{Cluster: "r3", Plugin: fitName, Reason: "has too little free: 100m cpu wanted"},
	}
	require.Empty(t, cmp.Diff(want, got.Clusters))
	require.Equal(t, "0 of 2 slices fit; others: elsewhere; r1: has too little free: 100m cpu wanted, 50m of 4 free; r2: cordoned; r3: has too little free: 100m cpu wanted", got.Details())

	sliced.UID = slicepod.UID("tenant/web@1", 1)
	require.Equal(t, "1 of 2 slices fit", refusal.Of(sliced, status, nodes).Tried())

	pod := refusal.Of(podOf("web-0", room("cpu", "100m")), unfit(1, "", unresolvable, clusters{"r1": rejected(fitName, shortOfCPU)}),
		snapshot{}.with("r1", room("cpu", "100m"), room("cpu", "100m")))
	require.Equal(t, "r1: holds no room of namespace web: 100m of 100m cpu used", pod.Details())
}

// TestMonstrousFigures: a super cluster may report any amount.
func TestMonstrousFigures(t *testing.T) {
	t.Parallel()
	huge := corev1.ResourceList{slicepod.Resource("cpu", "web"): *resource.NewQuantity(1<<62, resource.DecimalSI)}
	nodes := snapshot{}.with("r1", huge, huge).with("r2", huge, huge).with("r3", huge, huge)
	noRoom := rejected(fitName, shortOfCPU)
	got := refusal.Of(podOf("web-0", room("cpu", "1")), unfit(3, "", unresolvable, clusters{"r1": noRoom, "r2": noRoom, "r3": noRoom}), nodes)
	require.NotContains(t, got.Message, "-")
}
