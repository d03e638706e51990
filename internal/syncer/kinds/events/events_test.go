package events_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/events"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestTenantEvent(t *testing.T) {
	t.Parallel()
	const superNamespace = kindtest.ClusterKey + "-web"
	from := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: superNamespace, Name: "web-1.1", UID: "event-uid", Labels: map[string]string{"of": "r1"}},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", Namespace: superNamespace, Name: "web-1", UID: "super-uid", FieldPath: "spec.containers{main}", ResourceVersion: "7",
		},
		Related: &corev1.ObjectReference{Kind: "Node", Name: "n1"}, Type: "Normal", Reason: "Scheduled",
		Message: "Successfully assigned " + superNamespace + "/web-1 to n1", EventTime: metav1.NewMicroTime(time.Unix(1, 0)),
		Action: "Binding", ReportingController: "default-scheduler", ReportingInstance: "default-scheduler-host-of-r1", Source: corev1.EventSource{Component: "kubelet", Host: "n1"},
	}
	untouched := from.DeepCopy()
	got := events.TenantEvent(from, kindtest.TenantPod(nil), "r1")
	require.Empty(t, cmp.Diff(untouched, from), "the Event lies in a cache")
	want := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "web", Name: "web-1.1.r1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "web", Name: "web-1", UID: "pod-uid", FieldPath: "spec.containers{main}"},
		Type:           "Normal", Reason: "Scheduled", Message: "Successfully assigned web/web-1 to r1.n1", EventTime: metav1.NewMicroTime(time.Unix(1, 0)),
		Action: "Binding", ReportingController: "default-scheduler", ReportingInstance: "r1", Source: corev1.EventSource{Component: "kubelet", Host: "r1.n1"},
	}
	require.Empty(t, cmp.Diff(want, got))

	for reason, message := range map[string]string{
		"FailedScheduling":  "0/2 nodes are available: 2 node(s) had untolerated taint {customer: acme-bank}.",
		"Preempted":         "Preempted by pod 4f1c of acme-bank on node n1",
		"NotTriggerScaleUp": "pod didn't trigger scale-up: 1 node(s) had untolerated taint {customer: acme-bank}",
		"TriggeredScaleUp":  "pod triggered scale-up: [{acme-pool-n1 1->2 (max: 5)}]",
	} {
		from.Reason, from.Message = reason, message
		words := events.TenantEvent(from, kindtest.TenantPod(nil), "r1").Message
		require.NotContains(t, words, "acme", "what is another tenant's, or of a node that this one does not know")
		require.NotContains(t, words, "n1")
		require.NotEmpty(t, words)
	}
	from.Reason, from.Message = "BackOff", "Back-off restarting failed container main in pod web-1_"+superNamespace+"(super-uid)"
	require.Equal(t, "Back-off restarting failed container main in pod web-1_web(pod-uid)", events.TenantEvent(from, kindtest.TenantPod(nil), "r1").Message)
}

// TestEventOfService: what a load balancer's controller says of a Service comes up, in the tenant's words.
func TestEventOfService(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	clock := testingclock.NewFakePassiveClock(time.Unix(10_000, 0))
	p.Env.Clock = clock
	service := kindtest.ServiceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	service.UID = "service-uid"
	superService := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "front", UID: "super-uid"}}
	tenancy.SetOwner(superService, kindtest.OwnerOf("service-uid"))
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: superService.Namespace, Name: "front.1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: superService.Namespace, Name: "front", UID: "super-uid"},
		Reason:         "SyncLoadBalancerFailed", Message: "no address for " + superService.Namespace + "/front", LastTimestamp: metav1.Unix(10_000, 0),
	}
	p.TenantCache[kind.Service], p.SuperCache[kind.Service], p.SuperCache["event-of-service"] = []client.Object{service}, []client.Object{superService}, []client.Object{event}
	key, ours := events.EventKey(p.SuperCache, event)
	require.True(t, ours)
	reconcile := func() []corev1.Event {
		_, err := p.Kind(kind.Event).Reconcile(t.Context(), key, time.Minute)
		require.NoError(t, err)
		var events corev1.EventList
		require.NoError(t, p.Tenant.Client.List(t.Context(), &events))
		return events.Items
	}
	superService.UID = "another"
	require.Empty(t, reconcile(), "it is about an earlier one")
	superService.UID = "super-uid"
	tenancy.SetOwner(superService, kindtest.OwnerOf("another-uid"))
	require.Empty(t, reconcile(), "the tenant's is gone")
	tenancy.SetOwner(superService, kindtest.OwnerOf("service-uid"))
	found := reconcile()
	require.Len(t, found, 1)
	require.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "web", Name: "front", UID: "service-uid"}, found[0].InvolvedObject)
	require.Equal(t, []string{"front.1.r1", "no address for web/front"}, []string{found[0].Name, found[0].Message})
}

// TestEventsOfOtherKinds: what controllers of a super cluster say of any copy comes up, about the tenant's object.
func TestEventsOfOtherKinds(t *testing.T) {
	t.Parallel()
	at := metav1.ObjectMeta{Namespace: "web", Name: "data", UID: "tenant-uid"}
	for source, tc := range map[string]struct {
		kind, involved, version string
		object                  client.Object
	}{
		"event-of-persistentvolumeclaim": {kind.Claim, "PersistentVolumeClaim", "v1", &corev1.PersistentVolumeClaim{ObjectMeta: at}},
		"event-of-ingress":               {kind.Ingress, "Ingress", "networking.k8s.io/v1", &networkingv1.Ingress{ObjectMeta: at}},
		"event-of-volumesnapshot": {kind.Snapshot, "VolumeSnapshot", "snapshot.storage.k8s.io/v1", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"namespace": "web", "name": "data", "uid": "tenant-uid"},
		}}},
		"event-of-networkpolicy": {kind.NetworkPolicy, "NetworkPolicy", "networking.k8s.io/v1", &networkingv1.NetworkPolicy{ObjectMeta: at}},
	} {
		p := kindtest.NewPool(t, interceptor.Funcs{})
		p.Env.Clock = testingclock.NewFakePassiveClock(time.Unix(10_000, 0))
		super, ok := tc.object.DeepCopyObject().(client.Object)
		require.True(t, ok)
		super.SetNamespace(kindtest.ClusterKey + "-web")
		super.SetUID("super-uid")
		tenancy.SetOwner(super, kindtest.OwnerOf("tenant-uid"))
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "data.1"},
			InvolvedObject: corev1.ObjectReference{APIVersion: tc.version, Kind: tc.involved, Namespace: kindtest.ClusterKey + "-web", Name: "data", UID: "super-uid"},
			Reason:         "ProvisioningFailed", Message: "no room for " + kindtest.ClusterKey + "-web/data", LastTimestamp: metav1.Unix(10_000, 0),
		}
		p.TenantCache[tc.kind], p.SuperCache[tc.kind], p.SuperCache[source] = []client.Object{tc.object}, []client.Object{super}, []client.Object{event}
		key, ours := events.EventKey(p.SuperCache, event)
		require.True(t, ours)
		_, err := p.Kind(kind.Event).Reconcile(t.Context(), key, time.Minute)
		require.NoError(t, err)
		var events corev1.EventList
		require.NoError(t, p.Tenant.Client.List(t.Context(), &events))
		require.Len(t, events.Items, 1, source)
		require.Equal(t, corev1.ObjectReference{APIVersion: tc.version, Kind: tc.involved, Namespace: "web", Name: "data", UID: "tenant-uid"}, events.Items[0].InvolvedObject)
		require.Equal(t, "no room for web/data", events.Items[0].Message)
	}
}

// TestEventBeforeItsObject: the caches of both are filled by watches of their own. The objects of old Events, which are
// gone, are not waited for at each start and patrol.
func TestEventBeforeItsObject(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	event := builders.Owned(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "p.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: kindtest.ClusterKey + "-web", Name: "p", UID: "super-uid"},
		LastTimestamp:  metav1.Unix(10_000, 0),
	}, kindtest.OwnerOf("ns-uid"))
	p.SuperCache[kind.Event] = []client.Object{event}
	key, ours := events.EventKey(p.SuperCache, event)
	require.True(t, ours)
	for _, tc := range []struct {
		age, waited     time.Duration
		unsynced, waits bool
	}{
		{age: time.Second, waits: true},
		{age: -10 * time.Second, waits: true}, // by another clock
		{age: time.Second, waited: time.Minute},
		{age: time.Minute},
		{age: time.Minute, unsynced: true, waits: true},
	} {
		p.Env.SuperCache = p.SuperCache
		if tc.unsynced {
			p.Env.SuperCache = kindtest.Unfilled{Cache: p.SuperCache, Of: kind.Pod}
		}
		p.Env.Clock = testingclock.NewFakePassiveClock(time.Unix(10_000, 0).Add(tc.age))
		_, err := p.Kind(kind.Event).Reconcile(t.Context(), key, tc.waited)
		var wait *engine.WaitError
		require.Equal(t, tc.waits, errors.As(err, &wait), "%v: %v", tc, err)
		require.True(t, tc.waits || err == nil, "%v: %v", tc, err)
	}
}

// TestEventsOnce tells news, and nothing that is old.
func TestEventsOnce(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	clock := testingclock.NewFakePassiveClock(time.Unix(10_000, 0))
	p.Env.Clock = clock
	pod := kindtest.TenantPod(nil)
	superPod := &corev1.Pod{}
	podspec.SuperPod(pod, superPod, kindtest.OwnerOf(pod.UID), nil, &podspec.PodEnvironment{})
	superPod.UID = "super-uid"
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: superPod.Namespace, Name: "web-1.1", CreationTimestamp: metav1.Unix(1000, 0)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: superPod.Namespace, Name: "web-1", UID: superPod.UID},
		Reason:         "BackOff", Count: 1, LastTimestamp: metav1.Unix(10_000, 0),
	}
	p.TenantCache[kind.Pod], p.SuperCache[kind.Pod], p.SuperCache[kind.Event] = []client.Object{pod}, []client.Object{superPod}, []client.Object{event}
	key, ours := events.EventKey(p.SuperCache, event)
	require.True(t, ours)
	count := func() int32 {
		_, err := p.Kind(kind.Event).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		var events corev1.EventList
		require.NoError(t, p.Tenant.Client.List(t.Context(), &events, client.InNamespace("web")))
		if len(events.Items) == 0 {
			return 0
		}
		return events.Items[0].Count
	}
	clock.SetTime(time.Unix(10_301, 0))
	require.Zero(t, count(), "it is old")
	clock.SetTime(time.Unix(10_300, 0))
	require.Equal(t, int32(1), count())
	require.Equal(t, int32(1), count())
	event.Count = 2
	require.Equal(t, int32(2), count())
	event.Count, event.Message = 3, `MountVolume.SetUp failed for volume "t": secret "`+tenancy.TokenSecret("web-1", pod.UID)+`" not found`
	require.Equal(t, int32(2), count(), "tokens follow the node")
	event.Count, event.Message, event.InvolvedObject.UID = 3, "", "another"
	require.Equal(t, int32(2), count(), "it is about an earlier pod")

	_, ours = events.EventKey(p.SuperCache, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "web-1.1"}})
	require.False(t, ours)
}

// TestEventsOfContainersOfTheSuperCluster: nor do Events about them come up.
func TestEventsOfContainersOfTheSuperCluster(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"": 1, "spec.containers{main}": 1, "spec.containers{proxy}": 0, "spec.initContainers{main}": 0,
		"spec.initContainers{setup}": 1, "spec.ephemeralContainers{debug}": 1, "spec.ephemeralContainers{operator}": 0, "spec.other{x}": 0,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Env.Clock = testingclock.NewFakePassiveClock(time.Unix(10_000, 0))
			_, superPod, _ := p.Running(t, func(pod *corev1.Pod) {
				pod.Spec.InitContainers, pod.Spec.Containers, pod.Spec.EphemeralContainers = kindtest.Containers("setup"), kindtest.Containers("main"), kindtest.Ephemeral("debug")
			})
			event := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: superPod.Namespace, Name: "web-1.1"},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: superPod.Namespace, Name: superPod.Name, UID: superPod.UID, FieldPath: path},
				LastTimestamp:  metav1.Unix(10_000, 0),
			}
			p.SuperCache[kind.Event] = []client.Object{event}
			key, ours := events.EventKey(p.SuperCache, event)
			require.True(t, ours)
			_, err := p.Kind(kind.Event).Reconcile(t.Context(), key, time.Minute)
			require.NoError(t, err)
			var events corev1.EventList
			require.NoError(t, p.Tenant.Client.List(t.Context(), &events))
			require.Len(t, events.Items, want)
		})
	}
}
