package identities

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

const uid types.UID = "control-plane"

// at is a moment that many seconds after the first.
func at(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }

// virtualCluster returns a VirtualCluster that was created at a moment and records a UID, "" for none.
func virtualCluster(name string, created int64, recorded types.UID) *tenancyv1alpha1.VirtualCluster {
	vc := builders.VirtualCluster(name)
	vc.CreationTimestamp, vc.Status.ControlPlaneUID = at(created), recorded
	return vc
}

// virtualNode returns a virtual Node that was created at a moment and records a UID, "" for none.
func virtualNode(name string, created int64, recorded types.UID) *corev1.Node {
	node := builders.VirtualNode(name).Obj()
	node.CreationTimestamp = at(created)
	node.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperClusterUID: string(recorded)}
	return node
}

// metaCluster returns a client of a meta cluster with these objects. Its namespace kube-system has the UID "meta".
func metaCluster(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s)))
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "meta"}}
	return builders.Client(s).WithObjects(append(objects, system)...).
		WithIndex(&corev1.Namespace{}, "metadata.name", func(object client.Object) []string { return []string{object.GetName()} }).
		WithIndex(&tenancyv1alpha1.VirtualCluster{}, Index, IndexVirtualCluster).Build()
}

func TestFirst(t *testing.T) {
	t.Parallel()
	const a, b = "the control plane of VirtualCluster default/a", "the control plane of VirtualCluster default/b"
	mine := func(created int64, recorded types.UID) Claim {
		return OfVirtualCluster(virtualCluster("mine", created, recorded), uid)
	}
	r1 := func(created int64, recorded types.UID) Claim {
		return OfSuperCluster("r1", virtualNode("r1", created, recorded), uid)
	}
	for name, tc := range map[string]struct {
		claim   Claim
		uid     types.UID // "": uid
		objects []client.Object
		want    string
	}{
		"nobody else has it":                   {claim: mine(5, ""), objects: []client.Object{virtualCluster("a", 1, "other"), virtualCluster("b", 1, ""), virtualNode("r1", 1, "other")}},
		"it is its own":                        {claim: mine(5, uid), objects: []client.Object{virtualCluster("mine", 5, uid)}},
		"an older tenant has it":               {claim: mine(5, ""), objects: []client.Object{virtualCluster("a", 1, uid)}, want: a},
		"a younger tenant has recorded it":     {claim: mine(5, ""), objects: []client.Object{virtualCluster("a", 9, uid)}, want: a},
		"both have recorded it, and it is old": {claim: mine(5, uid), objects: []client.Object{virtualCluster("a", 9, uid)}},
		"both have recorded it":                {claim: mine(5, uid), objects: []client.Object{virtualCluster("a", 1, uid)}, want: a},
		"both were created at once":            {claim: mine(5, uid), objects: []client.Object{virtualCluster("a", 5, uid)}, want: a},
		"the oldest of several":                {claim: mine(5, uid), objects: []client.Object{virtualCluster("a", 3, uid), virtualCluster("b", 2, uid)}, want: b},
		"a super cluster has it":               {claim: mine(5, ""), objects: []client.Object{virtualNode("r1", 9, uid)}, want: "super cluster r1"},
		"a super cluster was created at once":  {claim: mine(5, uid), objects: []client.Object{virtualNode("r1", 5, uid)}, want: "super cluster r1"},
		"a younger super cluster has it, too":  {claim: mine(5, uid), objects: []client.Object{virtualNode("r1", 9, uid)}},
		"the meta cluster":                     {claim: mine(5, "meta"), uid: "meta", want: "the meta cluster"},

		"a super cluster that nobody else has":    {claim: r1(5, ""), objects: []client.Object{virtualCluster("a", 1, "other")}},
		"a super cluster that is a tenant's":      {claim: r1(5, ""), objects: []client.Object{virtualCluster("a", 9, uid)}, want: a},
		"a super cluster that a tenant had first": {claim: r1(5, uid), objects: []client.Object{virtualCluster("a", 1, uid)}, want: a},
		"a super cluster that a tenant has, too":  {claim: r1(5, uid), objects: []client.Object{virtualCluster("a", 9, uid)}},
		"a super cluster that has had another id": {claim: r1(5, ""), objects: []client.Object{virtualNode("r2", 1, uid)}},
		"a super cluster without virtual Node":    {claim: OfSuperCluster("r1", nil, uid), objects: []client.Object{virtualCluster("a", 9, uid)}, want: a},
		"a super cluster that is the meta cluster": {
			claim: OfSuperCluster("r1", virtualNode("r1", 5, "meta"), "meta"), uid: "meta", want: "the meta cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meta := metaCluster(t, tc.objects...)
			asked := uid
			if tc.uid != "" {
				asked = tc.uid
			}
			for _, registry := range []*Registry{{Live: meta, Cached: meta}, {Live: meta, Cached: meta, Indexed: true}, {Live: meta, Cached: metaCluster(t), Indexed: true}} {
				if registry.Cached != client.Reader(meta) && tc.claim.Recorded {
					continue // a cache that has nothing yet is for those that are about to record
				}
				first, err := registry.First(t.Context(), tc.claim, asked)
				require.NoError(t, err)
				require.Equal(t, tc.want, holder(first))
				first, err = registry.FirstLive(t.Context(), tc.claim, asked)
				require.NoError(t, err)
				require.Equal(t, tc.want, holder(first))
			}
		})
	}
}

func holder(claim *Claim) string {
	if claim == nil {
		return ""
	}
	return claim.Holder
}

// TestNodesThatAreNotCached: a syncer follows the virtual Node of its own super cluster alone. What a VirtualCluster
// records may be another one all the same, as a version recorded it that compared nothing.
func TestNodesThatAreNotCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mine, r2 := virtualCluster("mine", 5, uid), virtualNode("r2", 1, uid)
		var broken error
		reads := 0
		live := interceptor.NewClient(metaCluster(t, mine, virtualNode("r1", 1, "other"), r2).(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, nodes := list.(*corev1.NodeList); nodes {
					if reads++; broken != nil {
						return broken
					}
				}
				return to.List(ctx, list, options...)
			},
		})
		registry := &Registry{Live: live, Cached: metaCluster(t, mine, virtualNode("r1", 1, "other")), Indexed: true, NodesLive: true}
		first := func() string {
			first, err := registry.First(t.Context(), OfVirtualCluster(mine, uid), uid)
			require.NoError(t, err)
			return holder(first)
		}
		for range 3 {
			require.Equal(t, "super cluster r2", first())
		}
		require.Equal(t, 1, reads, "once for all tenants")

		<-time.After(nodesPeriod)
		broken = errors.New("connection refused")
		require.Equal(t, "super cluster r2", first(), "what was read before counts while the meta cluster does not answer")
		broken = nil
		require.NoError(t, live.Delete(t.Context(), r2))
		<-time.After(nodesPeriod)
		require.Empty(t, first())
	})
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection refused")
		live := interceptor.NewClient(metaCluster(t).(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, nodes := list.(*corev1.NodeList); nodes && broken != nil {
					return broken
				}
				return to.List(ctx, list, options...)
			},
		})
		registry, a := &Registry{Live: live, Cached: metaCluster(t), NodesLive: true}, OfVirtualCluster(virtualCluster("a", 1, uid), uid)
		_, err := registry.First(t.Context(), a, uid)
		require.ErrorIs(t, err, broken)
		broken = nil
		_, err = registry.First(t.Context(), a, uid)
		require.ErrorContains(t, err, "connection refused", "tenants do not ask one after the other")
		<-time.After(nodesTimeout)
		_, err = registry.First(t.Context(), a, uid)
		require.NoError(t, err)
	})
	live := interceptor.NewClient(metaCluster(t, virtualNode("r2", 1, uid)).(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, nodes := list.(*corev1.NodeList); nodes && ctx.Err() != nil {
				return ctx.Err()
			}
			return to.List(ctx, list, options...)
		},
	})
	registry, claim := &Registry{Live: live, Cached: metaCluster(t), NodesLive: true}, OfVirtualCluster(virtualCluster("a", 5, uid), uid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	first, err := registry.First(ctx, claim, uid)
	require.NoError(t, err, "it is asked for all tenants, not for the one whose connection ends")
	require.Equal(t, "super cluster r2", holder(first))
}

// TestOneIsFirst: of any claims on one control plane that are recorded, all but one see another one before them.
func TestOneIsFirst(t *testing.T) {
	t.Parallel()
	objects := []client.Object{virtualCluster("a", 1, uid), virtualCluster("b", 1, uid), virtualCluster("c", 2, uid), virtualNode("r1", 1, uid), virtualNode("r2", 0, "other")}
	meta := metaCluster(t, objects...)
	registry := &Registry{Live: meta, Cached: meta}
	var firsts []string
	for _, object := range objects {
		claim := OfSuperCluster(object.GetName(), nil, uid)
		switch object := object.(type) {
		case *tenancyv1alpha1.VirtualCluster:
			claim = OfVirtualCluster(object, uid)
		case *corev1.Node:
			claim = OfSuperCluster(object.Name, object, uid)
		}
		first, err := registry.First(t.Context(), claim, uid)
		require.NoError(t, err)
		if first == nil {
			firsts = append(firsts, claim.Holder)
		}
	}
	require.Equal(t, []string{"super cluster r1"}, firsts)
}

func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	var none *Registry
	first, err := none.First(t.Context(), Claim{}, uid)
	require.NoError(t, err)
	require.Nil(t, first)
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s)))
	silent := builders.Client(s).WithIndex(&corev1.Namespace{}, "metadata.name", func(client.Object) []string { return nil }).Build()
	_, err = (&Registry{Live: silent, Cached: silent}).First(t.Context(), OfVirtualCluster(virtualCluster("a", time.Now().Unix(), ""), uid), uid)
	require.Error(t, err, "who does not know the meta cluster connects to nothing")
}
