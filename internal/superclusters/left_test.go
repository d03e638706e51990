package superclusters

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
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
			inSuper := builders.Clientset(append(tc.holds, kubeSystem(uid))...)
			if tc.broken {
				inSuper.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("broken") })
			}
			if !tc.away {
				defer controller.measures.serve("r1", &measure{ledger: usage.NewLedger(), touch: func() {}, client: inSuper, uid: "uid-r1"})()
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

// servingNamespaces returns the URL of an API server whose namespace kube-system has that UID, and that lists these
// namespaces besides.
func servingNamespaces(t *testing.T, uid types.UID, namespaces ...corev1.Namespace) string {
	t.Helper()
	serving := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
		list := &corev1.NamespaceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: namespaces}
		if asked.URL.Query().Has("fieldSelector") { // by the name kube-system
			list.Items = []corev1.Namespace{*kubeSystem(uid)}
		}
		writer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(writer).Encode(list)
	}))
	t.Cleanup(serving.Close)
	return serving.URL
}

// TestHolds: a process without connections asks a super cluster by the kubeconfig that its virtual Node leads to, and
// believes the one that it knows.
func TestHolds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// uid is that of the super cluster that answers, and known the one of the virtual Node.
		uid, known types.UID
		holds      []corev1.Namespace
		// secret is whether there is a kubeconfig.
		secret bool
		want   sets.Set[string]
		// wantErr is in the error, "" for none.
		wantErr string
	}{
		{name: "nothing", uid: "uid-r1", known: "uid-r1", secret: true, want: sets.New[string]()},
		{name: "a super namespace", uid: "uid-r1", known: "uid-r1", secret: true, holds: []corev1.Namespace{*superNamespaceOf("uid"), *superNamespaceOf("other")}, want: sets.New("web")},
		{name: "another super cluster answers", uid: "uid-r2", known: "uid-r1", secret: true, holds: []corev1.Namespace{*superNamespaceOf("uid")}, wantErr: "uid-r1"},
		{name: "no super cluster is known", uid: "uid-r1", secret: true, wantErr: "names no super cluster"},
		{name: "no kubeconfig", uid: "uid-r1", known: "uid-r1", wantErr: "the kubeconfig is neither in"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			node := nodeOf("r1", firstCluster)
			node.Annotations[schedulerv1alpha1.AnnotationSuperClusterUID] = string(tc.known)
			objects := []client.Object{node}
			if tc.secret {
				kubeconfig := builders.Kubeconfig(servingNamespaces(t, tc.uid, tc.holds...), "token")
				objects = append(objects, &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: firstCluster.Namespace, Name: firstCluster.Name + kubeconfigSuffix}, Data: map[string][]byte{tenancyv1alpha1.DefaultKubeconfigKey: kubeconfig},
				})
			}
			controller, _ := newController(t, interceptor.Funcs{}, objects...)
			holds, err := controller.Holds(t.Context(), "r1", "vc", "uid")
			require.Equal(t, tc.want, holds)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
		})
	}
}
