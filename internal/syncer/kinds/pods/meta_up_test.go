package pods_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/pods"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestMetaOfPodComesUp: before the status, which follows, also if the tenant's API server refuses it.
func TestMetaOfPodComesUp(t *testing.T) {
	t.Parallel()
	for _, refuses := range []bool{false, true} {
		t.Run(fmt.Sprint(refuses), func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.Tenant.TransparentMetaPrefixes = []string{"net.io/"}
			tenantPod := kindtest.PodNamed("web", "pod-uid", kindtest.PodWith("r1.n1", corev1.PodStatus{
				Phase: corev1.PodPending, Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "")},
			}))
			superPod := &corev1.Pod{}
			podspec.SuperPod(tenantPod, superPod, kindtest.OwnerOf("pod-uid"), rules(p), &podspec.PodEnvironment{})
			superPod.UID, superPod.Spec.NodeName, superPod.Status.Phase = "super", "n1", corev1.PodRunning
			superPod.Annotations["net.io/status"], superPod.Labels["net.io/zone"] = "up", "z1"
			p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithStatusSubresource(&corev1.Pod{}).WithObjects(tenantPod).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, to client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					if refuses {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", fmt.Errorf("no"))
					}
					return to.Patch(ctx, object, patch, options...)
				},
			}).Build(), kindtest.TenantUID)
			require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(tenantPod), tenantPod))
			require.NoError(t, p.SuperClient.Create(t.Context(), superPod))
			p.SuperCache[kind.Pod] = []client.Object{superPod}
			reconcile := func() *corev1.Pod {
				p.TenantCache[kind.Pod] = []client.Object{tenantPod}
				before := tenantPod.DeepCopy()
				_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
				require.NoError(t, err)
				require.Empty(t, cmp.Diff(before, tenantPod))
				live := &corev1.Pod{}
				require.NoError(t, p.Tenant.Client.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: "p"}, live))
				return live
			}
			live := reconcile()
			if refuses {
				require.Equal(t, corev1.PodRunning, live.Status.Phase)
				require.Contains(t, <-p.Events.Events, "MetadataRefused")
				return
			}
			require.Equal(t, []string{"up", "z1"}, []string{live.Annotations["net.io/status"], live.Labels["net.io/zone"]})
			require.Equal(t, corev1.PodPending, live.Status.Phase)
			tenantPod = live
			live = reconcile()
			require.Equal(t, corev1.PodRunning, live.Status.Phase)
			down := &corev1.Pod{}
			require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(superPod), down))
			require.NotContains(t, down.Annotations["tenancy.x-k8s.io/copied-labels"], "net.io")
			require.Equal(t, "z1", down.Labels[tenancy.LabelKey("net.io/zone")], "the tenant's selectors select by it")
		})
	}
}

func rules(p *kindtest.Pool) *kind.Rules {
	return &kind.Rules{Policy: p.Tenant.Policy.Get(), Transparent: p.Tenant.TransparentMetaPrefixes}
}

// TestIgnoreSync: an object that a tenant marks is not in super clusters, and leaves them once it is marked. A pod that
// is there stays.
func TestIgnoreSync(t *testing.T) {
	t.Parallel()
	marked := map[string]string{tenancyv1alpha1.LabelIgnoreSync: "true"}
	pod := builders.Pod("web", "p").Obj()
	pod.Labels = marked
	facts := &pods.Facts{SuperCluster: "r1", Owner: kindtest.OwnerOf(""), Namespace: pods.NamespaceReady, ServiceAccount: true}
	require.Equal(t, pods.StepNone, pods.NextStep(pod, nil, facts))
	pod.Labels = map[string]string{tenancyv1alpha1.LabelIgnoreSync: "false"}
	require.Equal(t, pods.StepCreate, pods.NextStep(pod, nil, facts))

	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "settings", UID: "config-uid"}}
	p.TenantCache[kind.ConfigMap] = []client.Object{configMap}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.ConfigMap, Namespace: "web", Name: "settings"}
	name := types.NamespacedName{Namespace: tenancy.SuperNamespace(kindtest.ClusterKey, "web"), Name: "settings"}
	reconcile := func() error {
		p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(configMap.DeepCopy()).Build(), kindtest.TenantUID)
		_, err := p.Kind(kind.ConfigMap).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		live := &corev1.ConfigMap{}
		if err := p.SuperClient.Get(t.Context(), name, live); err != nil {
			return err
		}
		p.SuperCache[kind.ConfigMap] = []client.Object{live}
		return nil
	}
	configMap.Labels = marked
	require.True(t, apierrors.IsNotFound(reconcile()))
	configMap.Labels = nil
	require.NoError(t, reconcile())
	configMap.Labels = marked
	require.True(t, apierrors.IsNotFound(reconcile()), "it leaves")
}
