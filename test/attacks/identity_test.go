//go:build attacks

package attacks_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	testpool "github.com/superpool/superpool/test/pool"
)

// TestIdentity: kubeconfigs that lead to a control plane which is something else to the pool.
func TestIdentity(t *testing.T) {
	p := connect(t)
	before := p.served(t)
	impersonates := func(leadsTo, named string) func(t *testing.T) {
		return func(t *testing.T) {
			pids := p.programs(t)
			namespace := p.neighbour.place(t, "kept", "", hard("requests.cpu", "200m", "requests.memory", "400Mi"))
			kept := newPod(t, namespace, "kept", "")
			superPod, super := p.neighbour.runs(t, kept)
			key := p.impostor(t, leadsTo, named)
			p.holdsNothing(t, key, 10*time.Second)
			p.asServed(t, before)
			live := &corev1.Pod{}
			require.NoError(t, super.Get(t.Context(), client.ObjectKeyFromObject(superPod), live))
			require.Equal(t, superPod.UID, live.UID)
			require.NoError(t, p.neighbour.Get(t.Context(), client.ObjectKeyFromObject(kept), live))
			require.Equal(t, kept.UID, live.UID)
			require.Nil(t, live.DeletionTimestamp)
			require.Equal(t, pids, p.programs(t), "a program has ended")
		}
	}
	serves := func(t *testing.T) {
		vc := p.virtualCluster(t, "neighbour")
		require.True(t, meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionReady))
		p.asServed(t, before)
	}
	attack(t, "tenant", alone, impersonates("neighbour", "VirtualCluster default/neighbour"), serves)
	attack(t, "super-cluster", alone, impersonates("r1", "super cluster r1"), serves)
	attack(t, "meta-cluster", alone, impersonates("meta", "the meta cluster"), serves)
	attack(t, "joins-the-pool", alone, func(t *testing.T) {
		info := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName},
			Data:       map[string]string{schedulerv1alpha1.SuperClusterInfoKey: "r9"},
		}
		p.attacker.create(t, info)
		p.meta.create(t, p.kubeconfigOf(t, "r9-kubeconfig", "attacker"))
		cluster := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"namespace": "default", "name": "r9"},
			"spec": map[string]any{"controlPlaneEndpoint": map[string]any{"host": "example", "port": int64(443)}},
		}}
		p.meta.create(t, cluster)
		eventually(t, "an Event about Cluster r9", func(ctx context.Context) (bool, any) {
			var events corev1.EventList
			if err := p.meta.List(ctx, &events, client.InNamespace("default")); err != nil {
				return false, err
			}
			for i := range events.Items {
				if events.Items[i].Reason == tenancyv1alpha1.ReasonDuplicateControlPlane && events.Items[i].InvolvedObject.Name == "r9" {
					return containsAll(events.Items[i].Message, []string{"VirtualCluster default/attacker"}), events.Items[i].Message
				}
			}
			return false, len(events.Items)
		})
		err := p.meta.Get(t.Context(), client.ObjectKey{Name: "r9"}, &corev1.Node{})
		require.True(t, apierrors.IsNotFound(err), "the tenant is a super cluster: %v", err)
		p.ready(t, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)
		p.asServed(t, before)
	}, func(t *testing.T) {
		for _, super := range p.supers {
			appears(t, p.meta, "", super.name, &corev1.Node{}, func(node *corev1.Node) bool {
				for _, condition := range node.Status.Conditions {
					if condition.Type == corev1.NodeReady {
						return condition.Status == corev1.ConditionTrue
					}
				}
				return false
			})
		}
	})
}

// kubeconfigOf returns a Secret with the kubeconfig of a control plane.
func (p *pool) kubeconfigOf(t *testing.T, name, cluster string) *corev1.Secret {
	t.Helper()
	clusters := bed.Clusters()
	i := slices.IndexFunc(clusters, func(c *testpool.Cluster) bool { return c.Name == cluster })
	require.GreaterOrEqual(t, i, 0, cluster)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"value": clusters[i].KubeConfig}}
}

// impostor makes a VirtualCluster whose kubeconfig leads to a control plane that is something else, waits until it says
// so, and returns its cluster key. At the end of the test it goes.
func (p *pool) impostor(t *testing.T, leadsTo, named string) (key string) {
	t.Helper()
	p.meta.create(t, p.kubeconfigOf(t, "impostor-kubeconfig", leadsTo))
	vc := &tenancyv1alpha1.VirtualCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "impostor"},
		Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: "impostor-kubeconfig"}},
	}
	p.meta.create(t, vc)
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(p.meta.Delete(context.WithoutCancel(t.Context()), vc)))
		for ctx := context.WithoutCancel(t.Context()); !apierrors.IsNotFound(p.meta.Get(ctx, client.ObjectKeyFromObject(vc), &tenancyv1alpha1.VirtualCluster{})); {
			<-time.After(interval)
		}
	})
	appears(t, p.meta, vc.Namespace, vc.Name, vc, func(vc *tenancyv1alpha1.VirtualCluster) bool {
		ready := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionReady)
		return ready != nil && ready.Reason == tenancyv1alpha1.ReasonDuplicateControlPlane && containsAll(ready.Message, []string{named})
	})
	require.Equal(t, types.UID(""), vc.Status.ControlPlaneUID)
	return vc.Status.ClusterNamespace
}

// holdsNothing fails if the pool has anything of a cluster key within a time.
func (p *pool) holdsNothing(t *testing.T, key string, during time.Duration) {
	t.Helper()
	for started := time.Now(); time.Since(started) < during; {
		var placements schedulerv1alpha1.NamespacePlacementList
		require.NoError(t, p.meta.List(t.Context(), &placements, client.InNamespace(key)))
		require.Empty(t, placements.Items)
		for _, super := range p.supers {
			var namespaces corev1.NamespaceList
			require.NoError(t, super.List(t.Context(), &namespaces, client.MatchingLabels{tenancyv1alpha1.LabelCluster: key}))
			require.Empty(t, namespaces.Items, "super cluster %s", super.name)
		}
		<-time.After(interval)
	}
}
