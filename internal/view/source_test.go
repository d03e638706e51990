package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const patience = 10 * time.Second

func pod(name, uid, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}}
}

// recorded starts an informer on source and returns what its handlers are told, in order.
func recorded(t *testing.T, source *Source) chan string {
	t.Helper()
	told := make(chan string, 10000)
	informer := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { told <- "add " + o.(*corev1.Pod).Name + string(o.(*corev1.Pod).UID) },
		UpdateFunc: func(_, o any) {
			told <- "update " + o.(*corev1.Pod).Name + string(o.(*corev1.Pod).UID) + "@" + o.(*corev1.Pod).Spec.NodeName
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			told <- "delete " + o.(*corev1.Pod).Name + string(o.(*corev1.Pod).UID)
		},
	})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(t.Context())
	}()
	t.Cleanup(func() { <-done })
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced))
	return told
}

func want(t *testing.T, told chan string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		select {
		case got := <-told:
			require.Equal(t, line, got)
		case <-time.After(patience):
			require.Fail(t, "nothing came", "want %q", line)
		}
	}
	require.Empty(t, told)
}

func TestSourceFeedsAnInformer(t *testing.T) {
	source := NewPodSource()
	source.Set("a", pod("one", "1", ""), pod("two", "1", ""))
	told := recorded(t, source)
	want(t, told, "add one1", "add two1")

	source.Set("b", pod("three", "1", ""))
	want(t, told, "add three1")
	source.Set("a", pod("one", "1", ""), pod("two", "1", "r1"))
	want(t, told, "update two1@r1")
	source.Update("a", pod("one", "1", "r2"))
	want(t, told, "update one1@r2")
	source.Set("a", pod("one", "2", ""))
	want(t, told, "delete one1", "add one2", "delete two1")
	source.Set("a")
	source.Set("b")
	want(t, told, "delete one2", "delete three1")
}

func TestSourceAddsBeforeItDeletes(t *testing.T) {
	source := NewPodSource()
	source.Set("a", pod("slice", "1", ""))
	told := recorded(t, source)
	want(t, told, "add slice1")
	source.Update("a", pod("slice", "1", "r1"))
	source.Set("a", pod("held", "1", "r1"))
	want(t, told, "update slice1@r1", "add held1", "delete slice1")
}

func TestSourceTellsThatAnUpdatedObjectIsGone(t *testing.T) {
	source := NewPodSource()
	source.Set("a", pod("slice", "1", ""))
	told := recorded(t, source)
	want(t, told, "add slice1")
	source.Update("a", pod("slice", "1", "r1"))
	want(t, told, "update slice1@r1")
	source.Set("a", pod("held", "1", "r1"))
	want(t, told, "add held1", "delete slice1")
	source.Update("a", pod("slice", "1", "r1"))
	want(t, told, "add slice1", "delete slice1")
	source.Set("a", pod("slice", "2", ""))
	want(t, told, "add slice2", "delete held1")
	source.Update("a", pod("slice", "1", "r1"))
	want(t, told, "delete slice2", "add slice1", "delete slice1", "add slice2")
	source.Set("a")
	want(t, told, "delete slice2")
}

func TestSourceTellsALateWatchToListAgain(t *testing.T) {
	source := NewPodSource()
	source.Set("a", pod("one", "1", ""))
	for i := range 3 * historyLimit {
		source.Set("a", pod("one", "1", fmt.Sprint(i)))
	}
	running, err := source.Watch(metav1.ListOptions{ResourceVersion: "1"})
	require.NoError(t, err)
	defer running.Stop()
	event := <-running.ResultChan()
	require.Equal(t, watch.Error, event.Type)
	require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(event.Object)))
	_, open := <-running.ResultChan()
	require.False(t, open)
}

func TestSourceRefusesAWatchFromNowhere(t *testing.T) {
	_, err := NewPodSource().Watch(metav1.ListOptions{ResourceVersion: "yesterday"})
	require.Error(t, err)
}

func BenchmarkSourceSet(b *testing.B) {
	for _, scopes := range []int{100, 10000} {
		b.Run(fmt.Sprintf("scopes=%d", scopes), func(b *testing.B) {
			source := NewPodSource()
			for i := range scopes {
				source.Set(fmt.Sprint(i), pod(fmt.Sprint(i), "1", "r1"))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				source.Set("5", client.Object(pod("5", "1", fmt.Sprint(i))))
			}
		})
	}
}
