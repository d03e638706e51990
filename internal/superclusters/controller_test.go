package superclusters

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/superclusters/warnings"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

var firstCluster = types.NamespacedName{Namespace: "default", Name: "first"}

// newController returns a Controller over a meta cluster that serves Clusters and holds these objects.
func newController(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*Controller, *record.FakeRecorder) {
	t.Helper()
	kind := clusterGroupKind().WithVersion(clusterVersions()[0])
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), schedulerv1alpha1.AddToScheme(s), tenancyv1alpha1.AddToScheme(s), metav1.AddMetaToScheme(s)))
	s.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
	s.AddKnownTypeWithName(kind.GroupVersion().WithKind("ClusterList"), &metav1.PartialObjectMetadataList{})
	recorder := record.NewFakeRecorder(10)
	controller := &Controller{
		Client: builders.Client(s).WithObjects(objects...).WithStatusSubresource(&corev1.Node{}).
			WithInterceptorFuncs(funcs).Build(),
		Recorder: recorder,
	}
	controller.setDefaults()
	controller.kind.Store(&kind)
	return controller, recorder
}

func clusterNamed(name string) *metav1.PartialObjectMetadata {
	cluster := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: builders.UID(name)}}
	cluster.SetGroupVersionKind(clusterGroupKind().WithVersion(clusterVersions()[0]))
	return cluster
}

// nodeOf is a virtual Node that says which Cluster it stands for.
func nodeOf(id string, cluster types.NamespacedName) *corev1.Node {
	return builders.VirtualNode(id, "cpu", "4").Annotation(AnnotationClusterRef, cluster.String()).Obj()
}

func TestFindKubeconfig(t *testing.T) {
	t.Parallel()
	good := builders.Kubeconfig("https://r1:6443", "token")
	secret := func(name, key string, data []byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{key: data}}
	}
	for _, tc := range []struct {
		name        string
		objects     []client.Object
		wantHost    string
		wantReason  string
		wantMessage string // part of it
	}{
		{name: "of Cluster API", objects: []client.Object{secret("first-kubeconfig", "value", good)}, wantHost: "https://r1:6443"},
		{name: "of the demo", objects: []client.Object{secret("first", "admin-kubeconfig", good)}, wantHost: "https://r1:6443"},
		{
			name: "Cluster API's wins", wantHost: "https://r1:6443",
			objects: []client.Object{secret("first-kubeconfig", "value", good), secret("first", "admin-kubeconfig", builders.Kubeconfig("https://other", "t"))},
		},
		{name: "none", wantReason: ReasonSecretNotFound, wantMessage: "neither in Secret first-kubeconfig, key value, nor in Secret first, key admin-kubeconfig"},
		{
			name: "other keys", objects: []client.Object{secret("first-kubeconfig", "config", good)},
			wantReason: ReasonSecretNotFound, wantMessage: `Secret first-kubeconfig has only the keys ["config"]`,
		},
		{
			name: "the first has no key, the second has it", wantHost: "https://r1:6443",
			objects: []client.Object{secret("first-kubeconfig", "config", nil), secret("first", "admin-kubeconfig", good)},
		},
		{name: "nonsense", objects: []client.Object{secret("first-kubeconfig", "value", []byte("{{{"))}, wantReason: ReasonInvalidKubeconfig},
		{name: "empty", objects: []client.Object{secret("first-kubeconfig", "value", nil)}, wantReason: ReasonInvalidKubeconfig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			controller, _ := newController(t, interceptor.Funcs{}, tc.objects...)
			config, data, trouble, err := controller.readSecret(t.Context(), firstCluster)
			require.NoError(t, err)
			require.Equal(t, tc.wantReason, trouble.Reason)
			require.Contains(t, trouble.Message, tc.wantMessage)
			if tc.wantReason != "" {
				require.Nil(t, config)
				return
			}
			require.Equal(t, tc.wantHost, config.Host)
			require.Equal(t, good, data, "the fingerprint of the connection is of what was read")
		})
	}
}

// TestReconcileATrouble: a Cluster whose kubeconfig is missing keeps its Node, which schedulers then avoid, and says
// so once.
func TestReconcileATrouble(t *testing.T) {
	t.Parallel()
	other := types.NamespacedName{Namespace: "default", Name: "other"}
	controller, recorder := newController(t, interceptor.Funcs{}, clusterNamed("first"), nodeOf("r1", firstCluster), nodeOf("r2", other))
	for range 2 {
		result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: firstCluster})
		require.NoError(t, err)
		require.Equal(t, reconcile.Result{RequeueAfter: warnings.Period}, result)
	}
	require.Contains(t, <-recorder.Events, "Warning SecretNotFound ")
	require.Empty(t, recorder.Events)
	ready := map[string]string{}
	for _, id := range []string{"r1", "r2"} {
		node := &corev1.Node{}
		require.NoError(t, controller.Client.Get(t.Context(), client.ObjectKey{Name: id}, node))
		ready[id] = string(node.Status.Conditions[0].Status) + "/" + node.Status.Conditions[0].Reason
		require.Equal(t, "4", node.Status.Allocatable.Cpu().String(), "what it offered stays")
	}
	require.Empty(t, cmp.Diff(map[string]string{"r1": "Unknown/" + ReasonSecretNotFound, "r2": "True/"}, ready))
}

// TestClustersThatAreNotSelected are none of vc-scheduler's business: nobody hears of them, no id waits for them, and
// nothing that is placed in a super cluster waits for what they may be. One that is a super cluster stays one, and says
// what it lacks, once.
func TestClustersThatAreNotSelected(t *testing.T) {
	t.Parallel()
	selected, is, never := clusterNamed("selected"), clusterNamed("is"), clusterNamed("never")
	selected.Labels = map[string]string{"pool": "superpool"}
	selected.CreationTimestamp = metav1.NewTime(time.Unix(2_000_000_000, 0))
	ofNobody := nodeOf("r2", types.NamespacedName{Namespace: "default", Name: "deleted"})
	controller, recorder := newController(t, interceptor.Funcs{}, selected, is, never, nodeOf("r1", client.ObjectKeyFromObject(is)), ofNobody)
	controller.Selector = labels.SelectorFromSet(labels.Set{"pool": "superpool"})
	reconciled := func(cluster *metav1.PartialObjectMetadata) reconcile.Result {
		result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		require.NoError(t, err)
		return result
	}
	require.Zero(t, reconciled(never))
	require.Empty(t, recorder.Events)
	for range 2 {
		require.Equal(t, reconcile.Result{RequeueAfter: warnings.Period}, reconciled(is))
	}
	require.Contains(t, <-recorder.Events, "Warning ClusterNotSelected The labels of this Cluster do not match --cluster-selector pool=superpool of vc-scheduler")
	require.Contains(t, <-recorder.Events, "Warning SecretNotFound ", "it is connected to as any other")
	require.Empty(t, recorder.Events)
	require.False(t, controller.isGone(t.Context(), "r1"))

	wait, err := controller.tryAcquire(t.Context(), client.ObjectKeyFromObject(selected), "r3", "uid", true)
	require.NoError(t, err)
	require.False(t, wait, "the others are older, and were not tried")
	require.True(t, controller.isGone(t.Context(), "r2"), "the one that is never selected has no id")
	require.NoError(t, controller.Client.Delete(t.Context(), ofNobody))
	require.False(t, controller.isGone(t.Context(), "r2"), "without its virtual Node nobody knows whose it was")

	for _, set := range []map[string]string{selected.Labels, nil} {
		current := clusterNamed(is.Name)
		require.NoError(t, controller.Client.Get(t.Context(), client.ObjectKeyFromObject(is), current))
		current.Labels = set
		require.NoError(t, controller.Client.Update(t.Context(), current))
		reconciled(is)
	}
	require.Contains(t, <-recorder.Events, "Warning ClusterNotSelected ", "it is new again")
}

// TestReconcileBeforeClustersAreServed writes nothing.
func TestReconcileBeforeClustersAreServed(t *testing.T) {
	t.Parallel()
	controller, recorder := newController(t, interceptor.Funcs{}, nodeOf("r1", firstCluster))
	controller.kind.Store(nil)
	result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: firstCluster})
	require.NoError(t, err)
	require.Zero(t, result)
	require.Empty(t, recorder.Events)
	require.NoError(t, controller.Client.Get(t.Context(), client.ObjectKey{Name: "r1"}, &corev1.Node{}), "its Cluster may exist")
	all, err := controller.clusters(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

func addressesOf(namespace, id string) *tenancyv1alpha1.ClusterAddresses {
	return &tenancyv1alpha1.ClusterAddresses{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}}
}

// TestReconcileADeletedCluster deletes its virtual Nodes and Leases, once nothing is placed there.
func TestReconcileADeletedCluster(t *testing.T) {
	t.Parallel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: "r1"}}
	broken := errors.New("connection reset by peer")
	conflict := apierrors.NewConflict(corev1.Resource("nodes"), "r1", errors.New("changed"))
	deleting := func(kind client.Object, err error) interceptor.Funcs {
		return interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if reflect.TypeOf(o) == reflect.TypeOf(kind) {
				return err
			}
			return c.Delete(ctx, o, options...)
		}}
	}
	for _, tc := range []struct {
		name      string
		funcs     interceptor.Funcs
		objects   []client.Object
		wantErr   string
		wantAgain bool
		wantNode  string // status and reason of the Ready condition, "" when the Node is gone
		wantLease bool
	}{
		{name: "nothing is placed there", objects: []client.Object{lease}},
		{name: "no Lease"},
		{name: "a placement elsewhere", objects: []client.Object{builders.Placement("vc", "web").Held("r2", 1).Obj()}},
		{
			name: "a namespace is placed there", objects: []client.Object{lease, builders.Placement("vc", "web").Held("r2", 1).Held("r1", 1).Obj()},
			wantAgain: true, wantNode: "Unknown/" + schedulerv1alpha1.ReasonClusterRemoved, wantLease: true,
		},
		{name: "another wrote the Node", funcs: deleting(&corev1.Node{}, conflict), objects: []client.Object{lease}, wantAgain: true, wantNode: "True/", wantLease: true},
		{
			name: "the Node cannot be deleted", funcs: deleting(&corev1.Node{}, broken), objects: []client.Object{lease},
			wantErr: "deleting virtual Node r1: connection reset by peer", wantNode: "True/", wantLease: true,
		},
		{
			name: "the Lease cannot be deleted", funcs: deleting(lease, broken), objects: []client.Object{lease},
			wantErr: "deleting Lease kube-node-lease/r1: connection reset by peer", wantLease: true,
		},
		{
			name: "placements cannot be listed", wantErr: "listing placements: connection reset by peer", wantNode: "True/",
			funcs: interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, placements := list.(*schedulerv1alpha1.NamespacePlacementList); placements {
					return broken
				}
				return c.List(ctx, list, options...)
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			told, others := addressesOf("acme", "r1"), addressesOf("acme", "r2")
			controller, _ := newController(t, tc.funcs, append(tc.objects, nodeOf("r1", firstCluster), told, others)...)
			result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: firstCluster})
			if tc.wantErr != "" {
				require.EqualError(t, err, tc.wantErr)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.wantAgain, result.RequeueAfter == retireRetryAfter)
			node, got := &corev1.Node{}, ""
			if err := controller.Client.Get(t.Context(), client.ObjectKey{Name: "r1"}, node); err == nil {
				got = string(node.Status.Conditions[0].Status) + "/" + node.Status.Conditions[0].Reason
			}
			require.Equal(t, tc.wantNode, got)
			if tc.wantNode == "" {
				require.Error(t, controller.Client.Get(t.Context(), client.ObjectKeyFromObject(told), &tenancyv1alpha1.ClusterAddresses{}))
			}
			require.NoError(t, controller.Client.Get(t.Context(), client.ObjectKeyFromObject(others), &tenancyv1alpha1.ClusterAddresses{}))
			err = controller.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), &coordinationv1.Lease{})
			require.Equal(t, tc.wantLease, err == nil, "%v", err)
		})
	}
}

// TestTheLastNamespaceRetiresTheNode: what waits for it is not left to the next look.
func TestTheLastNamespaceRetiresTheNode(t *testing.T) {
	t.Parallel()
	web, api := builders.Placement("vc", "web").Held("r1", 1, "cpu", "1").Obj(), builders.Placement("vc", "api").Held("r1", 1, "cpu", "1").Obj()
	controller, _ := newController(t, interceptor.Funcs{}, web, api, nodeOf("r1", firstCluster))
	var woken []types.NamespacedName
	controller.supervisor.OnChange(func(name types.NamespacedName) { woken = append(woken, name) })
	for _, np := range []*schedulerv1alpha1.NamespacePlacement{web, api} {
		controller.measures.reserve(nil, np)
	}
	_, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: firstCluster})
	require.NoError(t, err)
	for _, np := range []*schedulerv1alpha1.NamespacePlacement{web, api} {
		require.Empty(t, woken)
		require.NoError(t, controller.Client.Delete(t.Context(), np))
		controller.measures.reserve(np, nil)
	}
	require.Equal(t, []types.NamespacedName{firstCluster}, woken)

	result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: firstCluster})
	require.NoError(t, err)
	require.Zero(t, result.RequeueAfter)
	controller.measures.reserve(web, nil)
	require.Len(t, woken, 1, "nothing waits any more")
}

// TestReportRetiresOtherIDs: a Cluster that was given another id keeps the Node of that id alone.
func TestReportRetiresOtherIDs(t *testing.T) {
	t.Parallel()
	controller, _ := newController(t, interceptor.Funcs{}, nodeOf("r1", firstCluster), nodeOf("r2", firstCluster), nodeOf("r3", types.NamespacedName{Namespace: "default", Name: "third"}))
	_, err := controller.retire(t.Context(), firstCluster, "r2")
	require.NoError(t, err)
	var nodes corev1.NodeList
	require.NoError(t, controller.Client.List(t.Context(), &nodes))
	var left []string
	for i := range nodes.Items {
		left = append(left, nodes.Items[i].Name)
	}
	require.Equal(t, []string{"r2", "r3"}, left)
}

// TestReadStorage: an operator's slip keeps the storage that was valid last, and the headroom as it is now.
func TestReadStorage(t *testing.T) {
	t.Parallel()
	controller, recorder := newController(t, interceptor.Funcs{})
	read := func(storage, headroom string) string {
		cluster := clusterNamed("first")
		cluster.Annotations = map[string]string{schedulerv1alpha1.AnnotationStorage: storage, schedulerv1alpha1.AnnotationHeadroom: headroom}
		said := controller.readDeclared(cluster)
		if said.Storage != nil && *said.Storage == 0 {
			return "none"
		}
		return said.Headroom.Apply(said.Of(usage.Capacity{}).Offered).String()
	}
	require.Equal(t, "none", read("much", ""), "none was valid yet: nothing is given away")
	require.Contains(t, <-recorder.Events, "Warning InvalidStorage Annotation "+schedulerv1alpha1.AnnotationStorage)
	require.Equal(t, "storage=10Gi", read("10Gi", ""))
	require.Equal(t, "storage=9Gi", read("much", `{"storage":"1Gi"}`))
	require.Contains(t, <-recorder.Events, "Warning InvalidStorage", "the trouble is new again")
	require.Empty(t, read("", ""))
}

// TestReadHeadroom: an operator's slip keeps the headroom that was valid last.
func TestReadHeadroom(t *testing.T) {
	t.Parallel()
	controller, recorder := newController(t, interceptor.Funcs{})
	offered := builders.Resources("cpu", "10")
	read := func(annotation string) string {
		cluster := clusterNamed("first")
		cluster.Annotations = map[string]string{schedulerv1alpha1.AnnotationHeadroom: annotation}
		said := controller.readDeclared(cluster)
		return said.Headroom.Apply(amounts(offered)).String()
	}
	require.Equal(t, "cpu=10", read("many"), "none was valid yet")
	require.Contains(t, <-recorder.Events, "Warning InvalidHeadroom Annotation "+schedulerv1alpha1.AnnotationHeadroom)
	require.Equal(t, "cpu=9", read(`{"cpu":"10%"}`))
	require.Equal(t, "cpu=9", read("many"))
	require.Len(t, recorder.Events, 1, "the trouble is new again")
	<-recorder.Events
	require.Equal(t, "cpu=9", read("many"))
	require.Empty(t, recorder.Events)
	controller.forget(firstCluster)
	require.Equal(t, "cpu=10", read("many"), "another Cluster of that name begins anew")
	require.Equal(t, "cpu=10", read(""))
}

// TestNodeReason: of the troubles of a Cluster that works on no super cluster, its virtual Nodes tell, and only one
// that does not answer is silent for the Evacuator.
func TestNodeReason(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		trouble, want string
		silent        bool
	}{
		{trouble: ReasonUnreachable, want: "SuperClusterUnreachable", silent: true},
		{trouble: ReasonSecretNotFound, want: "SecretNotFound"},
	} {
		t.Run(tc.trouble, func(t *testing.T) {
			t.Parallel()
			controller, _ := newController(t, interceptor.Funcs{}, nodeOf("r1", firstCluster))
			_, err := controller.report(t.Context(), clusterNamed(firstCluster.Name), "", tenancy.Reason{Reason: tc.trouble, Message: "why"})
			require.NoError(t, err)
			node := &corev1.Node{}
			require.NoError(t, controller.Client.Get(t.Context(), client.ObjectKey{Name: "r1"}, node))
			ready := findCondition(node, corev1.NodeReady)
			require.NotNil(t, ready)
			require.Equal(t, []string{string(corev1.ConditionUnknown), tc.want, "why"}, []string{string(ready.Status), ready.Reason, ready.Message})
			require.Equal(t, tc.silent, !NodeStateOf(node).SilentSince.IsZero())
		})
	}
}

func TestParseName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]types.NamespacedName{
		"": {}, "a": {Namespace: "a"}, "a/b": {Namespace: "a", Name: "b"}, "a/b/c": {Namespace: "a", Name: "b/c"}, "/b": {Name: "b"},
	} {
		require.Equal(t, want, parseName(text), text)
	}
}

// TestPublishOverAnotherWriter: a conflict is tried again with the newer Node, and what the other wrote stays.
func TestPublishOverAnotherWriter(t *testing.T) {
	t.Parallel()
	writes := 0
	controller, _ := newController(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if writes++; writes == 1 {
				newer := &corev1.Node{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), newer); err != nil {
					return err
				}
				newer.Spec.Unschedulable = true
				if err := c.Update(ctx, newer); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, patch, options...)
		},
	}, builders.VirtualNode("r1").Obj())
	_, err := controller.writer.publish(t.Context(), desired("east", "1"), nil)
	require.NoError(t, err)
	require.Equal(t, 2, writes)
	node := &corev1.Node{}
	require.NoError(t, controller.Client.Get(t.Context(), client.ObjectKey{Name: "r1"}, node))
	require.True(t, node.Spec.Unschedulable)
	require.Equal(t, "east", node.Labels[corev1.LabelTopologyRegion])
}

// TestAcquireADuplicate: two super clusters that say to have one id must not write one Node in turn.
func TestAcquireADuplicate(t *testing.T) {
	t.Parallel()
	other := types.NamespacedName{Namespace: "default", Name: "other"}
	controller, _ := newController(t, interceptor.Funcs{}, clusterNamed("first"), clusterNamed("other"), nodeOf("r1", other))
	_, err := controller.tryAcquire(t.Context(), firstCluster, "r1", "u", true)
	require.ErrorContains(t, err, `super cluster id "r1" belongs to Cluster default/other`)
	wait, err := controller.tryAcquire(t.Context(), other, "r1", "u", true)
	require.NoError(t, err)
	require.False(t, wait)
}
