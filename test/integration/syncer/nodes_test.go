package syncer_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// TestTenantNodes: two tenants hold something in r1, and one of them, which has Nodes for all nodes, in r2.
func TestTenantNodes(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	w.nodes, w.nodePorts = tenancyv1alpha1.NodesPlaced, utilnet.PortRange{Base: 30100, Size: 100}
	other := w.neighbour(t, "b")
	other.nodes, other.nodePorts = tenancyv1alpha1.NodesOnDemand, utilnet.PortRange{Base: 30200, Size: 100}
	w.superNode(t, w.super, "n1", nil)
	w.superNode(t, w.super, "n2", func(node *corev1.Node) { node.Spec.Unschedulable = true })
	w.superNode(t, w.super, "n3", func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
	})
	w.superNode(t, w.super2, "m1", nil)
	w.place(t, "web", "r1", "r2")
	other.placeWith(t, "web", []string{"cpu", "7", "memory", "7Gi", "pods", "70"}, "r1")
	for super, served := range map[client.Client][]*tenants.Tenant{
		w.super: {w.engaged(w.tenantConfig), other.engaged(other.tenantConfig)}, w.super2: {w.engaged(w.tenantConfig)},
	} {
		config := w.superConfig
		if super == w.super2 {
			config = w.super2Config
		}
		closes(t, w.startSyncerWith(t, config, engaging(served)).ready, "the tenants' caches are synced")
	}

	t.Run("all nodes that its pods may go to", func(t *testing.T) {
		eventually(t, func() error { return w.hasNodes(t, "r1.n1", "r1.n2", "r2.m1") })
		node := appears(t, w.tenant, "", "r1.n1", &corev1.Node{}, func(node *corev1.Node) bool { return !node.Spec.Unschedulable })
		require.Equal(t, "z1", node.Labels[corev1.LabelTopologyZone])
		require.NotContains(t, node.Labels, "owner")
		require.Equal(t, "1", node.Status.Allocatable.Cpu().String())
		require.Equal(t, "1Gi", node.Status.Capacity.Memory().String())
		appears(t, w.tenant, "", "r1.n2", node, func(node *corev1.Node) bool { return node.Spec.Unschedulable })
		require.NoError(t, other.hasNodes(t), "no pod of the neighbour runs")
	})
	t.Run("what a tenant writes on its Nodes is its own", w.testHostileNode)
	t.Run("a pod with a nodeName goes there", w.testPinned)
	t.Run("a pod of a DaemonSet goes to its node", w.testDaemonPod)
	t.Run("a pod goes to a Node that its tenant has labelled", w.testLabelled)
	t.Run("operators cordon a node, and a super cluster", w.testCordon)
	t.Run("node ports are the tenant's own", func(t *testing.T) {
		publish := func(of *world, name string, port int32) {
			service := newService("web", name, "")
			service.Spec.Type, service.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, port
			create(t, of.tenant, service)
		}
		publish(w, "mine", 30150)
		for _, super := range []client.Client{w.super, w.super2} {
			appears(t, super, w.superName("web"), "mine", &corev1.Service{}, func(service *corev1.Service) bool { return service.Spec.Ports[0].NodePort == 30150 })
		}
		publish(w, "theirs", 30250)
		w.warned(t, "web", "theirs", "NodePortOutOfRange")
		publish(other, "theirs", 30250)
		appears(t, w.super, other.key+"-web", "theirs", &corev1.Service{}, func(service *corev1.Service) bool { return service.Spec.Ports[0].NodePort == 30250 })
		create(t, w.super, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "greedy"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30151}}},
		})
		publish(w, "unlucky", 30151)
		w.warned(t, "web", "unlucky", "FailedCreate")
		appears(t, w.super2, w.superName("web"), "unlucky", &corev1.Service{}, nil)
	})
	t.Run("Nodes go with the placement", func(t *testing.T) {
		w.place(t, "web", "r1")
		eventually(t, func() error { return w.hasNodes(t, "r1.n1", "r1.n2") })
	})
}

// superNode makes a node with eight CPUs.
func (w *world) superNode(t *testing.T, super client.Client, name string, change func(node *corev1.Node)) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z1", corev1.LabelHostname: "host-" + name, "owner": "acme"}},
		Status: corev1.NodeStatus{
			Capacity: builders.Resources("cpu", "8", "memory", "16Gi", "pods", "110"), Allocatable: builders.Resources("cpu", "8", "memory", "16Gi", "pods", "110"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if change != nil {
		change(node)
	}
	create(t, super, node)
}

// hasNodes returns an error unless the tenant has the Nodes of these names.
func (w *world) hasNodes(t *testing.T, want ...string) error {
	t.Helper()
	list := &corev1.NodeList{}
	require.NoError(t, w.tenant.List(t.Context(), list))
	var got []string
	require.NoError(t, meta.EachListItem(list, func(object runtime.Object) error {
		got = append(got, object.(client.Object).GetName())
		return nil
	}))
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("nodes (-want +got): %s", diff)
	}
	return nil
}

// testHostileNode lets a tenant say of a Node what is not so. It changes nothing in the super cluster, and the Node is
// as before again, but for what is the tenant's own.
func (w *world) testHostileNode(t *testing.T) {
	super, node := &corev1.Node{}, &corev1.Node{}
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKey{Name: "n2"}, super))
	appears(t, w.tenant, "", "r1.n2", node, nil)
	await.Change(t, w.tenant, node, func(node *corev1.Node) {
		node.Spec.Unschedulable = false
		node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelHostname], node.Labels["mine"] = "z9", "host-n1", "1"
		node.Annotations["tenancy.x-k8s.io/from-super-node"] = `{"labels":["owner"]}`
	})
	await.Change(t, w.tenant, node, func(node *corev1.Node) { node.Status.Allocatable = builders.Resources("cpu", "1000") }, "status")
	appears(t, w.tenant, "", "r1.n2", node, func(node *corev1.Node) bool {
		return node.Spec.Unschedulable && node.Labels[corev1.LabelTopologyZone] == "z1" && node.Labels[corev1.LabelHostname] == "r1.n2" &&
			node.Labels["mine"] == "1" && node.Status.Allocatable.Cpu().String() == "1"
	})
	now := &corev1.Node{}
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKey{Name: "n2"}, now))
	require.Empty(t, cmp.Diff(super, now))
}

// testPinned plays the super cluster's scheduler for a pod that was created with a nodeName.
func (w *world) testPinned(t *testing.T) {
	pod := newPod("web", "pinned")
	pod.Spec.NodeName = "r1.n1"
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName("web"), "pinned", &corev1.Pod{}, nil)
	require.Empty(t, superPod.Spec.NodeName, "the super cluster's scheduler decides")
	require.Empty(t, cmp.Diff(onlyNode("n1"), superPod.Spec.Affinity.NodeAffinity))
	await.Change(t, w.super, superPod, func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient cpu."}}
	}, "status")
	appears(t, w.tenant, "web", "pinned", pod, func(pod *corev1.Pod) bool {
		_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return scheduled != nil && scheduled.Message == "super cluster r1: no node takes the pod now: too little cpu is free"
	})
	w.run(t, "pinned", "n1")
	appears(t, w.tenant, "web", "pinned", pod, func(pod *corev1.Pod) bool {
		_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return pod.Status.Phase == corev1.PodRunning && scheduled.Status == corev1.ConditionTrue
	})
	require.NoError(t, w.tenant.Delete(t.Context(), pod))
	appears(t, w.super, w.superName("web"), "pinned", superPod, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0)))
	vanishes(t, w.tenant, "web", "pinned", pod)

	never := newPod("web", "never")
	never.Spec.NodeName = "r1.n1"
	create(t, w.tenant, never)
	appears(t, w.super, w.superName("web"), "never", superPod, nil)
	require.NoError(t, w.tenant.Delete(t.Context(), never))
	vanishes(t, w.super, w.superName("web"), "never", superPod)
	vanishes(t, w.tenant, "web", "never", never)
}

// onlyNode is the node affinity to a node by its name.
func onlyNode(name string) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
}

// testDaemonPod makes a pod as the DaemonSet controller does, with the label of the pod scheduler.
func (w *world) testDaemonPod(t *testing.T) {
	pod := newPod("web", "daemon")
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "daemon", UID: "uid", Controller: ptr.To(true)}}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: onlyNode("r1.n1")}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "r1.n1", tenancyv1alpha1.LabelSuperClusterID: "r1"}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	}
	for _, key := range []string{corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName("web"), "daemon", &corev1.Pod{}, nil)
	require.Empty(t, cmp.Diff(onlyNode("n1"), superPod.Spec.Affinity.NodeAffinity))
	require.Equal(t, map[string]string{corev1.LabelHostname: "host-n1"}, superPod.Spec.NodeSelector)
	for _, toleration := range superPod.Spec.Tolerations {
		require.NotEqual(t, corev1.TaintNodeUnschedulable, toleration.Key, "it would go to nodes that an operator drains")
	}
	w.run(t, "daemon", "n1")
	appears(t, w.tenant, "web", "daemon", pod, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "r1.n1" && pod.Status.Phase == corev1.PodRunning
	})
}

func (w *world) testLabelled(t *testing.T) {
	await.Change(t, w.tenant, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1.n1"}}, func(node *corev1.Node) {
		node.Labels["kubernetes.io/e2e"] = "42"
	})
	pod := newPod("web", "labelled")
	pod.Spec.NodeSelector = map[string]string{"kubernetes.io/e2e": "42"}
	superPod := &corev1.Pod{}
	// What the tenant's pod scheduler does: it chooses once it has seen the label. The syncer may see it later.
	eventually(t, func() error {
		created := pod.DeepCopy()
		create(t, w.tenant, created)
		appears(t, w.super, w.superName("web"), "labelled", superPod, nil)
		if terms := superPod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms[0].MatchExpressions) == 1 {
			require.Equal(t, corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"host-n1"}}, terms[0].MatchExpressions[0])
			return nil
		}
		require.NoError(t, w.tenant.Delete(t.Context(), created, client.GracePeriodSeconds(0)))
		eventually(t, func() error {
			if err := w.super.Get(t.Context(), client.ObjectKeyFromObject(superPod), superPod); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the super pod of the earlier try is there: %w", err)
			}
			return nil
		})
		return errors.New("the syncer has not seen the label yet")
	})
	require.Empty(t, superPod.Spec.NodeSelector)
	w.run(t, "labelled", "n1")
	appears(t, w.tenant, "web", "labelled", pod, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "r1.n1" })
}

func (w *world) testCordon(t *testing.T) {
	cordon := func(c client.Client, name string, cordoned bool) {
		await.Change(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(node *corev1.Node) { node.Spec.Unschedulable = cordoned })
	}
	shows := func(name string, cordoned bool) {
		appears(t, w.tenant, "", name, &corev1.Node{}, func(node *corev1.Node) bool { return node.Spec.Unschedulable == cordoned })
	}
	cordon(w.super, "n1", true)
	shows("r1.n1", true)
	cordon(w.super, "n1", false)
	shows("r1.n1", false)
	cordon(w.meta, "r2", true)
	shows("r2.m1", true)
	shows("r1.n1", false)
	cordon(w.meta, "r2", false)
	shows("r2.m1", false)
}
