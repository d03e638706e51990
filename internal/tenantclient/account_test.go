package tenantclient_test

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
)

func configMap(name string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": strings.Repeat("x", size)}}
}

// TestAccount: what informers keep is counted as objects come, change and go; nothing is left of a closed account.
func TestAccount(t *testing.T) {
	t.Parallel()
	bounds := bounded(t)
	one, other := bounds.Account(), bounds.Account()
	small, large := configMap("a", 10), configMap("a", 10000)
	one.Handler(nil).OnAdd(small, true)
	_, before := bounds.Kept()
	one.Handler(nil).OnUpdate(small, large)
	objects, after := bounds.Kept()
	require.EqualValues(t, 1, objects)
	require.EqualValues(t, 9990, after-before)
	other.Handler(nil).OnAdd(large, true)
	other.Handler(nil).OnDelete(cache.DeletedFinalStateUnknown{Key: "a", Obj: large})
	objects, bytes := bounds.Kept()
	require.EqualValues(t, 1, objects)
	require.Equal(t, after, bytes)
	one.Close()
	one.Close()
	one.Handler(nil).OnDelete(large) // an event on its way
	objects, bytes = bounds.Kept()
	require.Zero(t, objects)
	require.Zero(t, bytes)
}

// TestDeletionsCountWhatWasAdded: an informer passes on what the API server says of an object that it deletes, which
// may be larger than the one that was there, or one that was not.
func TestDeletionsCountWhatWasAdded(t *testing.T) {
	t.Parallel()
	small, large := configMap("a", 10), configMap("a", 100_000)
	for _, tc := range []struct {
		name string
		does func(server *watch.FakeWatcher)
	}{
		{name: "a larger one is deleted", does: func(server *watch.FakeWatcher) { server.Add(small); server.Delete(large) }},
		{name: "a smaller one is deleted", does: func(server *watch.FakeWatcher) { server.Add(large); server.Delete(small) }},
		{name: "an unknown one is deleted", does: func(server *watch.FakeWatcher) { server.Delete(large) }},
		{name: "one is deleted twice", does: func(server *watch.FakeWatcher) { server.Add(small); server.Delete(small); server.Delete(small) }},
		{name: "one is added twice", does: func(server *watch.FakeWatcher) { server.Add(small); server.Add(large); server.Delete(small) }},
		{name: "an unknown one changes", does: func(server *watch.FakeWatcher) { server.Modify(large); server.Delete(small) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bounds, server := bounded(t), watch.NewFake()
			informer := cache.NewSharedIndexInformer(&cache.ListWatch{
				ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.ConfigMapList{}, nil },
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return server, nil },
			}, &corev1.ConfigMap{}, 0, cache.Indexers{})
			last := make(chan struct{})
			_, err := informer.AddEventHandler(bounds.Account().Handler(cache.ResourceEventHandlerFuncs{AddFunc: func(added any) {
				if added.(*corev1.ConfigMap).Name == "last" {
					close(last)
				}
			}}))
			require.NoError(t, err)
			go informer.RunWithContext(t.Context())
			tc.does(server)
			end := configMap("last", 10)
			server.Add(end)
			<-last
			objects, bytes := bounds.Kept()
			alone := bounded(t)
			alone.Account().Handler(nil).OnAdd(end, false)
			wantObjects, wantBytes := alone.Kept()
			require.Equal(t, wantObjects, objects)
			require.Equal(t, wantBytes, bytes)
		})
	}
}

// TestBudgets: the object that is one too many, or too large, ends the connection.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		object client.Object
		bytes  string
		most   int
		want   string
	}{
		{name: "many small objects", bytes: "1Mi", object: &unstructured.Unstructured{Object: map[string]any{}}, most: 1001, want: "The number of objects to watch is more than 1000 (limits.cachedObjects of TenantPolicy small)"},
		{name: "a few large ones", object: configMap("a", 30000), most: 9, want: "The size of all objects to watch is more than 256Ki (limits.cachedBytes of TenantPolicy small)"},
		{name: "one of empty structures", most: 1, want: "The size of all objects", object: &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 2000)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bounds := boundedBy(t, cmp.Or(tc.bytes, "256Ki"))
			added := 0
			err := bounds.Serve(t.Context(), func(ctx context.Context) error {
				handler := bounds.Account().Handler(nil)
				for ; ctx.Err() == nil && added <= 2000; added++ {
					object := tc.object.DeepCopyObject().(client.Object)
					object.SetName(strconv.Itoa(added))
					handler.OnAdd(object, true)
				}
				return nil
			})
			var failure *engage.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, tenancyv1alpha1.ReasonTooMuchData, failure.Reason.Reason)
			require.Contains(t, failure.Message, tc.want)
			require.Equal(t, tc.most, added)
		})
	}
}

// BenchmarkAccount is what an event of a pod costs.
func BenchmarkAccount(b *testing.B) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web"}}}
	for i := range 4 {
		container := corev1.Container{Name: fmt.Sprint(i), Image: "registry/image"}
		for range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: "NAME", Value: "value"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	account := bounded(b).Account()
	transform, handler := account.Transform(nil), account.Handler(nil)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = transform(pod)
		handler.OnUpdate(pod, pod)
	}
}
