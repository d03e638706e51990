package syncer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/test/builders"
)

var r1 = Identity{ID: "r1", UID: "uid-1"}

// virtualNode is the Node of r1 in the meta cluster, with that UID; "" for none recorded.
func virtualNode(uid string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}
	if uid != "" {
		node.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperClusterUID: uid}
	}
	return node
}

func infoWith(id string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}, Data: map[string]string{"id": id}}
}

func reader(err error, objects ...client.Object) client.Client {
	return builders.Client(scheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err != nil {
				return err
			}
			return to.Get(ctx, name, object, options...)
		},
	}).Build()
}

// TestIdentity holds a super cluster against what the meta cluster records, at the start and while it is synced.
func TestIdentity(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name         string
		node         []client.Object
		metaErr      error
		superErr     error
		id           string
		wantRecorded bool
		// wantRefused is whether it is refused, wantEnd whether a syncer that works on it ends.
		wantRefused, wantEnd bool
	}{
		{name: "it is recorded", node: []client.Object{virtualNode("uid-1")}, id: "r1", wantRecorded: true},
		{name: "another one is", node: []client.Object{virtualNode("uid-2")}, id: "r1", wantRefused: true, wantEnd: true},
		{name: "nothing is recorded", node: []client.Object{virtualNode("")}, id: "r1"},
		{name: "it has no virtual Node", id: "r1"},
		{name: "the meta cluster does not answer", id: "r1", metaErr: broken},
		{name: "the super cluster does not answer", node: []client.Object{virtualNode("uid-1")}, superErr: broken, wantRecorded: true},
		{name: "it has got another id", node: []client.Object{virtualNode("uid-1")}, id: "r2", wantRecorded: true, wantEnd: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			meta := reader(tc.metaErr, tc.node...)
			recorded, err := r1.Recorded(t.Context(), meta)
			require.Equal(t, tc.wantRecorded, recorded)
			require.Equal(t, tc.wantRefused, errors.Is(err, ErrRefused))
			require.Equal(t, tc.metaErr != nil || tc.wantRefused, err != nil, "%v", err)

			g := &guard{identity: r1, pooled: true, super: reader(tc.superErr, infoWith(tc.id)), meta: meta}
			err = g.same(t.Context())
			require.Equal(t, tc.wantEnd, err != nil, "%v", err)
			require.Equal(t, tc.wantRefused, errors.Is(err, ErrRefused))

			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err = g.wait(ctx)
			require.Equal(t, tc.wantRefused, errors.Is(err, ErrRefused))
			require.Equal(t, tc.wantRecorded || tc.wantRefused, ctx.Err() == nil, "nothing is synced before it is recorded")
		})
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^r1-syncer-[0-9a-f]{8}$`, r1.Lock())
	require.Equal(t, r1.Lock(), Identity{ID: "r1", UID: "uid-1"}.Lock())
	require.NotEqual(t, r1.Lock(), Identity{ID: "r1", UID: "uid-2"}.Lock())
}

// inSuper returns a client of a super cluster with that UID.
func inSuper(uid types.UID) client.Client {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
	return builders.Client(ownScheme()).WithObjects(system).
		WithIndex(&corev1.Namespace{}, metav1.ObjectNameField, func(object client.Object) []string { return []string{object.GetName()} }).Build()
}

// TestClaim: a super cluster belongs to the meta cluster that a syncer first served it for, under the same id.
func TestClaim(t *testing.T) {
	t.Parallel()
	super := inSuper("uid-1")
	claim := func(id string, meta types.UID) error {
		return (&guard{identity: Identity{ID: id, UID: "uid-1"}, metaUID: meta}).claim(t.Context(), super)
	}
	require.NoError(t, claim("r1", "meta-1"))
	require.NoError(t, claim("r1", "meta-1"), "another replica, or a restart")
	require.ErrorContains(t, claim("r1", "uid-1"), "records id r1, and VirtualClusters in the cluster with UID meta-1 of namespace kube-system, where this syncer has r1 and uid-1")
	require.ErrorContains(t, claim("single", "meta-1"), "kubectl delete configmap -n superpool-system authority")
}

// TestClaimAnother: since the syncer asked which super cluster it is, as a replica that does not lead asks it hours
// before, another control plane has come behind the address. Nothing is written there.
func TestClaimAnother(t *testing.T) {
	t.Parallel()
	another := inSuper("uid-2")
	require.ErrorIs(t, (&guard{identity: r1, metaUID: "meta-1"}).claim(t.Context(), another), proof.ErrOther)
	require.True(t, apierrors.IsNotFound(another.Get(t.Context(), types.NamespacedName{Namespace: schedulerv1alpha1.AuthorityNamespace, Name: schedulerv1alpha1.AuthorityName}, &corev1.ConfigMap{})))
}
