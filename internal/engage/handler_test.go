package engage_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/test/builders"
)

// TestObjectHandler calls a handler as informers do.
func TestObjectHandler(t *testing.T) {
	t.Parallel()
	old, current := builders.VirtualNode("old").Obj(), builders.VirtualNode("current").Obj()
	for name, tc := range map[string]struct {
		call func(cache.ResourceEventHandler)
		want string
	}{
		"listed":                      {func(h cache.ResourceEventHandler) { h.OnAdd(current, true) }, "set current"},
		"added":                       {func(h cache.ResourceEventHandler) { h.OnAdd(current, false) }, "set current"},
		"updated":                     {func(h cache.ResourceEventHandler) { h.OnUpdate(old, current) }, "set current"},
		"deleted":                     {func(h cache.ResourceEventHandler) { h.OnDelete(current) }, "remove current"},
		"deleted while not connected": {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: old}) }, "remove old"},
		"another kind":                {func(h cache.ResourceEventHandler) { h.OnAdd(&corev1.Pod{}, false) }, ""},
		"nothing is known":            {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{}) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			tc.call(engage.ObjectHandler(
				func(node *corev1.Node) { got += "set " + node.Name },
				func(node *corev1.Node) { got += "remove " + node.Name }))
			require.Equal(t, tc.want, got)
		})
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	node := builders.VirtualNode("r1").Obj()
	for name, tc := range map[string]struct {
		event  any
		want   *corev1.Node
		wantOK bool
	}{
		"an object":                   {event: node, want: node, wantOK: true},
		"a tombstone":                 {event: cache.DeletedFinalStateUnknown{Obj: node}, want: node, wantOK: true},
		"an empty tombstone":          {event: cache.DeletedFinalStateUnknown{}},
		"another type":                {event: &corev1.Pod{}},
		"a tombstone of another type": {event: cache.DeletedFinalStateUnknown{Obj: &corev1.Pod{}}},
		"a tombstone in another":      {event: cache.DeletedFinalStateUnknown{Obj: cache.DeletedFinalStateUnknown{Obj: node}}},
		"nothing":                     {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := engage.Object[*corev1.Node](tc.event)
			require.Equal(t, tc.wantOK, ok)
			require.Same(t, tc.want, got)
		})
	}
}
