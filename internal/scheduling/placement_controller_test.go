package scheduling

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/manifests/profiles"
)

// TestPlacementsRestored shows placements on namespaces as the informer has them. A tenant is told that it changed something only when it did.
func TestPlacementsRestored(t *testing.T) {
	t.Parallel()
	np := &schedulerv1alpha1.NamespacePlacement{Status: schedulerv1alpha1.NamespacePlacementStatus{Placements: []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Slices: 1}}}}
	placed := placement.Encode(np.Status.Placements)
	for name, tc := range map[string]struct {
		// shown is what was written last, nil for nothing.
		shown *string
		got   string
		// behind says that the namespace has changed since the informer saw it.
		behind    bool
		wantEvent bool
	}{
		"first":                        {},
		"as it was written":            {shown: &placed, got: placed},
		"the tenant wrote something":   {shown: &placed, got: `{"r2":1}`, wantEvent: true},
		"the tenant removed it":        {shown: &placed, wantEvent: true},
		"our own write is not yet met": {shown: &placed, behind: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{schedulerv1alpha1.AnnotationPlacements: tc.got}}}
			api := fake.NewClientset(namespace)
			if tc.behind {
				api.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), "web", nil)
				})
			}
			recorder := events.NewFakeRecorder(1)
			controller := &placementController{
				api: api, recorder: recorder, pods: informers.NewSharedInformerFactory(api, 0).Core().V1().Pods().Lister(), shown: map[string]string{},
			}
			if tc.shown != nil {
				controller.shown["web"] = *tc.shown
			}
			err := controller.show(t.Context(), namespace, np)
			require.Equal(t, tc.behind, apierrors.IsConflict(err), "%v", err)
			require.Equal(t, tc.wantEvent, len(recorder.Events) == 1)
			if !tc.behind {
				require.Equal(t, placed, controller.shown["web"])
			}
		})
	}
}

// TestAPodThatChoseJustBefore: a namespace loses its placement in r1 while a pod chooses r1. The pod is looked at when the cache has the loss,
// also when the tenant sees the new placements already.
func TestAPodThatChoseJustBefore(t *testing.T) {
	t.Parallel()
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	in := func(cluster string) []schedulerv1alpha1.ClusterPlacement {
		return []schedulerv1alpha1.ClusterPlacement{{Cluster: cluster, Slices: 1, Reserved: one}}
	}
	np := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web"},
		Spec:       schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: "1", Slice: one, Quota: one},
		Status:     schedulerv1alpha1.NamespacePlacementStatus{Placements: in("r1")},
	}
	metaClient := newMetaCluster(t, np).client
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "web", UID: "1", Annotations: map[string]string{schedulerv1alpha1.AnnotationPlacements: placement.Encode(in("r1"))},
	}}
	api := fake.NewClientset(namespace)
	factory := informers.NewSharedInformerFactory(api, 0)
	controller := newPlacementController(&Tenants{Client: metaClient, DefaultSlice: slice.Of(one)}, &tenants.Tenant{Key: "tenant"}, api, factory, nil, events.NewFakeRecorder(10))
	defer controller.queue.ShutDown()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: one}}
	require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Add(namespace))
	require.NoError(t, factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(quota))
	require.NoError(t, controller.reconcileNamespace(t.Context(), "web"))
	require.Zero(t, controller.queue.Len())

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "late"}, Spec: corev1.PodSpec{NodeName: "r1"}}
	require.NoError(t, factory.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	require.NoError(t, metaClient.Get(t.Context(), client.ObjectKeyFromObject(np), np))
	np.Status.Placements = in("r2")
	require.NoError(t, metaClient.Status().Update(t.Context(), np))
	namespace = namespace.DeepCopy()
	namespace.Annotations[schedulerv1alpha1.AnnotationPlacements] = placement.Encode(in("r2"))
	require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Update(namespace))
	require.NoError(t, controller.reconcileNamespace(t.Context(), "web"))
	require.Equal(t, 1, controller.queue.Len(), "the pod is looked at")
	item, _ := controller.queue.Get()
	require.Equal(t, request{namespace: "web", pod: "late"}, item)
	controller.queue.Done(item)
	require.NoError(t, controller.reconcileNamespace(t.Context(), "web"))
	require.Zero(t, controller.queue.Len(), "nothing has changed since")
}

// TestEventsThatComeBack: what was said before is said again when something else was true in between, for the last Event is what a tenant
// believes.
func TestEventsThatComeBack(t *testing.T) {
	t.Parallel()
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	api := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(api, 0)
	recorder := events.NewFakeRecorder(10)
	controller := newPlacementController(&Tenants{Client: newMetaCluster(t).client, DefaultSlice: slice.Of(one)}, &tenants.Tenant{Key: "tenant"}, api, factory, nil, recorder)
	defer controller.queue.ShutDown()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
	require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Add(namespace))
	said := func() (lines []string) {
		for len(recorder.Events) > 0 {
			lines = append(lines, <-recorder.Events)
		}
		return lines
	}
	for _, reason := range []string{
		schedulerv1alpha1.ReasonPlaced, schedulerv1alpha1.ReasonPlaced, schedulerv1alpha1.ReasonUnschedulable,
		schedulerv1alpha1.ReasonPlaced, schedulerv1alpha1.ReasonUnschedulable,
	} {
		status := metav1.ConditionFalse
		if reason == schedulerv1alpha1.ReasonPlaced {
			status = metav1.ConditionTrue
		}
		np := &schedulerv1alpha1.NamespacePlacement{}
		meta.SetStatusCondition(&np.Status.Conditions, metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced, Status: status, Reason: reason, Message: reason})
		controller.announce(namespace, np)
	}
	require.Empty(t, cmp.Diff([]string{
		"Normal Placed Placed: ", "Warning NotPlaced Unschedulable", "Normal Placed Placed: ", "Warning NotPlaced Unschedulable",
	}, said()))

	typo, mended := map[string]string{schedulerv1alpha1.AnnotationSlice: "2 cores"}, map[string]string(nil)
	for i, annotations := range []map[string]string{typo, typo, mended, typo} {
		changed := namespace.DeepCopy()
		changed.Annotations = annotations
		require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Update(changed))
		require.NoError(t, controller.reconcileNamespace(t.Context(), "web"))
		told := strings.Contains(strings.Join(said(), "\n"), schedulerv1alpha1.ReasonInvalidSlice)
		require.Equal(t, i == 0 || i == 3, told, "step %d", i)
	}
}

// TestUnknownProfile: a namespace that names a profile which is not there is placed by the one that placed it before, and is told.
func TestUnknownProfile(t *testing.T) {
	t.Parallel()
	config, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	names, err := placer.Profiles(config)
	require.NoError(t, err)
	config.Profiles[0].SchedulerName = "packing"
	_, err = placer.Profiles(config)
	require.ErrorContains(t, err, `no profile of the namespace scheduler is named "namespace-scheduler"`)
	names.Insert("packing")

	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	api, recorder := fake.NewClientset(), events.NewFakeRecorder(20)
	factory := informers.NewSharedInformerFactory(api, 0)
	metaClient := newMetaCluster(t).client
	controller := newPlacementController(&Tenants{Client: metaClient, DefaultSlice: slice.Of(one), Profiles: names}, &tenants.Tenant{Key: "tenant"}, api, factory, nil, recorder)
	defer controller.queue.ShutDown()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: one}}
	require.NoError(t, factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(quota))
	for i, step := range []struct {
		named, want string
		unknown     bool
	}{
		{named: "", want: ""},
		{named: "typo", want: "", unknown: true},
		{named: "packing", want: "packing"},
		{named: "typo", want: "packing", unknown: true},
		{named: "", want: ""},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
		if step.named != "" {
			namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationScheduler: step.named}
		}
		require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Add(namespace))
		require.NoError(t, controller.reconcileNamespace(t.Context(), "web"))
		np := &schedulerv1alpha1.NamespacePlacement{}
		require.NoError(t, metaClient.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, np))
		require.Equal(t, step.want, np.Spec.SchedulerName, "step %d", i)
		told := false
		for len(recorder.Events) > 0 {
			told = told || strings.Contains(<-recorder.Events, schedulerv1alpha1.ReasonUnknownScheduler)
		}
		require.Equal(t, step.unknown, told, "step %d", i)
	}
}
