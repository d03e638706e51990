package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

func clusterKind() schema.GroupKind {
	return schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}
}

func createCluster(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	cluster := builders.Cluster(name)
	require.NoError(t, shared.client.Create(t.Context(), cluster))
	return cluster
}

func nameSuperCluster(t *testing.T, in kubernetes.Interface, id string) {
	t.Helper()
	info := builders.SuperClusterInfo(id)
	_, err := in.CoreV1().ConfigMaps(info.Namespace).Create(t.Context(), info, metav1.CreateOptions{})
	require.NoError(t, err)
}

// createNode makes a Ready node in a super cluster, without the taint that admission gives to new nodes.
func createNode(t *testing.T, in kubernetes.Interface, name string, allocatable corev1.ResourceList) {
	t.Helper()
	nodes := in.CoreV1().Nodes()
	labels := map[string]string{corev1.LabelTopologyRegion: "east", corev1.LabelTopologyZone: name}
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	require.NoError(t, err)
	changeNode(t, in, name, func(node *corev1.Node) { node.Spec.Taints = nil })
	node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	node.Status.Allocatable, node.Status.Capacity = allocatable, allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func changeNode(t *testing.T, in kubernetes.Interface, name string, change func(*corev1.Node)) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := in.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		_, err = in.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	}))
}

func createPod(t *testing.T, name, node string, labels map[string]string) {
	t.Helper()
	_, err := shared.inSuper.CoreV1().Pods(namespace).Create(t.Context(), podBoundTo(name, node, labels), metav1.CreateOptions{})
	require.NoError(t, err)
}

func podBoundTo(name, node string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.PodSpec{
		NodeName:                     node,
		AutomountServiceAccountToken: new(bool),
		Containers:                   []corev1.Container{{Name: "c", Image: "i", Resources: builders.Requests("cpu", "500m", "memory", "1Gi")}},
	}}
}

func getNode(t *testing.T, id string) (*corev1.Node, error) {
	t.Helper()
	node := &corev1.Node{}
	err := shared.client.Get(t.Context(), client.ObjectKey{Name: id}, node)
	return node, err
}

// awaitOffer waits until a virtual Node is Ready and offers that much cpu, memory and pods.
func awaitOffer(t *testing.T, id, want string) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	eventually(t, func() string {
		var err error
		if node, err = getNode(t, id); err != nil {
			return err.Error()
		}
		offered := node.Status.Allocatable
		got := fmt.Sprintf("%s %s %s %s", readiness(node), offered.Cpu(), offered.Memory(), offered.Pods())
		if got != want {
			return fmt.Sprintf("virtual node %s: want %s, got %s", id, want, got)
		}
		return ""
	})
	return node
}

func readiness(node *corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return string(condition.Status) + "/" + condition.Reason
		}
	}
	return "none"
}

func TestSuperClusters(t *testing.T) {
	nameSuperCluster(t, shared.inSuper, "r1")
	createNode(t, shared.inSuper, "n1", builders.Resources("cpu", "4", "memory", "8Gi", "pods", "110"))
	createNode(t, shared.inSuper, "n2", builders.Resources("cpu", "2", "memory", "16Gi", "pods", "110"))
	require.NoError(t, shared.client.Create(t.Context(), podBoundTo("kube-proxy-r1", "r1", nil)))
	createSecret(t, "first-kubeconfig", tenancyv1alpha1.DefaultKubeconfigKey, shared.super.KubeConfig)
	createCluster(t, "first")
	node := awaitOffer(t, "r1", "True/SuperClusterReady 6 24Gi 220")

	t.Run("the virtual node says what it stands for", func(t *testing.T) {
		require.Equal(t, "r1", node.Labels[schedulerv1alpha1.LabelVirtualNode])
		require.Equal(t, "virtual-kubelet", node.Labels["type"])
		require.Equal(t, "r1", node.Labels[corev1.LabelHostname])
		require.Equal(t, "east", node.Labels[corev1.LabelTopologyRegion])
		require.NotContains(t, node.Labels, corev1.LabelTopologyZone, "the nodes are in different zones")
		require.Equal(t, "default/first", node.Annotations[superclusters.AnnotationClusterRef])
		groups, err := nodegroups.Decode(node.Annotations[schedulerv1alpha1.AnnotationNodeGroups])
		require.NoError(t, err)
		require.Len(t, groups.Groups, 2, "the nodes are in different zones")
		require.Equal(t, "east", groups.Labels[corev1.LabelTopologyRegion])
		require.JSONEq(t, `[{"nodes":1,"free":{"cpu":"4","memory":"8Gi"}},{"nodes":1,"free":{"cpu":"2","memory":"16Gi"}}]`,
			node.Annotations[schedulerv1alpha1.AnnotationFreeShapes])
		require.Contains(t, node.Spec.Taints, corev1.Taint{Key: "virtual-kubelet.io/provider", Value: "superpool", Effect: corev1.TaintEffectNoSchedule})
		eventually(t, func() string {
			lease := &coordinationv1.Lease{}
			if err := shared.client.Get(t.Context(), client.ObjectKey{Namespace: "kube-node-lease", Name: "r1"}, lease); err != nil {
				return err.Error()
			}
			return ""
		})
	})
	t.Run("pods of the meta cluster on the virtual node", func(t *testing.T) {
		require.Contains(t, awaitEvent(t, clusterKind(), "first", superclusters.ReasonPodsOnVirtualNode), "the first is default/kube-proxy-r1.")
	})
	t.Run("capacity follows the super cluster", func(t *testing.T) {
		foreignPod(t)
		node := awaitOffer(t, "r1", "True/SuperClusterReady 5500m 23Gi 219")
		require.JSONEq(t, `[{"nodes":1,"free":{"cpu":"3500m","memory":"7Gi"}},{"nodes":1,"free":{"cpu":"2","memory":"16Gi"}}]`,
			node.Annotations[schedulerv1alpha1.AnnotationFreeShapes])
		createPod(t, "marked-in-part", "n1", map[string]string{tenancyv1alpha1.LabelCluster: "some-tenant"})
		awaitOffer(t, "r1", "True/SuperClusterReady 5 22Gi 218")
		deletePod(t, "marked-in-part")
		uncordon := func() {
			changeNode(t, shared.inSuper, "n2", func(node *corev1.Node) { node.Spec.Unschedulable, node.Spec.Taints = false, nil })
		}
		t.Cleanup(uncordon)
		changeNode(t, shared.inSuper, "n2", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		awaitOffer(t, "r1", "True/SuperClusterReady 3500m 7Gi 109")
		uncordon()
		awaitOffer(t, "r1", "True/SuperClusterReady 5500m 23Gi 219")
	})
	t.Run("what tenants use", testUse)
	t.Run("a deleted tenant waits for it", testDeletedTenantWaits)
	t.Run("headroom", testHeadroom)
	t.Run("what operators set on the node stays", func(t *testing.T) {
		patch := `{"metadata":{"labels":{"mine":"yes"}},"spec":{"unschedulable":true,"taints":[{"key":"mine","effect":"NoSchedule"}]}}`
		require.NoError(t, shared.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}, client.RawPatch(types.MergePatchType, []byte(patch))))
		foreignPod(t) // the node is written again
		var node *corev1.Node
		eventually(t, func() string {
			node = awaitOffer(t, "r1", "True/SuperClusterReady 5500m 23Gi 219")
			keys := taintKeys(node)
			slices.Sort(keys)
			return cmp.Diff([]string{"mine", "virtual-kubelet.io/provider"}, keys)
		})
		require.Equal(t, "yes", node.Labels["mine"])
		require.True(t, node.Spec.Unschedulable)
	})
	// What one says is of another's: the twin and the nameless one are left for the last.
	t.Run("bad ones, and those that are gone", func(t *testing.T) {
		badSuperClusters(t)
		clustersGone(t)
	})
}

func taintKeys(node *corev1.Node) []string {
	var keys []string
	for _, taint := range node.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			keys = append(keys, taint.Key)
		}
	}
	return keys
}

// foreignPod makes a pod of nobody on node n1, until the test ends.
func foreignPod(t *testing.T) {
	t.Helper()
	createPod(t, "foreign", "n1", nil)
	t.Cleanup(func() { deletePod(t, "foreign") })
}

// deletePod deletes a pod at once, if it is there.
func deletePod(t *testing.T, name string) {
	t.Helper()
	err := shared.inSuper.CoreV1().Pods(namespace).Delete(context.WithoutCancel(t.Context()), name, *metav1.NewDeleteOptions(0))
	require.NoError(t, client.IgnoreNotFound(err))
}

// testUse: what pods of a tenant use beyond its reservations is offered to nobody.
func testUse(t *testing.T) {
	super := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenancy.SuperNamespace("root-of-some-tenant", "web")}}
	_, err := shared.inSuper.CoreV1().Namespaces().Create(t.Context(), super, metav1.CreateOptions{})
	require.NoError(t, err)
	foreignPod(t)
	ours := podBoundTo("ours", "n1", nil)
	ours.Namespace = super.Name
	tenancy.SetOwner(ours, builders.Owner("root-of-some-tenant", "web", "u"))
	_, err = shared.inSuper.CoreV1().Pods(super.Name).Create(t.Context(), ours, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		err := shared.inSuper.CoreV1().Pods(super.Name).Delete(context.WithoutCancel(t.Context()), ours.Name, *metav1.NewDeleteOptions(0))
		require.NoError(t, client.IgnoreNotFound(err))
	})
	awaitOffer(t, "r1", "True/SuperClusterReady 5 22Gi 218")

	require.NoError(t, shared.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "root-of-some-tenant"}}))
	placement := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "root-of-some-tenant", Name: "web"},
		Spec:       schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: "u"},
	}
	require.NoError(t, shared.client.Create(t.Context(), placement))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(shared.client.Delete(context.WithoutCancel(t.Context()), placement)))
	})
	reserve := func(pairs ...string) {
		await.Change(t, shared.client, placement, func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Placements = []schedulerv1alpha1.ClusterPlacement{builders.HeldSlices("r1", 1, pairs...)}
		}, "status")
	}
	reserve("cpu", "1", "memory", "512Mi", "pods", "1")
	awaitOffer(t, "r1", "True/SuperClusterReady 5500m 23040Mi 219")
	overcommitted := func(want corev1.ConditionStatus) {
		eventually(t, func() string {
			node, err := getNode(t, "r1")
			if err != nil {
				return err.Error()
			}
			for _, condition := range node.Status.Conditions {
				if condition.Type == schedulerv1alpha1.NodeOvercommitted && condition.Status == want {
					return ""
				}
			}
			return fmt.Sprintf("conditions are %v", node.Status.Conditions)
		})
	}
	overcommitted(corev1.ConditionFalse)
	reserve("cpu", "7", "memory", "512Mi", "pods", "1")
	overcommitted(corev1.ConditionTrue)
	require.Contains(t, awaitEvent(t, clusterKind(), "first", superclusters.ReasonOvercommitted), "cpu=7, and the super cluster can hold cpu=5500m")
	reserve("cpu", "1", "memory", "1Gi", "pods", "1")
	overcommitted(corev1.ConditionFalse)
	require.NoError(t, shared.inSuper.CoreV1().Pods(super.Name).Delete(t.Context(), "ours", *metav1.NewDeleteOptions(0)))
	require.NoError(t, shared.client.Delete(t.Context(), placement))
	awaitOffer(t, "r1", "True/SuperClusterReady 5500m 23Gi 219")
}

// testDeletedTenantWaits: a VirtualCluster is there until no super cluster holds anything of it.
func testDeletedTenantWaits(t *testing.T) {
	createSecret(t, "held", "value", shared.tenant.KubeConfig)
	createTenant(t, "held")
	vc := awaitReady(t, "held", tenancyv1alpha1.ReasonConnected)
	held := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenancy.SuperNamespace(vc.Status.ClusterNamespace, "web")}}
	tenancy.SetOwner(held, tenancy.Owner{
		ClusterKey: vc.Status.ClusterNamespace, VirtualCluster: client.ObjectKeyFromObject(vc), VirtualClusterUID: vc.UID, Namespace: "web", UID: "u",
	})
	_, err := shared.inSuper.CoreV1().Namespaces().Create(t.Context(), held, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, shared.client.Delete(t.Context(), vc))
	deleting := awaitReady(t, "held", tenancyv1alpha1.ReasonDeleting)
	require.Contains(t, meta.FindStatusCondition(deleting.Status.Conditions, tenancyv1alpha1.ConditionReady).Message, "hold nothing of the tenant: r1")
	var root corev1.Namespace
	require.NoError(t, shared.client.Get(t.Context(), client.ObjectKey{Name: vc.Status.ClusterNamespace}, &root))
	require.Nil(t, root.DeletionTimestamp)

	require.NoError(t, shared.inSuper.CoreV1().Namespaces().Delete(t.Context(), held.Name, metav1.DeleteOptions{}))
	held, err = shared.inSuper.CoreV1().Namespaces().Get(t.Context(), held.Name, metav1.GetOptions{})
	require.NoError(t, err)
	held.Spec.Finalizers = nil // plays the namespace controller
	_, err = shared.inSuper.CoreV1().Namespaces().Finalize(t.Context(), held, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func() string {
		if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(vc), vc); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the VirtualCluster is still there: %v", err)
		}
		return ""
	})
}

func testHeadroom(t *testing.T) {
	foreignPod(t)
	annotate := func(value string) {
		cluster := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"}}
		cluster.SetGroupVersionKind(clusterKind().WithVersion("v1beta2"))
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, schedulerv1alpha1.AnnotationHeadroom, value)
		require.NoError(t, shared.client.Patch(context.WithoutCancel(t.Context()), cluster, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	t.Cleanup(func() { annotate("null") })
	annotate(`"{\"cpu\":\"10%\",\"memory\":\"3Gi\"}"`)
	awaitOffer(t, "r1", "True/SuperClusterReady 4950m 20Gi 219")
	annotate(`"{\"cpu\":\"110%\"}"`)
	awaitEvent(t, clusterKind(), "first", superclusters.ReasonInvalidHeadroom)
	awaitOffer(t, "r1", "True/SuperClusterReady 4950m 20Gi 219")
	annotate("null")
	awaitOffer(t, "r1", "True/SuperClusterReady 5500m 23Gi 219")
}

// badSuperClusters makes Clusters of which the last two stay: twin-cluster, and nameless-cluster with the id r2.
func badSuperClusters(t *testing.T) {
	t.Helper()
	for _, tc := range []struct {
		name       string
		kubeconfig []byte
		wantReason string
	}{
		{name: "no-secret-cluster", wantReason: superclusters.ReasonSecretNotFound},
		{name: "not-yaml-cluster", kubeconfig: []byte("{{{"), wantReason: superclusters.ReasonInvalidKubeconfig},
		{name: "dead-cluster", kubeconfig: deadServer(t, shared.super.KubeConfig), wantReason: superclusters.ReasonUnreachable},
		{name: "twin-cluster", kubeconfig: shared.super.KubeConfig, wantReason: superclusters.ReasonDuplicateID},
		{name: "nameless-cluster", kubeconfig: shared.tenant.KubeConfig, wantReason: superclusters.ReasonSuperClusterInfoMissing},
	} {
		if tc.kubeconfig != nil {
			createSecret(t, tc.name, "admin-kubeconfig", tc.kubeconfig)
		}
		createCluster(t, tc.name)
		message := awaitEvent(t, clusterKind(), tc.name, tc.wantReason)
		require.NotContains(t, message, "PRIVATE KEY", tc.name)
		node, err := getNode(t, "r1")
		require.NoError(t, err)
		require.Equal(t, "default/first", node.Annotations[superclusters.AnnotationClusterRef], tc.name)
	}
	nameSuperCluster(t, shared.inTenant, "r2")
	awaitOffer(t, "r2", "True/SuperClusterHasNoNodes 0 0 0")
}

// clustersGone deletes nameless-cluster while a namespace is placed there, for which the Node waits, and the first one,
// whose place the twin takes.
func clustersGone(t *testing.T) {
	t.Helper()
	root := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "some-root"}}
	require.NoError(t, shared.client.Create(t.Context(), root))
	placement := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: root.Name, Name: "web"},
		Spec:       schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: "u"},
	}
	require.NoError(t, shared.client.Create(t.Context(), placement))
	await.Change(t, shared.client, placement, func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status.Placements = []schedulerv1alpha1.ClusterPlacement{{Cluster: "r2", Slices: 1}}
	}, "status")

	nameless := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nameless-cluster"}}
	nameless.SetGroupVersionKind(clusterKind().WithVersion("v1beta2"))
	require.NoError(t, shared.client.Delete(t.Context(), nameless))
	awaitOffer(t, "r2", "Unknown/ClusterRemoved 0 0 0")

	require.NoError(t, shared.client.Delete(t.Context(), placement))
	eventually(t, func() string {
		if _, err := getNode(t, "r2"); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("virtual node r2 is still there: %v", err)
		}
		return ""
	})

	first := nameless.DeepCopy()
	first.Name = "first"
	require.NoError(t, shared.client.Delete(t.Context(), first))
	eventually(t, func() string {
		node, err := getNode(t, "r1")
		if err != nil {
			return err.Error()
		}
		if got := node.Annotations[superclusters.AnnotationClusterRef]; got != "default/twin-cluster" {
			return "virtual node r1 belongs to " + got
		}
		return ""
	})
	awaitOffer(t, "r1", "True/SuperClusterReady 6 24Gi 220")
}
