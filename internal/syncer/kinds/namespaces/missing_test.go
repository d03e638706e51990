package namespaces_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestMissingVirtualCluster: what a super cluster has of a VirtualCluster that is missing stays, and the operator is
// told once for the tenant, wherever its NamespacePlacements say that it belongs.
func TestMissingVirtualCluster(t *testing.T) {
	t.Parallel()
	placed := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1).Obj()
	elsewhere := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r2", 1).Obj()
	broken := errors.New("broken")
	for _, tc := range []struct {
		name string
		meta []client.Object
		// missing and err are what the meta cluster says of the VirtualCluster.
		missing bool
		err     error
		// change changes the super namespace.
		change                         func(superNamespace client.Object)
		connected, single, withoutNode bool
		wantTold                       bool
		wantErr                        string
	}{
		{name: "with its NamespacePlacements", missing: true, wantTold: true},
		{name: "the namespace is placed here", missing: true, meta: []client.Object{placed}, wantTold: true},
		{name: "the namespace is placed elsewhere", missing: true, meta: []client.Object{elsewhere}, wantTold: true},
		{name: "the super namespace is there for Services", missing: true, wantTold: true, change: func(superNamespace client.Object) {
			superNamespace.GetAnnotations()["tenancy.x-k8s.io/services-only"] = "true"
		}},
		{name: "without a pool", missing: true, single: true, wantTold: true},
		{name: "without a virtual Node", missing: true, withoutNode: true},
		{name: "it is there", wantErr: "waiting for the tenant"},
		{name: "the tenant is connected still", missing: true, connected: true},
		{name: "the meta cluster does not answer", err: broken, wantErr: "broken"},
		{name: "another meta cluster answers", err: proof.ErrOther, wantErr: "waiting for the control plane that is known"},
		{name: "the super namespace is being deleted", missing: true, change: func(superNamespace client.Object) {
			superNamespace.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
			superNamespace.SetFinalizers([]string{"kubernetes"})
		}},
		{name: "the super namespace is somebody else's", missing: true, change: func(superNamespace client.Object) { superNamespace.SetAnnotations(nil) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			meta := builders.Client(kindtest.PlacementScheme(t)).WithObjects(tc.meta...).Build()
			p.Assigns(meta, meta)
			if tc.change != nil {
				tc.change(p.Namespace)
			}
			if p.Namespace.GetDeletionTimestamp() == nil {
				require.NoError(t, p.SuperClient.Create(t.Context(), p.Namespace))
			}
			p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().Build(), kindtest.TenantUID)
			if !tc.connected {
				p.Env.Tenant = func(string) *kind.Tenant { return nil }
			}
			p.Env.Missing = func(_ context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
				require.Equal(t, []string{"acme/vc", "vc-uid"}, []string{name.String(), string(uid)})
				return tc.missing, tc.err
			}
			recorder := record.NewFakeRecorder(10)
			p.Env.MetaRecorder = recorder
			if !tc.single {
				p.Env.VirtualNode = func() *corev1.Node {
					if tc.withoutNode {
						return nil
					}
					return builders.VirtualNode("r1").Obj()
				}
			}
			for range 2 {
				_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}, 0)
				if tc.wantErr == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tc.wantErr)
				}
			}
			if p.Namespace.GetDeletionTimestamp() == nil {
				require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(p.Namespace), &corev1.Namespace{}))
			}
			if !tc.wantTold {
				require.Empty(t, recorder.Events)
				require.Zero(t, namespaces.MissingVirtualClusters(p.Env))
				return
			}
			require.Contains(t, <-recorder.Events, "Warning VirtualClusterMissing VirtualCluster acme/vc with UID vc-uid is missing")
			require.Empty(t, recorder.Events, "once")
			require.Equal(t, 1, namespaces.MissingVirtualClusters(p.Env))
			p.SuperCache[kind.Namespace] = nil
			require.Zero(t, namespaces.MissingVirtualClusters(p.Env), "the operator has deleted what was left")
		})
	}
}
