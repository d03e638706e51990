package podscheduler

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

// TestBudgetIsGivenBack connects twice with one budget: the second connection begins with all of it. All that is read
// counts, whatever its API group.
func TestBudgetIsGivenBack(t *testing.T) {
	t.Parallel()
	bounds := tenantclient.New(&policy.Ref{})
	api := builders.Clientset(builders.Pod("web", "a").Obj(), builders.Pod("web", "b").Obj(), builders.Namespace("web"),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}})
	for range 2 {
		stop := make(chan struct{})
		factory := NewInformers(t.Context(), api, view.NewNodeSource(), NewChoices(), bounds, func(err error) { t.Error(err) })
		factory.Core().V1().Namespaces().Informer()
		factory.Scheduling().V1().PriorityClasses().Informer()
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		require.Eventually(t, func() bool { objects, _ := bounds.Kept(); return objects == 4 }, patience, time.Millisecond)
		close(stop)
		factory.Shutdown()
		objects, bytes := bounds.Kept()
		require.Zero(t, objects)
		require.Zero(t, bytes)
	}
}

// TestHandlersOfOneInformer: handlers are told of all objects, whether they come before the informer runs or while it
// does, and of none once they are removed. What would change for all of them is refused.
func TestHandlersOfOneInformer(t *testing.T) {
	t.Parallel()
	api := builders.Clientset(builders.Namespace("a"), builders.Namespace("b"))
	factory := NewInformers(t.Context(), api, view.NewNodeSource(), NewChoices(), tenantclient.New(&policy.Ref{}), func(err error) { t.Error(err) })
	informer := factory.Core().V1().Namespaces().Informer()
	var mu sync.Mutex
	told := map[string]sets.Set[string]{"first": {}, "removed": {}, "late": {}}
	handler := func(who string) cache.ResourceEventHandler {
		return cache.ResourceEventHandlerFuncs{AddFunc: func(added any) {
			mu.Lock()
			defer mu.Unlock()
			told[who].Insert(added.(*corev1.Namespace).Name) //nolint:forcetypeassert // it fails if it is not
		}}
	}
	of := func(who string) []string {
		mu.Lock()
		defer mu.Unlock()
		return sets.List(told[who])
	}
	first, err := informer.AddEventHandler(handler("first"))
	require.NoError(t, err)
	require.False(t, first.HasSynced(), "it does not run")
	removed, err := informer.AddEventHandler(handler("removed"))
	require.NoError(t, err)
	require.NoError(t, informer.RemoveEventHandler(removed))
	_, err = informer.AddEventHandlerWithResyncPeriod(handler("removed"), time.Minute)
	require.EqualError(t, err, "a tenant's informers have no resyncs")

	stop := make(chan struct{})
	defer func() { close(stop); factory.Shutdown() }()
	factory.Start(stop)
	require.True(t, cache.WaitForCacheSync(stop, first.HasSynced))
	require.Equal(t, []string{"a", "b"}, of("first"))
	late, err := informer.AddEventHandler(handler("late"))
	require.NoError(t, err)
	require.True(t, cache.WaitForCacheSync(stop, late.HasSynced))
	require.Equal(t, []string{"a", "b"}, of("late"))
	require.Empty(t, of("removed"))
	require.EqualError(t, informer.SetTransform(nil), "the informer has begun")
}

// TestNodeTakenOff: kube-scheduler is told of a deletion and an addition, and choices keep what they know of the pod.
func TestNodeTakenOff(t *testing.T) {
	t.Parallel()
	chosen := NewChoices()
	factory := NewInformers(t.Context(), builders.Clientset(), view.NewNodeSource(), chosen, nil, func(err error) { t.Error(err) })
	pods := factory.(*boundedFactory).informers[reflect.TypeFor[*corev1.Pod]()]
	var told []string
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { told = append(told, "add "+pod.(*corev1.Pod).Spec.NodeName) },
		UpdateFunc: func(_, pod any) { told = append(told, "update "+pod.(*corev1.Pod).Spec.NodeName) },
		DeleteFunc: func(pod any) { told = append(told, "delete "+pod.(*corev1.Pod).Spec.NodeName) },
	})
	require.NoError(t, err)
	chosen.bound.Insert("uid")
	listener := pods.before(&pods.handlers)
	on := func(node string) *corev1.Pod { return builders.Pod("web", "p").UID("uid").Node(node).Obj() }
	listener.OnAdd(on("r1"), false)
	listener.OnUpdate(on("r1"), on(""))
	require.Equal(t, []string{"add r1", "delete r1", "add "}, told)
	require.True(t, chosen.bound.Has("uid"))
	listener.OnDelete(on(""))
	require.False(t, chosen.bound.Has("uid"))
}
