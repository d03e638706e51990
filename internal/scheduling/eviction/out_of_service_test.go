package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// tenantNode returns a Node as the syncer of r1 makes it.
func tenantNode(changes ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "r1.n1", UID: "uid", Labels: map[string]string{tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: "r1"},
	}}
	nodeReady(corev1.ConditionTrue, "KubeletReady")(node)
	for _, change := range changes {
		change(node)
	}
	return node
}

func nodeReady(status corev1.ConditionStatus, reason string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason}}
	}
}

func tainted(taints ...corev1.Taint) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, taints...) }
}

func marked(node *corev1.Node) {
	node.Annotations = map[string]string{schedulerv1alpha1.AnnotationOutOfService: "true"}
}

var (
	noExecute    = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	noSchedule   = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoSchedule}
	otherValue   = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "other", Effect: corev1.TaintEffectNoExecute}
	ofGone       = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "ClusterRemoved", Effect: corev1.TaintEffectNoExecute}
	unreachable  = corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	serves       = nodeReady(corev1.ConditionTrue, superclusters.ReasonSuperClusterReady)
	removed      = nodeReady(corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved)
	doesNotServe = nodeReady(corev1.ConditionUnknown, "NodeStatusUnknown")
)

// newOutOfService returns the reconciler, and the virtual Nodes that it reads.
func newOutOfService(api kubernetes.Interface, meta client.Reader) (*OutOfServiceReconciler, map[string]*corev1.Node) {
	nodes := map[string]*corev1.Node{}
	return &OutOfServiceReconciler{
		Key: "tenant", API: api, VirtualNodes: func() map[string]*corev1.Node { return nodes }, Meta: meta, Clock: testingclock.NewFakePassiveClock(schedulingtest.EvictionNow),
	}, nodes
}

// doesNotServeFor makes a Node that has not been Ready for d.
func doesNotServeFor(d time.Duration) func(*corev1.Node) {
	return func(node *corev1.Node) {
		doesNotServe(node)
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(schedulingtest.EvictionNow.Add(-d))
	}
}

func TestOutOfService(t *testing.T) {
	t.Parallel()
	type change = func(*corev1.Node)
	for _, tc := range []struct {
		name string
		// virtual changes the virtual Node of r1; nil: there is none.
		virtual []change
		// stored is whether the meta cluster has it all the same.
		stored bool
		node   []change
		// want are the taints, and the mark, that the Node is to have; nil: it stays as it is.
		want      []change
		wantAgain time.Duration
	}{
		{name: "it serves", virtual: []change{serves}},
		{name: "declared", virtual: []change{serves, tainted(noExecute)}, want: []change{tainted(noExecute), marked}},
		{name: "declared with another effect", virtual: []change{tainted(noSchedule)}, want: []change{tainted(noExecute), marked}},
		{
			name: "other taints stay", virtual: []change{tainted(unreachable, noExecute)}, node: []change{tainted(unreachable)},
			want: []change{tainted(unreachable, noExecute), marked},
		},
		{name: "declared before", virtual: []change{tainted(noExecute)}, node: []change{tainted(noExecute), marked}},
		{name: "another value", virtual: []change{tainted(noExecute)}, node: []change{tainted(otherValue), marked}, want: []change{tainted(noExecute), marked}},
		{name: "the tenant took it off", virtual: []change{tainted(noExecute)}, node: []change{marked}, want: []change{tainted(noExecute), marked}},
		{name: "the tenant's own taint", virtual: []change{tainted(noExecute)}, node: []change{tainted(otherValue)}},
		{name: "over", virtual: []change{serves}, node: []change{tainted(unreachable, noExecute), marked}, want: []change{tainted(unreachable)}},
		{name: "over, and it does not serve", virtual: []change{doesNotServe}, node: []change{doesNotServe, tainted(noExecute), marked}, want: []change{doesNotServe}},
		{name: "over, the tenant's own taint stays", virtual: []change{serves}, node: []change{tainted(noExecute)}},
		{name: "over, and the taint is gone", virtual: []change{serves}, node: []change{marked}, want: []change{}},
		{name: "not known", node: []change{tainted(noExecute), marked}, wantAgain: dispatch.GoneCheckPeriod},
		{name: "not known, and it serves", wantAgain: dispatch.GoneCheckPeriod},
		{name: "not known, it does not serve for a moment", node: []change{doesNotServeFor(dispatch.GonePatience - 1)}, wantAgain: dispatch.GoneCheckPeriod},
		{name: "not known, it does not serve for long", node: []change{doesNotServeFor(dispatch.GonePatience)}, want: []change{doesNotServeFor(dispatch.GonePatience), tainted(ofGone), marked}, wantAgain: dispatch.GoneCheckPeriod},
		{name: "not known by the cache alone, it does not serve for long", stored: true, node: []change{doesNotServeFor(time.Hour)}},
		{name: "lost", virtual: []change{doesNotServe}, node: []change{doesNotServe}},
		{
			name: "gone, and it does not answer", virtual: []change{removed}, node: []change{doesNotServe},
			want: []change{doesNotServe, tainted(ofGone), marked}, wantAgain: dispatch.GoneCheckPeriod,
		},
		{name: "gone, and it answers", virtual: []change{removed}, wantAgain: dispatch.GoneCheckPeriod},
		{
			name: "gone, and it answers again", virtual: []change{removed}, node: []change{tainted(ofGone), marked},
			want: []change{}, wantAgain: dispatch.GoneCheckPeriod,
		},
		{
			name: "a Node that no syncer has made", virtual: []change{tainted(noExecute)},
			node: []change{func(node *corev1.Node) { delete(node.Labels, tenancyv1alpha1.LabelTenantNode) }},
		},
		{
			name: "a Node of another name", virtual: []change{tainted(noExecute)},
			node: []change{func(node *corev1.Node) { node.Name = "r2.n1" }},
		},
		{
			name: "a Node of another super cluster", virtual: []change{tainted(noExecute)},
			node: []change{func(node *corev1.Node) { node.Labels[tenancyv1alpha1.LabelSuperClusterID] = "r2" }},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := tenantNode(tc.node...)
			api := builders.Clientset(before.DeepCopy())
			meta := builders.Client(schedulingtest.MetaScheme(t))
			if tc.stored {
				meta = meta.WithObjects(builders.VirtualNode("r1").Obj())
			}
			r, nodes := newOutOfService(api, meta.Build())
			if tc.virtual != nil {
				virtual := builders.VirtualNode("r1").Obj()
				for _, change := range tc.virtual {
					change(virtual)
				}
				nodes["r1"] = virtual
			}
			want := before
			if tc.want != nil {
				want = tenantNode(tc.want...)
			}
			for range 2 { // the second time nothing is left to do
				api.ClearActions()
				result, err := r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernOutOfService})
				require.NoError(t, err)
				require.Equal(t, tc.wantAgain, result.RequeueAfter)
				after, err := api.CoreV1().Nodes().Get(t.Context(), before.Name, metav1.GetOptions{})
				require.NoError(t, err)
				after.ResourceVersion, after.ManagedFields = "", nil
				if len(after.Annotations) == 0 {
					after.Annotations = nil
				}
				if len(after.Spec.Taints) == 0 {
					after.Spec.Taints = nil
				}
				require.Empty(t, cmp.Diff(want, after))
			}
			for _, action := range api.Actions() {
				require.NotEqual(t, "patch", action.GetVerb(), "a second time")
			}
		})
	}
}

// TestNodesOfGoneSuperClusters: the Nodes of a super cluster that is gone without an answer are deleted once they have
// been out of service for long, and the tenant has nothing there.
func TestNodesOfGoneSuperClusters(t *testing.T) {
	t.Parallel()
	long := doesNotServeFor(goneNodePatience)
	for name, tc := range map[string]struct {
		node   []func(*corev1.Node)
		meta   []client.Object
		cached bool
		fails  bool
		want   bool
	}{
		"gone":                            {node: []func(*corev1.Node){long, tainted(ofGone), marked}, want: true},
		"not for long":                    {node: []func(*corev1.Node){doesNotServeFor(goneNodePatience - 1), tainted(ofGone), marked}},
		"not out of service yet":          {node: []func(*corev1.Node){long}},
		"it serves":                       {node: []func(*corev1.Node){tainted(ofGone), marked}},
		"the tenant's own":                {node: []func(*corev1.Node){long, tainted(ofGone), marked, func(node *corev1.Node) { node.Labels = nil }}},
		"a virtual Node is stored":        {node: []func(*corev1.Node){long, tainted(ofGone), marked}, meta: []client.Object{builders.VirtualNode("r1").Obj()}},
		"a virtual Node is known":         {node: []func(*corev1.Node){long, tainted(ofGone), marked}, cached: true},
		"something is placed there":       {node: []func(*corev1.Node){long, tainted(ofGone), marked}, meta: []client.Object{builders.Placement("tenant", "web").Held("r1", 1, "cpu", "1").Obj()}},
		"something is placed elsewhere":   {node: []func(*corev1.Node){long, tainted(ofGone), marked}, meta: []client.Object{builders.Placement("tenant", "web").Held("r2", 1, "cpu", "1").Obj()}, want: true},
		"another tenant has something":    {node: []func(*corev1.Node){long, tainted(ofGone), marked}, meta: []client.Object{builders.Placement("other", "web").Held("r1", 1, "cpu", "1").Obj()}, want: true},
		"the meta cluster cannot be read": {node: []func(*corev1.Node){long, tainted(ofGone), marked}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := builders.Clientset(tenantNode(tc.node...))
			scheme := schedulingtest.MetaScheme(t)
			if tc.fails {
				scheme = runtime.NewScheme()
			}
			r, nodes := newOutOfService(api, builders.Client(scheme).WithObjects(tc.meta...).Build())
			if tc.cached {
				nodes["r1"] = builders.VirtualNode("r1").Obj()
			}
			_, err := r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernOutOfService})
			require.Equal(t, tc.fails, err != nil)
			_, err = api.CoreV1().Nodes().Get(t.Context(), "r1.n1", metav1.GetOptions{})
			require.Equal(t, tc.want, apierrors.IsNotFound(err))
		})
	}
}

// TestOutOfServiceReadsNothing when no virtual Node says anything and the last pass met no taint of ours.
func TestOutOfServiceReadsNothing(t *testing.T) {
	t.Parallel()
	api := builders.Clientset(tenantNode(tainted(noExecute), marked))
	r, nodes := newOutOfService(api, clientfake.NewFakeClient())
	lists := func(want int) {
		t.Helper()
		api.ClearActions()
		_, err := r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernOutOfService})
		require.NoError(t, err)
		got := 0
		for _, action := range api.Actions() {
			if action.GetVerb() == "list" {
				got++
			}
		}
		require.Equal(t, want, got)
	}
	lists(1) // a taint of ours, and the virtual Node is not known
	nodes["r1"] = builders.VirtualNode("r1").Obj()
	lists(1) // it is taken off
	lists(0)
	lists(0)
	virtual := builders.VirtualNode("r1").Obj()
	tainted(noExecute)(virtual)
	nodes["r1"] = virtual
	lists(1)
	lists(1)
}

// TestOutOfServicePages: each reconcile reads one page, a change of what virtual Nodes say begins anew, and a conflict
// is tried again.
func TestOutOfServicePages(t *testing.T) {
	t.Parallel()
	api := builders.Clientset()
	var asked []string
	api.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).GetListOptions()
		require.EqualValues(t, nodesPerPage, options.Limit)
		asked = append(asked, options.Continue)
		page := &corev1.NodeList{ListMeta: metav1.ListMeta{Continue: map[string]string{"": "2", "2": "3"}[options.Continue]}}
		if options.Continue == "expired" {
			return true, nil, apierrors.NewResourceExpired("too old")
		}
		page.Items = []corev1.Node{*tenantNode(func(node *corev1.Node) { node.Name = fmt.Sprintf("r1.n%s", options.Continue) })}
		return true, page, nil
	})
	var patched []string
	var fails error
	api.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patched = append(patched, action.(clienttesting.PatchAction).GetName())
		return true, nil, fails
	})
	r, nodes := newOutOfService(api, clientfake.NewFakeClient())
	declare := func(taint corev1.Taint) {
		virtual := builders.VirtualNode("r1").Obj()
		tainted(taint)(virtual)
		nodes["r1"] = virtual
	}
	step := func() (reconcile.Result, error) {
		return r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernOutOfService})
	}

	declare(noExecute)
	for _, want := range []time.Duration{pageDelay, pageDelay, 0} {
		result, err := step()
		require.NoError(t, err)
		require.Equal(t, want, result.RequeueAfter)
	}
	require.Equal(t, []string{"", "2", "3"}, asked)
	require.Equal(t, []string{"r1.n", "r1.n2", "r1.n3"}, patched)

	asked = nil
	_, err := step()
	require.NoError(t, err)
	declare(otherValue)
	_, err = step()
	require.NoError(t, err)
	fails = apierrors.NewConflict(corev1.Resource("nodes"), "r1.n2", errors.New("changed"))
	_, err = step()
	require.True(t, apierrors.IsConflict(err), "%v", err)
	fails = apierrors.NewNotFound(corev1.Resource("nodes"), "r1.n2")
	_, err = step()
	require.NoError(t, err)
	require.Equal(t, []string{"", "", "2", "2"}, asked)

	r.next = "expired"
	_, err = step()
	require.Error(t, err)
	asked = nil
	_, err = step()
	require.NoError(t, err)
	require.Equal(t, []string{""}, asked)
}

// TestDispatcherTellsWhatIsOutOfService: a change of the taint or of the reason reaches the tenants, a heartbeat does
// not.
func TestDispatcherTellsWhatIsOutOfService(t *testing.T) {
	t.Parallel()
	told := 0
	d := dispatch.New(false)
	d.Subscribe("tenant", dispatch.Subscriber{NodesChanged: func() { told++ }})
	node := builders.VirtualNode("r1").Obj()
	for i, change := range []func(*corev1.Node){
		nodeReady(corev1.ConditionUnknown, superclusters.ReasonSuperClusterUnreachable), removed, tainted(noSchedule),
		func(node *corev1.Node) { node.Spec.Taints[len(node.Spec.Taints)-1].Value = "other" },
	} {
		node = node.DeepCopy()
		change(node)
		d.Node(node, false)
		require.Equal(t, i+1, told)
		beat := node.DeepCopy()
		beat.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(schedulingtest.EvictionNow)
		d.Node(beat, false)
		require.Equal(t, i+1, told)
	}
}
