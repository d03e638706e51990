// Package syncer_test runs a whole syncer between real API servers.
package syncer_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1", "app": "web"},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "main", Image: "busybox:1", Resources: corev1.ResourceRequirements{Limits: builders.Resources("cpu", "100m", "memory", "100Mi")},
			}},
			TerminationGracePeriodSeconds: ptr.To[int64](5),
		},
	}
}

// testPodSecurity asks with the rights of the syncer.
func (w *world) testPodSecurity(t *testing.T) {
	require.ErrorIs(t, syncer.ProvePodSecurity(t.Context(), w.superConfig), syncer.ErrNoPodSecurity)
	await.Change(t, w.super, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "superpool-system"}}, func(system *corev1.Namespace) {
		system.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	})
	// Admission reads the label from a cache.
	eventually(t, func() error { return syncer.ProvePodSecurity(t.Context(), w.superConfig) })
}

func TestSyncer(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	t.Run("ranges of Services are checked", w.testServiceCIDRs)
	t.Run("ranges of node ports are checked", w.testNodePortRange)
	t.Run("the super cluster must hold its id", w.testID)
	t.Run("the super cluster must enforce Pod Security", w.testPodSecurity)
	numbers, stop := w.runSyncer(t, w.superConfig)
	w.numbers = numbers
	t.Run("a tenant that leaves has no Node left behind", w.testLeave)
	t.Run("a placed namespace has a super namespace and a quota", w.testNamespace)
	t.Run("what a pod needs goes down", w.testObjects)
	t.Run("metadata that super clusters trust does not go down", w.testMetadata)
	t.Run("objects are bounded, and a change of the policy holds at once", w.testTenantLimit)
	t.Run("pods are what the policy allows, and run on when it changes", w.testPolicyOfPods)
	t.Run("Services are the same in all super clusters", w.testServices)
	t.Run("a namespace that leaves keeps its Services", w.testServicesOnly)
	t.Run("NetworkPolicies are confined to the tenant", w.testNetworkPolicies)
	t.Run("containers see the tenant's cluster", w.testPodEnvironment)
	t.Run("tokens are the tenant's", w.testTokens)
	t.Run("fields that the super cluster drops are told", w.testFieldsDropped)
	t.Run("ephemeral containers go down", w.testEphemeralContainers)
	t.Run("pods fare as with a kubelet of the tenant's own", w.testLikeAKubelet)
	t.Run("Events of super pods go up", w.testEvents)
	t.Run("a pod goes down, runs, and is deleted", w.testPod)
	t.Run("a pod that the super cluster loses goes away", w.testLostPod)
	t.Run("a pod that is assigned elsewhere before it ran goes away", w.testReassignedPod)
	t.Run("a tenant's own Node is not touched", w.testForeignNode)
	t.Run("pods that may not be synced", w.testRefusedPods)
	t.Run("a namespace of somebody else is not touched", w.testForeignNamespace)
	t.Run("a namespace that is no longer placed goes away", w.testWithdraw)
	t.Run("a namespace made again is another one", w.testNamespaceAgain)
	w.testRestart(t, numbers, stop)
}

// testLeave lets a tenant hold one namespace in the super cluster, and then nothing.
func (w *world) testLeave(t *testing.T) {
	placement := w.place(t, "only", "r1")
	pod := newPod("only", "pod")
	create(t, w.tenant, pod)
	superPod := w.runIn(t, "only", "pod", "n0")
	node := appears(t, w.tenant, "", "r1.n0", &corev1.Node{}, nil)
	require.NoError(t, w.tenant.Delete(t.Context(), pod))
	appears(t, w.super, w.superName("only"), "pod", superPod, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0)))
	vanishes(t, w.tenant, "only", "pod", pod)
	w.end(t, placement)
	release(t, w.super, w.superName("only"), "")
	vanishes(t, w.tenant, "", "r1.n0", node)
}

func (w *world) testID(t *testing.T) {
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}}
	require.NoError(t, w.super.Delete(t.Context(), info))
	for _, id := range []string{"", "Not.A.Label", "r1"} {
		_, err := syncer.Identify(t.Context(), w.superConfig)
		require.ErrorContains(t, err, "apply in the super cluster a ConfigMap kube-system/supercluster-info with data key id")
		info.ResourceVersion, info.Data = "", map[string]string{"id": id}
		require.NoError(t, client.IgnoreNotFound(w.super.Delete(t.Context(), info.DeepCopy())))
		create(t, w.super, info)
	}
	identity, err := syncer.Identify(t.Context(), w.superConfig)
	require.NoError(t, err)
	require.Equal(t, syncer.Identity{ID: "r1", UID: uidOf(t, w.super)}, identity)
}

func (w *world) testNamespace(t *testing.T) {
	w.place(t, "web", "r1", "r2")
	super := appears(t, w.super, "", w.superName("web"), &corev1.Namespace{}, nil)
	require.Equal(t, w.key, super.Labels[tenancyv1alpha1.LabelCluster])
	require.Equal(t, "baseline", super.Labels["pod-security.kubernetes.io/enforce"])
	want := hard("requests.cpu", "1", "requests.memory", "1Gi", "pods", "20")
	isWanted := func(quota *corev1.ResourceQuota) bool { return cmp.Equal(want, quota.Spec.Hard) }
	quota := appears(t, w.super, w.superName("web"), "superpool", &corev1.ResourceQuota{}, isWanted)

	// What somebody changes there is put back.
	await.Change(t, w.super, quota, func(quota *corev1.ResourceQuota) { quota.Spec.Hard["requests.cpu"] = resource.MustParse("9") })
	appears(t, w.super, w.superName("web"), "superpool", quota, isWanted)

	w.place(t, "elsewhere", "r2") // see testRefusedPods
}

func (w *world) testObjects(t *testing.T) {
	namespace := w.superName("web")
	ours := func(account *corev1.ServiceAccount) bool {
		return account.Labels[tenancyv1alpha1.LabelCluster] == w.key && !ptr.Deref(account.AutomountServiceAccountToken, true)
	}
	account := appears(t, w.super, namespace, "default", &corev1.ServiceAccount{}, ours)
	// As a controller of the super cluster creates it: the syncer adopts it.
	await.Change(t, w.super, account, func(account *corev1.ServiceAccount) {
		account.Labels, account.Annotations, account.AutomountServiceAccountToken = nil, nil, nil
	})
	appears(t, w.super, namespace, "default", account, ours)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "settings"}, Data: map[string]string{"a": "1"}}
	create(t, w.tenant, config)
	create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "tenant"}})
	create(t, w.tenant, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "password"}, Data: map[string][]byte{"a": []byte("1")}})
	create(t, w.tenant, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	superConfig := appears(t, w.super, namespace, "settings", &corev1.ConfigMap{}, nil)
	require.Equal(t, config.Data, superConfig.Data)
	appears(t, w.super, namespace, "tenant-kube-root-ca.crt", &corev1.ConfigMap{}, nil)
	appears(t, w.super, namespace, "password", &corev1.Secret{}, nil)
	appears(t, w.super, namespace, "front", &corev1.Service{}, func(service *corev1.Service) bool { return service.Spec.ClusterIP != "" })

	await.Change(t, w.tenant, config, func(config *corev1.ConfigMap) { config.Data["a"] = "2" })
	appears(t, w.super, namespace, "settings", superConfig, func(config *corev1.ConfigMap) bool { return config.Data["a"] == "2" })
	await.Change(t, w.super, superConfig, func(config *corev1.ConfigMap) { config.Data["a"] = "3" })
	appears(t, w.super, namespace, "settings", superConfig, func(config *corev1.ConfigMap) bool { return config.Data["a"] == "2" })
	require.NoError(t, w.tenant.Delete(t.Context(), config))
	vanishes(t, w.super, namespace, "settings", &corev1.ConfigMap{})

	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign"}, Data: map[string]string{"of": "r1"}}
	create(t, w.super, foreign)
	create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "foreign"}, Data: map[string]string{"of": "tenant"}})
	w.warned(t, "web", "foreign", "Conflict")
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	require.Equal(t, "r1", foreign.Data["of"])
}

// run plays scheduler and kubelet of the super cluster for a pod of namespace web, on a node that it makes if there is
// none.
func (w *world) run(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	return w.runIn(t, "web", name, node)
}

// addNode adds a node to the super cluster, where it does not exist. API servers of 1.36 hold a resize against what it
// has.
func (w *world) addNode(t *testing.T, name string) {
	t.Helper()
	has := builders.Resources("cpu", "8", "memory", "64Gi", "pods", "110")
	require.NoError(t, client.IgnoreAlreadyExists(w.super.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: has, Allocatable: has},
	})))
}

// runIn plays scheduler and kubelet of the super cluster for a pod.
func (w *world) runIn(t *testing.T, namespace, name, node string) *corev1.Pod {
	t.Helper()
	w.addNode(t, node)
	pod := appears(t, w.super, w.superName(namespace), name, &corev1.Pod{}, nil)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	require.NoError(t, w.super.SubResource("binding").Create(t.Context(), pod, binding))
	await.Change(t, w.super, pod, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.PodIP, pod.Status.PodIPs = "10.1.2.3", []corev1.PodIP{{IP: "10.1.2.3"}}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}, "status")
	return pod
}

func (w *world) testPod(t *testing.T) {
	create(t, w.super, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}},
		Status: corev1.NodeStatus{
			Capacity: builders.Resources("cpu", "8", "memory", "16Gi"), Allocatable: builders.Resources("cpu", "8", "memory", "16Gi"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	pod := newPod("web", "web-1")
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName("web"), "web-1", &corev1.Pod{}, nil)
	require.Equal(t, "web", superPod.Labels["app"])
	require.NotContains(t, superPod.Labels, schedulerv1alpha1.LabelSuperCluster)

	await.Change(t, w.super, superPod, func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."}}
	}, "status")
	appears(t, w.tenant, "web", "web-1", pod, func(pod *corev1.Pod) bool {
		return len(pod.Status.Conditions) == 1 && pod.Status.Conditions[0].Message == "super cluster r1: no node takes the pod now: too little cpu is free"
	})

	w.run(t, "web-1", "n1")
	appears(t, w.tenant, "web", "web-1", pod, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "r1.n1" && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP == "10.1.2.3"
	})
	node := appears(t, w.tenant, "", "r1.n1", &corev1.Node{}, nil)
	require.False(t, node.Spec.Unschedulable)
	require.Equal(t, "z1", node.Labels[corev1.LabelTopologyZone])
	appears(t, w.tenant, corev1.NamespaceNodeLease, "r1.n1", &coordinationv1.Lease{}, nil)

	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "busybox:2" })
	appears(t, w.super, w.superName("web"), "web-1", superPod, func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == "busybox:2" })

	require.NoError(t, w.tenant.Delete(t.Context(), pod))
	appears(t, w.super, w.superName("web"), "web-1", superPod, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) > 0
	})
	appears(t, w.tenant, "web", "web-1", pod, nil)
	// The kubelet has ended the containers.
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0)))
	vanishes(t, w.tenant, "web", "web-1", pod)

	// A pod that is forced away, or never ran, goes at once.
	again := newPod("web", "web-2")
	create(t, w.tenant, again)
	appears(t, w.super, w.superName("web"), "web-2", superPod, nil)
	require.NoError(t, w.tenant.Delete(t.Context(), again))
	vanishes(t, w.super, w.superName("web"), "web-2", superPod)
}

func (w *world) testLostPod(t *testing.T) {
	create(t, w.tenant, newPod("web", "lost"))
	create(t, w.tenant, newPod("web", "finished"))
	lost, finished := w.run(t, "lost", "n1"), w.run(t, "finished", "n1")
	await.Change(t, w.super, finished, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, "status")
	pod := &corev1.Pod{}
	appears(t, w.tenant, "web", "finished", pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	appears(t, w.tenant, "web", "lost", pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	require.NoError(t, w.super.Delete(t.Context(), finished, client.GracePeriodSeconds(0)))
	require.NoError(t, w.super.Delete(t.Context(), lost, client.GracePeriodSeconds(0)))
	vanishes(t, w.tenant, "web", "lost", pod)
	w.warned(t, "web", "lost", "SuperPodDeleted")
	// Patrol has been over it: it neither goes nor runs again.
	patrols(t, w.numbers)
	require.NoError(t, w.tenant.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: "finished"}, pod))
	err := w.super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("web"), Name: "finished"}, &corev1.Pod{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func (w *world) testReassignedPod(t *testing.T) {
	pod := newPod("web", "reassigned")
	create(t, w.tenant, pod)
	appears(t, w.super, w.superName("web"), "reassigned", &corev1.Pod{}, nil)
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) { pod.Labels[schedulerv1alpha1.LabelSuperCluster] = "r2" })
	vanishes(t, w.super, w.superName("web"), "reassigned", &corev1.Pod{})
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.NoError(t, w.tenant.Delete(t.Context(), pod))
}

func (w *world) testForeignNode(t *testing.T) {
	create(t, w.super, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1.n2", Labels: map[string]string{"mine": "1"}}}
	create(t, w.tenant, own)
	pod := newPod("web", "kept-off")
	create(t, w.tenant, pod)
	w.run(t, "kept-off", "n2")
	w.warned(t, "web", "kept-off", "Conflict")
	now := &corev1.Node{}
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(own), now))
	require.Empty(t, cmp.Diff(own, now))
	require.NoError(t, w.tenant.Delete(t.Context(), own))
	appears(t, w.tenant, "web", "kept-off", pod, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "r1.n2" && pod.Status.Phase == corev1.PodRunning
	})
}

func (w *world) testRefusedPods(t *testing.T) {
	create(t, w.tenant, newPod("elsewhere", "unplaced"))
	named := newPod("web", "named")
	named.Spec.NodeName = "r2.n1"
	create(t, w.tenant, named)
	privileged := newPod("web", "privileged")
	privileged.Spec.HostNetwork = true
	create(t, w.tenant, privileged)
	w.warned(t, "elsewhere", "unplaced", "SuperClusterNotPlaced")
	err := w.super.Get(t.Context(), types.NamespacedName{Name: w.superName("elsewhere")}, &corev1.Namespace{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	w.warned(t, "web", "named", "NodeNameNotSupported")
	w.warned(t, "web", "privileged", "PolicyForbids")
	var pods corev1.PodList
	require.NoError(t, w.super.List(t.Context(), &pods))
	for i := range pods.Items {
		require.NotContains(t, []string{"unplaced", "named", "privileged"}, pods.Items[i].Name)
	}
	for _, pod := range []*corev1.Pod{named, privileged} {
		require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
}

func (w *world) testForeignNamespace(t *testing.T) {
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.superName("foreign")}}
	create(t, w.super, foreign)
	w.place(t, "foreign", "r1")
	create(t, w.tenant, newPod("foreign", "pod"))
	w.warned(t, "", "foreign", "NamespaceConflict")
	now := &corev1.Namespace{}
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(foreign), now))
	require.Empty(t, cmp.Diff(foreign.ObjectMeta, now.ObjectMeta))
	var pods corev1.PodList
	require.NoError(t, w.super.List(t.Context(), &pods, client.InNamespace(foreign.Name)))
	require.Empty(t, pods.Items)
}

func (w *world) testWithdraw(t *testing.T) {
	w.place(t, "moving", "r1")
	namespace := appears(t, w.super, "", w.superName("moving"), &corev1.Namespace{}, nil)
	pod := newPod("moving", "pod")
	create(t, w.tenant, pod)
	appears(t, w.super, w.superName("moving"), "pod", &corev1.Pod{}, nil)
	w.place(t, "moving", "r2")
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	require.Nil(t, namespace.DeletionTimestamp, "a pod is assigned here")
	require.NoError(t, w.tenant.Delete(t.Context(), pod))
	release(t, w.super, w.superName("moving"), "")

	placement := w.place(t, "gone", "r1")
	appears(t, w.super, "", w.superName("gone"), &corev1.Namespace{}, nil)
	w.end(t, placement)
	release(t, w.super, w.superName("gone"), "")
}

func (w *world) testNamespaceAgain(t *testing.T) {
	placement := w.place(t, "again", "r1")
	before := appears(t, w.super, "", w.superName("again"), &corev1.Namespace{}, nil).UID
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "again"}}
	require.NoError(t, w.tenant.Delete(t.Context(), namespace))
	release(t, w.tenant, "again", "")
	create(t, w.tenant, namespace)
	await.Change(t, w.meta, placement, func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.NamespaceUID = namespace.UID })
	release(t, w.super, w.superName("again"), before)
	appears(t, w.super, "", w.superName("again"), &corev1.Namespace{}, func(super *corev1.Namespace) bool {
		return super.UID != before && super.Annotations[tenancyv1alpha1.AnnotationUID] == string(namespace.UID)
	})
}

// testRestart stops the syncer and starts another: nothing is written again, and what happened meanwhile is done.
func (w *world) testRestart(t *testing.T, numbers *prometheus.Registry, stop func()) {
	create(t, w.tenant, newPodWithTokens("stays"))
	create(t, w.tenant, newPod("web", "goes"))
	w.run(t, "stays", "n1")
	pod := &corev1.Pod{}
	appears(t, w.tenant, "web", "stays", pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	goes := appears(t, w.super, w.superName("web"), "goes", &corev1.Pod{}, nil)
	vanishes(t, w.tenant, "", "r1.n0", &corev1.Node{}) // no pod is there any more
	before := w.settled(t, numbers)
	stop()

	numbers, stop = w.runSyncer(t, w.superConfig)
	patrols(t, numbers)
	require.Empty(t, cmp.Diff(before, w.versions(t)))
	stop()

	require.NoError(t, w.tenant.Delete(t.Context(), newPod("web", "goes")))
	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "password"}}))
	w.runSyncer(t, w.superConfig)
	vanishes(t, w.super, w.superName("web"), "goes", goes)
	vanishes(t, w.super, w.superName("web"), "password", &corev1.Secret{})
}

// settled waits until the syncer finds nothing to do, and returns the versions of all objects then.
func (w *world) settled(t *testing.T, numbers *prometheus.Registry) map[string]string {
	t.Helper()
	settled := w.versions(t)
	eventually(t, func() error {
		before := settled
		patrols(t, numbers)
		settled = w.versions(t)
		if diff := cmp.Diff(before, settled); diff != "" {
			return fmt.Errorf("something is still written: %s", diff)
		}
		return nil
	})
	return settled
}

const (
	// patrolPeriod is the time between two patrols of the syncers of tests, beside those that patrols asks for.
	patrolPeriod = time.Second
	// patrolsBegun and patrolsEnded are metrics of the tests alone: how many patrols of a kind the engine has begun and
	// ended. One has ended once the keys of all objects of the kind, of all tenants, are in the kind's queue.
	patrolsBegun, patrolsEnded = "test_patrols_begun_total", "test_patrols_ended_total"
)

// patrols waits until the syncer has looked at every object of every kind and tenant that its caches hold now: twice, a
// patrol of each kind begins and ends, at once, and then the kind's queue is empty while no worker has anything. At the
// end nothing of the first patrol is in processing any more.
func patrols(t *testing.T, numbers *prometheus.Registry) {
	t.Helper()
	for range 2 {
		begun, idle := values(t, numbers, patrolsBegun), map[string]bool{}
		running, found := patrolClocks.Load(numbers)
		require.True(t, found, "the syncer runs")
		running.(*patrolClock).tick()
		eventually(t, func() error {
			// What follows is read after this: a queue that is empty then is so behind the patrol. A key that was added
			// while it was in processing is in the queue only afterwards.
			ended := values(t, numbers, patrolsEnded)
			depths, working, again := queued(t, numbers), values(t, numbers, "vc_syncer_queue_processing"), queued(t, numbers)
			if len(depths) == 0 || len(ended) != len(depths) {
				return fmt.Errorf("%d of %d kinds are patrolled", len(ended), len(depths))
			}
			for kind, count := range ended {
				// The first patrol of all ends without a tick that begins it.
				if count-1 <= begun[kind] {
					return fmt.Errorf("%v patrols of kind number %s have ended, and %v had begun before", count-1, kind, begun[kind])
				}
			}
			for kind, depth := range depths {
				idle[kind] = idle[kind] || depth == 0 && working[kind] == 0 && again[kind] == 0
			}
			for kind := range depths {
				if !idle[kind] {
					return fmt.Errorf("%v keys wait in the queue of kind %s, and %v are in processing", again[kind], kind, working[kind])
				}
			}
			return nil
		})
	}
}

// patrolClocks are the clocks of syncers that run, by their metrics.
var patrolClocks sync.Map

func queued(t *testing.T, numbers *prometheus.Registry) map[string]float64 {
	t.Helper()
	return values(t, numbers, "vc_syncer_queue_depth")
}

// patrolClock is the real clock. Of the tickers of patrols, one a kind, it counts what they begin and end.
type patrolClock struct {
	clock.RealClock
	begun, ended *prometheus.CounterVec

	mu      sync.Mutex
	tickers []*patrolTicker
}

// countPatrols returns the clock of an engine that counts its patrols in numbers, until the test ends.
func countPatrols(t *testing.T, numbers *prometheus.Registry) *patrolClock {
	t.Helper()
	c := &patrolClock{
		begun: prometheus.NewCounterVec(prometheus.CounterOpts{Name: patrolsBegun, Help: "Patrols that began."}, []string{"kind"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: patrolsEnded, Help: "Patrols that ended."}, []string{"kind"}),
	}
	require.NoError(t, numbers.Register(c.begun))
	require.NoError(t, numbers.Register(c.ended))
	patrolClocks.Store(numbers, c)
	t.Cleanup(func() { patrolClocks.Delete(numbers) })
	return c
}

// tick lets all tickers of patrols tick.
func (c *patrolClock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ticker := range c.tickers {
		select {
		case ticker.now <- struct{}{}:
		default: // it is about to
		}
	}
}

// NewTicker implements clock.WithTicker.
func (c *patrolClock) NewTicker(period time.Duration) clock.Ticker {
	if period != patrolPeriod {
		return c.RealClock.NewTicker(period)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := strconv.Itoa(len(c.tickers))
	made := &patrolTicker{
		Ticker: c.RealClock.NewTicker(period), now: make(chan struct{}, 1), ticks: make(chan time.Time), stopped: make(chan struct{}),
		begun: c.begun.WithLabelValues(kind), ended: c.ended.WithLabelValues(kind),
	}
	c.tickers = append(c.tickers, made)
	go made.run()
	return made
}

// patrolTicker is the ticker of the patrol of one kind.
type patrolTicker struct {
	clock.Ticker
	// now lets it tick before its time.
	now          chan struct{}
	ticks        chan time.Time
	stopped      chan struct{}
	begun, ended prometheus.Counter
}

// run passes the ticks on. It counts a patrol as begun before it can be.
func (p *patrolTicker) run() {
	for {
		var tick time.Time
		select {
		case <-p.stopped:
			return
		case tick = <-p.Ticker.C():
		case <-p.now:
		}
		p.begun.Inc()
		select {
		case <-p.stopped:
			return
		case p.ticks <- tick:
		}
	}
}

// C implements clock.Ticker. The engine calls it after each patrol, to wait for the next one.
func (p *patrolTicker) C() <-chan time.Time {
	p.ended.Inc()
	return p.ticks
}

// Stop implements clock.Ticker.
func (p *patrolTicker) Stop() {
	p.Ticker.Stop()
	close(p.stopped)
}

// versions returns the resource versions of all that a syncer writes, but for Leases.
func (w *world) versions(t *testing.T) map[string]string {
	versions := map[string]string{}
	for side, c := range map[string]client.Client{"tenant": w.tenant, "super": w.super} {
		for _, list := range []client.ObjectList{
			&corev1.PodList{}, &corev1.NamespaceList{}, &corev1.NodeList{}, &corev1.ConfigMapList{}, &corev1.SecretList{},
			&corev1.ServiceList{}, &networkingv1.IngressList{}, &discoveryv1.EndpointSliceList{}, &corev1.ServiceAccountList{}, &corev1.ResourceQuotaList{},
		} {
			require.NoError(t, c.List(t.Context(), list))
			require.NoError(t, eachItem(list, func(object client.Object) {
				versions[fmt.Sprintf("%s %T %s/%s", side, object, object.GetNamespace(), object.GetName())] = object.GetResourceVersion()
			}))
		}
	}
	return versions
}

// values returns the values of a metric with one label, by that.
func values(t *testing.T, numbers *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := numbers.Gather()
	require.NoError(t, err)
	byLabel := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			require.Len(t, metric.GetLabel(), 1)
			byLabel[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return byLabel
}
