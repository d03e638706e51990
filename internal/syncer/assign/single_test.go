package assign_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/test/builders"
)

// whole are sides with what Single reads besides.
type whole struct {
	sides
	namespaces []string
	limit      corev1.ResourceList
}

func (w *whole) Namespaces(string) []string               { return w.namespaces }
func (w *whole) Limit(string) (corev1.ResourceList, bool) { return w.limit, w.limit != nil }
func (*whole) Resources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, "example.com/gpu"}
}

func placedWhole(uid types.UID) assign.Assignment {
	return assign.Assignment{State: assign.Placed, UID: uid, Reserved: builders.Resources("cpu", "2", "example.com/gpu", "9P")}
}

// TestSingle asks the caches, and then for proof.
func TestSingle(t *testing.T) {
	t.Parallel()
	none, kept := assign.Assignment{State: assign.None}, assign.Assignment{State: assign.Kept}
	for _, tc := range []struct {
		name  string
		sides sides
		// tenant is what the connected tenant has; nil: it is not connected.
		tenant []client.Object
		meta   []client.Object
		want   assign.Assignment
		// confirmed is the answer of live reads, and proven whether it may lead to a deletion.
		confirmed assign.Assignment
		proven    bool
		wantErr   string
	}{
		{
			name: "a namespace of the tenant", sides: sides{content: assign.Everything},
			tenant: []client.Object{system("tenant-uid"), namespace("cached-uid")}, meta: []client.Object{system("meta-uid"), virtualCluster("vc-uid")},
			want: placedWhole("cached-uid"), confirmed: placedWhole("cached-uid"),
		},
		{
			name: "one that no cache has any more, and that is gone", sides: sides{content: assign.Everything, unseen: true},
			tenant: []client.Object{system("tenant-uid")}, meta: []client.Object{system("meta-uid"), virtualCluster("vc-uid")},
			want: none, confirmed: none, proven: true,
		},
		{
			name: "one that is gone, and its claims are not", sides: sides{content: assign.Everything, unseen: true, claims: true},
			tenant: []client.Object{system("tenant-uid")}, meta: []client.Object{system("meta-uid"), virtualCluster("vc-uid")},
			want: kept, confirmed: kept, proven: true,
		},
		{
			name: "of a VirtualCluster that is missing, with claims", sides: sides{content: assign.Everything, unseen: true, claims: true},
			meta: []client.Object{system("meta-uid")},
			want: none,
		},
		{
			name: "of a VirtualCluster that is being deleted, with claims", sides: sides{content: assign.Everything, unseen: true, claims: true},
			meta: []client.Object{system("meta-uid"), deleted(virtualCluster("vc-uid"))},
			want: none, confirmed: none, proven: true,
		},
		{
			name: "one that no cache has yet", sides: sides{content: assign.Everything, unseen: true},
			tenant: []client.Object{system("tenant-uid"), namespace("cached-uid")}, meta: []client.Object{system("meta-uid"), virtualCluster("vc-uid")},
			want: none, confirmed: placedWhole("cached-uid"),
		},
		{
			name: "made anew", sides: sides{content: assign.Everything, unseen: true},
			tenant: []client.Object{system("tenant-uid"), namespace("new-uid")}, meta: []client.Object{system("meta-uid"), virtualCluster("vc-uid")},
			want: none, confirmed: none, proven: true,
		},
		{
			name: "of a tenant that is not connected", sides: sides{content: assign.Everything, unseen: true},
			meta: []client.Object{system("meta-uid"), virtualCluster("vc-uid")},
			want: none,
		},
		{
			name: "of a VirtualCluster that is missing", sides: sides{content: assign.Everything, unseen: true},
			meta: []client.Object{system("meta-uid")},
			want: none,
		},
		{
			name: "of a VirtualCluster that is being deleted", sides: sides{content: assign.Everything, unseen: true},
			meta: []client.Object{system("meta-uid"), deleted(virtualCluster("vc-uid"))},
			want: none, confirmed: none, proven: true,
		},
		{
			name: "another control plane answers for the tenant", sides: sides{content: assign.Everything, unseen: true},
			tenant: []client.Object{system("another-uid")}, meta: []client.Object{system("meta-uid"), virtualCluster("vc-uid")},
			want: none, wantErr: "another-uid",
		},
		{name: "no super namespace", sides: sides{unseen: true}, want: none, confirmed: none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var reads []string
			shown := &whole{sides: tc.sides, limit: builders.Resources("cpu", "2")}
			if tc.tenant != nil {
				shown.live = controlPlane(t, &reads, tc.tenant...)
			}
			single := &assign.Single{Live: meta(controlPlane(t, &reads, tc.meta...)), Sides: shown}
			got, err := single.Of(t.Context(), tenant, "web")
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Empty(t, reads, "caches alone")
			confirmed, proven, err := single.Confirm(t.Context(), tenant, "web")
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				require.False(t, proven.Holds())
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.confirmed, confirmed))
			require.Equal(t, tc.proven, proven.Holds())
		})
	}
}

// TestSingleNamespaces: super namespaces that are left count, too.
func TestSingleNamespaces(t *testing.T) {
	t.Parallel()
	shown := &whole{namespaces: []string{"web", "db"}, sides: sides{others: []assign.SuperNamespace{{Namespace: "old"}, {Namespace: "web"}}}}
	names, err := (&assign.Single{Sides: shown}).Namespaces(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, []string{"db", "old", "web"}, names)
}
