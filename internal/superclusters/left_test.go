package superclusters

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// superNamespaceOf is a super namespace of the VirtualCluster with that UID and cluster key "vc".
func superNamespaceOf(uid types.UID) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vc-web"}}
	tenancy.SetOwner(namespace, tenancy.Owner{
		ClusterKey: "vc", VirtualCluster: types.NamespacedName{Namespace: "acme", Name: "vc"}, VirtualClusterUID: uid, Namespace: "web", UID: "web-uid",
	})
	return namespace
}

// TestLeft: a super cluster of the pool that holds anything of a VirtualCluster, or does not say that it holds nothing,
// is left.
func TestLeft(t *testing.T) {
	t.Parallel()
	removed := nodeOf("r1", firstCluster)
	removed.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: schedulerv1alpha1.ReasonClusterRemoved}}
	terminating := superNamespaceOf("uid")
	terminating.DeletionTimestamp = &metav1.Time{}
	unowned := superNamespaceOf("uid")
	unowned.Annotations = nil
	for _, tc := range []struct {
		name string
		node *corev1.Node
		// holds are the objects of the super cluster besides the namespace kube-system.
		holds []runtime.Object
		// away is whether it is not served, silent whether it is and does not answer.
		away, silent, broken bool
		// uid is that of the super cluster, if not the one that was found before.
		uid  types.UID
		want []string
	}{
		{name: "it holds nothing"},
		{name: "it holds a super namespace", holds: []runtime.Object{superNamespaceOf("uid")}, want: []string{"r1"}},
		{name: "it holds one that is being deleted", holds: []runtime.Object{terminating}, want: []string{"r1"}},
		{name: "it holds one of another VirtualCluster", holds: []runtime.Object{superNamespaceOf("other")}},
		{name: "it holds one that nobody made for a tenant", holds: []runtime.Object{unowned}},
		{name: "it is not served", away: true, want: []string{"r1"}},
		{name: "it does not answer", silent: true, want: []string{"r1"}},
		{name: "it does not list", broken: true, want: []string{"r1"}},
		{name: "it is another one", uid: "uid-r2", want: []string{"r1"}},
		{name: "its Cluster is gone", node: removed, holds: []runtime.Object{superNamespaceOf("uid")}},
		{name: "its Cluster is gone, and it is away", node: removed, away: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			node, uid := tc.node, tc.uid
			if node == nil {
				node = nodeOf("r1", firstCluster)
			}
			if uid == "" {
				uid = "uid-r1"
			}
			controller, _ := newController(t, interceptor.Funcs{}, node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-node-of-the-meta-cluster"}})
			inSuper := fake.NewClientset(append(tc.holds, kubeSystem(uid))...)
			if tc.broken {
				inSuper.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("broken") })
			}
			if !tc.away {
				defer controller.measures.serve("r1", &measure{ledger: NewLedger(), touch: func() {}, client: inSuper, uid: "uid-r1"})()
				controller.measures.setAnswers("r1", !tc.silent)
			}
			left, err := controller.Left(t.Context(), "vc", "uid")
			require.NoError(t, err)
			require.Equal(t, tc.want, left)
		})
	}
}

// TestLeftWithoutNodes: which super clusters there are is not known, so nothing is.
func TestLeftWithoutNodes(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	controller, _ := newController(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }})
	_, err := controller.Left(t.Context(), "vc", "uid")
	require.ErrorIs(t, err, broken)
}
