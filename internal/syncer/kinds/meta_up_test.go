package kinds_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
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

const annotationsUp = "tenancy.x-k8s.io/annotations-from-super"

func TestMetaUp(t *testing.T) {
	t.Parallel()
	many, all := map[string]string{}, []string{}
	for i := range 40 {
		key := fmt.Sprintf("net.io/%02d", i)
		many[key] = "1"
		if i < 32 {
			all = append(all, key)
		}
	}
	fits := maps.Clone(many)
	for i := 32; i < 40; i++ {
		delete(fits, fmt.Sprintf("net.io/%02d", i))
	}
	for _, tc := range []struct {
		name          string
		tenant, super map[string]string // annotations
		prefixes      []string
		want          map[string]string
	}{
		{name: "nothing comes up", super: map[string]string{"net.io/ip": "1"}},
		{name: "an empty prefix is none", prefixes: []string{""}, super: map[string]string{"net.io/ip": "1"}},
		{
			name: "it comes up, beside the tenant's own", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/ip": "1", "other.io/a": "1"}, tenant: map[string]string{"mine": "1"},
			want: map[string]string{"net.io/ip": "1", "mine": "1", annotationsUp: "net.io/ip"},
		},
		{
			name: "it changed", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/ip": "2"}, tenant: map[string]string{"net.io/ip": "1", annotationsUp: "net.io/ip"},
			want: map[string]string{"net.io/ip": "2", annotationsUp: "net.io/ip"},
		},
		{
			name: "it is gone", prefixes: []string{"net.io/"}, tenant: map[string]string{"net.io/ip": "1", "mine": "1", annotationsUp: "net.io/ip"}, want: map[string]string{"mine": "1"},
		},
		{
			name: "the prefix is gone", super: map[string]string{"net.io/ip": "1"}, tenant: map[string]string{"net.io/ip": "1", annotationsUp: "net.io/ip"}, want: map[string]string{},
		},
		{
			name: "what went down does not come up", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/ip": "1", "tenancy.x-k8s.io/copied-annotations": "a,net.io/ip"},
			tenant: map[string]string{"net.io/ip": "0"}, want: map[string]string{"net.io/ip": "0"},
		},
		{
			name: "keys of ours stay, and are not removed", prefixes: []string{"tenancy", "scheduler.", "kube", "offered"},
			super: map[string]string{
				"tenancy.x-k8s.io/uid": "9", "scheduler.tenancy.x-k8s.io/superCluster": "r2", "kubernetes.io/config.mirror": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}",
				"scheduler.virtualcluster.io/x": "1",
			},
			tenant: map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1", annotationsUp: "scheduler.tenancy.x-k8s.io/superCluster"},
			want:   map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1"},
		},
		{name: "the first 32", prefixes: []string{"net.io/"}, super: many, want: with(fits, annotationsUp, strings.Join(all, ","))},
		{
			name: "16 KiB", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/a": strings.Repeat("a", 16<<10), "net.io/b": "1"}, want: map[string]string{"net.io/b": "1", annotationsUp: "net.io/b"},
		},
		{
			name: "a list that is too long says nothing", prefixes: []string{"net.io/"}, tenant: map[string]string{"net.io/a": "1", annotationsUp: "net.io/a" + strings.Repeat(",", 16<<10)},
			want: map[string]string{"net.io/a": "1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			super, tenant := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.super}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.tenant}}
			superBefore, before := super.DeepCopy(), tenant.DeepCopy()
			got := *tenant
			kind.MetaUp(super, &got, tc.prefixes)
			require.Empty(t, cmp.Diff(tc.want, got.Annotations))
			require.Empty(t, cmp.Diff(superBefore, super))
			require.Empty(t, cmp.Diff(before, tenant))
			again := got
			kind.MetaUp(super, &again, tc.prefixes)
			require.Empty(t, cmp.Diff(got, again))
		})
	}
}

// with returns a copy of values with one more.
func with(values map[string]string, key, value string) map[string]string {
	values = maps.Clone(values)
	values[key] = value
	return values
}

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
