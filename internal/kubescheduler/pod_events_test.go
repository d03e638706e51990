package kubescheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/test/builders"
)

// podAs returns a Pod of a view.
func podAs(name, uid, node string) *corev1.Pod {
	pod := builders.Pod("web", name).Node(node).Obj()
	pod.UID = types.UID(uid)
	return pod
}

// event is one call of an informer, made by add, update, remove and tombstone.
type event func(cache.ResourceEventHandler)

func add(pod *corev1.Pod) event {
	return func(h cache.ResourceEventHandler) { h.OnAdd(pod, false) }
}

func update(old, pod *corev1.Pod) event {
	return func(h cache.ResourceEventHandler) { h.OnUpdate(old, pod) }
}

func remove(pod *corev1.Pod) event {
	return func(h cache.ResourceEventHandler) { h.OnDelete(pod) }
}

func tombstone(pod *corev1.Pod) event {
	return func(h cache.ResourceEventHandler) {
		h.OnDelete(cache.DeletedFinalStateUnknown{Key: pod.Namespace + "/" + pod.Name, Obj: pod})
	}
}

// onNode says of each Pod that nobody was told that it was bound to a node.
func onNode(name string) kubescheduler.Missed {
	return func(_, _ *corev1.Pod) string { return name }
}

func TestPodEvents(t *testing.T) {
	t.Parallel()
	const a, b = "uid-a", "uid-b"
	tests := map[string]struct {
		events []event
		// missed is nil for a Pod that nobody has bound.
		missed kubescheduler.Missed
		want   []string
		// behind is what stands between, nil for nothing.
		behind func(cache.ResourceEventHandler) cache.ResourceEventHandler
		// wantRefused is how many Pods are refused.
		wantRefused int
	}{
		"a pod that is bound and ends": {
			events: []event{add(podAs("p", a, "")), update(podAs("p", a, ""), podAs("p", a, "r1")), remove(podAs("p", a, "r1"))},
			want:   []string{"add p uid-a", "update p uid-a -> p uid-a r1", "delete p uid-a r1"},
		},
		"another node is a deletion and an addition": {
			events: []event{add(podAs("p", a, "r1")), update(podAs("p", a, "r1"), podAs("p", a, "r2"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1", "add p uid-a r2"},
		},
		"a node that is taken off is a deletion and an addition for kube-scheduler": {
			events: []event{add(podAs("p", a, "r1")), update(podAs("p", a, "r1"), podAs("p", a, "")), update(podAs("p", a, ""), podAs("p", a, "r2"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1", "add p uid-a", "update p uid-a -> p uid-a r2"},
			behind: kubescheduler.TakenOff,
		},
		"and an update for others": {
			events: []event{add(podAs("p", a, "r1")), update(podAs("p", a, "r1"), podAs("p", a, ""))},
			want:   []string{"add p uid-a r1", "update p uid-a r1 -> p uid-a"},
		},
		"another scheduler is a deletion and an addition": {
			events: []event{add(podAs("p", a, "")), update(podAs("p", a, ""), builders.Pod("web", "p").UID(a).SchedulerName("x").Obj())},
			want:   []string{"add p uid-a", "delete p uid-a", "add p uid-a"},
		},
		"another pod of that name is a deletion and an addition": {
			events: []event{add(podAs("p", a, "r1")), update(podAs("p", a, "r1"), podAs("p", b, "r2"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1", "add p uid-b r2"},
		},
		"what is deleted is what was told last": {
			events: []event{add(podAs("p", a, "r1")), tombstone(podAs("p", a, "r2"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1"},
		},
		"an update of what was not added is an addition": {
			events: []event{update(podAs("p", a, "r1"), podAs("p", a, "r2"))},
			want:   []string{"add p uid-a r2"},
		},
		"an addition of what was added is an update": {
			events: []event{add(podAs("p", a, "r1")), add(podAs("p", a, "r2")), add(podAs("p", a, "r2"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1", "add p uid-a r2", "update p uid-a r2 -> p uid-a r2"},
		},
		"a deletion of what was not added is none": {
			events: []event{remove(podAs("p", a, "r1")), add(podAs("p", a, "r1")), remove(podAs("p", a, "r1")), remove(podAs("p", a, "r1"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1"},
		},
		"a second pod with a UID is refused, whatever it does": {
			events: []event{add(podAs("p", a, "r1")), add(podAs("q", a, "r2")), update(podAs("q", a, "r2"), podAs("q", a, "")), remove(podAs("q", a, ""))},
			want:   []string{"add p uid-a r1"}, wantRefused: 2,
		},
		"a UID that was given back": {
			events: []event{add(podAs("p", a, "r1")), remove(podAs("p", a, "r1")), add(podAs("q", a, "r2"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1", "add q uid-a r2"},
		},
		"a deletion with another UID is that of the pod of the name": {
			events: []event{add(podAs("p", a, "r1")), remove(podAs("p", b, ""))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1"},
		},
		"an addition with another UID is a deletion and an addition": {
			events: []event{add(podAs("p", a, "r1")), add(podAs("p", b, "r1")), remove(podAs("p", a, "r1"))},
			want:   []string{"add p uid-a r1", "delete p uid-a r1", "add p uid-b r1", "delete p uid-b r1"},
		},
		"a pod that takes the UID of another one is gone": {
			events:      []event{add(podAs("p", a, "r1")), add(podAs("q", b, "r1")), update(podAs("q", b, "r1"), podAs("q", a, "r1"))},
			want:        []string{"add p uid-a r1", "add q uid-b r1", "delete q uid-b r1"},
			wantRefused: 1,
		},
		"a node that nobody was told of is told before it is taken off": {
			events: []event{add(podAs("p", a, "")), update(podAs("p", a, ""), podAs("p", a, ""))}, missed: onNode("r1"),
			want: []string{"add p uid-a", "update p uid-a -> p uid-a r1", "update p uid-a r1 -> p uid-a"},
		},
		"and before the pod is gone": {
			events: []event{add(podAs("p", a, "")), remove(podAs("p", a, ""))}, missed: onNode("r1"),
			want: []string{"add p uid-a", "update p uid-a -> p uid-a r1", "delete p uid-a r1"},
		},
		"and before it is another one": {
			events: []event{add(podAs("p", a, "")), update(podAs("p", a, ""), podAs("p", b, ""))}, missed: onNode("r1"),
			want: []string{"add p uid-a", "update p uid-a -> p uid-a r1", "delete p uid-a r1", "add p uid-b"},
		},
		"a node that was told is not told again": {
			events: []event{add(podAs("p", a, "r1")), update(podAs("p", a, "r1"), podAs("p", a, "")), add(podAs("q", b, "r2")), remove(podAs("q", b, "r2"))}, missed: onNode("r1"),
			want: []string{"add p uid-a r1", "update p uid-a r1 -> p uid-a", "add q uid-b r2", "delete q uid-b r2"},
		},
		"a pod without UID is refused": {events: []event{add(podAs("p", "", "r1"))}, wantRefused: 1},
		"no pods": {events: []event{
			func(h cache.ResourceEventHandler) { h.OnAdd(builders.Namespace("web"), true) },
			func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "web/p"}) },
			func(h cache.ResourceEventHandler) { h.OnUpdate(nil, nil) },
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			said := func(pod any) string {
				p := pod.(*corev1.Pod)
				text := fmt.Sprintf("%s %s", p.Name, p.UID)
				if p.Spec.NodeName != "" {
					text += " " + p.Spec.NodeName
				}
				return text
			}
			refused := 0
			var next cache.ResourceEventHandler = cache.ResourceEventHandlerFuncs{
				AddFunc:    func(pod any) { got = append(got, "add "+said(pod)) },
				UpdateFunc: func(old, pod any) { got = append(got, "update "+said(old)+" -> "+said(pod)) },
				DeleteFunc: func(pod any) { got = append(got, "delete "+said(pod)) },
			}
			if tc.behind != nil {
				next = tc.behind(next)
			}
			handler := kubescheduler.NewPodEvents(next, tc.missed, func(error) { refused++ })
			for _, event := range tc.events {
				event(handler)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what the next handler is told (-want +got):\n%s", diff)
			}
			require.Equal(t, tc.wantRefused, refused)
		})
	}
}

// TestMissedIsAskedOnce: of each Pod that is gone, whether anybody was told of it or not.
func TestMissedIsAskedOnce(t *testing.T) {
	t.Parallel()
	var asked []string
	handler := kubescheduler.NewPodEvents(cache.ResourceEventHandlerFuncs{}, func(before, after *corev1.Pod) string {
		require.Nil(t, after)
		asked = append(asked, string(before.UID))
		return ""
	}, func(error) {})
	for _, event := range []event{add(podAs("p", "told", "")), remove(podAs("p", "other", "")), remove(podAs("p", "other", "")), add(podAs("p", "told", "")), remove(podAs("p", "told", ""))} {
		event(handler)
	}
	require.Equal(t, []string{"other", "told", "other", "told"}, asked)
}

// exits replaces what ends the process by a failure of the test. No test beside it may do the same.
func exits(t *testing.T) {
	t.Helper()
	before := klog.OsExit
	klog.OsExit = func(int) { t.Error("kube-scheduler ends the process") }
	t.Cleanup(func() { klog.OsExit = before })
}

// assignedTo returns PodEvents in front of what kube-scheduler does with pods on nodes and with those that it has
// assumed there (addPod, updatePod and deletePod of pkg/scheduler/eventhandlers.go): it keeps them in its cache.
func assignedTo(ctx context.Context, t *testing.T, pods internalcache.Cache, missed kubescheduler.Missed) *kubescheduler.PodEvents {
	logger := klog.FromContext(ctx)
	isAssigned := func(pod any) bool { return pod.(*corev1.Pod).Spec.NodeName != "" }
	add := func(pod any) {
		if isAssigned(pod) {
			require.NoError(t, pods.AddPod(logger, pod.(*corev1.Pod)))
		}
	}
	return kubescheduler.NewPodEvents(kubescheduler.TakenOff(cache.ResourceEventHandlerFuncs{
		AddFunc: add,
		UpdateFunc: func(old, pod any) {
			if isAssigned(old) {
				require.NoError(t, pods.UpdatePod(logger, old.(*corev1.Pod), pod.(*corev1.Pod)))
			} else {
				add(pod)
			}
		},
		DeleteFunc: func(pod any) {
			if isAssigned(pod) {
				require.NoError(t, pods.RemovePod(logger, pod.(*corev1.Pod)))
			} else if assumed, err := pods.GetPod(pod.(*corev1.Pod)); err == nil {
				require.NoError(t, pods.RemoveAssumedPod(logger, assumed))
			}
		},
	}), missed, func(error) {})
}

// FuzzPodEventsKeepTheCache calls a cache of kube-scheduler's with what an API server of a tenant's own may say: all
// events, in any order, of two pods with two UIDs on two nodes and on none.
func FuzzPodEventsKeepTheCache(f *testing.F) {
	for _, seed := range [][]byte{{0x11, 0x52}, {0x10, 0x51, 0x92}, {0x11, 0x16, 0x5a, 0x91}, {0x01, 0x05, 0x49, 0x8d, 0x02}, {0x11, 0x1e, 0xd2, 0x51}} {
		f.Add(seed)
	}
	metrics.Register()
	f.Fuzz(func(t *testing.T, moves []byte) {
		exits(t)
		ctx := schedulertest.Context(t)
		handler := assignedTo(ctx, t, internalcache.New(ctx, nil, false, false), onNode([]string{"", "r1", "r3"}[len(moves)%3]))
		last := map[string]*corev1.Pod{}
		for _, move := range moves {
			pod := podAs(string("pq"[move>>2&1]), string("uv"[move>>3&1]), []string{"", "r1", "r2", "r3"}[move&3])
			old := last[pod.Name]
			if old == nil {
				old = pod
			}
			switch move >> 6 {
			case 0:
				handler.OnAdd(pod, false)
			case 1:
				handler.OnUpdate(old, pod)
			case 2:
				handler.OnDelete(pod)
			default:
				handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "web/" + pod.Name, Obj: old})
			}
			last[pod.Name] = pod
		}
	})
}

// FuzzAssumedPods lets pods come and go as an API server of a tenant's own says, while a kube-scheduler assumes them on
// nodes and forgets them, in any order.
func FuzzAssumedPods(f *testing.F) {
	random := rand.New(rand.NewPCG(26, 12))
	for range 30 {
		moves := make([]byte, 300)
		for i := range moves {
			moves[i] = byte(random.UintN(256))
		}
		f.Add(moves)
	}
	metrics.Register()
	f.Fuzz(func(t *testing.T, moves []byte) {
		exits(t)
		ctx, cancel := context.WithCancel(schedulertest.Context(t))
		t.Cleanup(cancel)
		logger := klog.FromContext(ctx)
		pods := internalcache.New(ctx, nil, false, false)
		handler := assignedTo(ctx, t, pods, onNode([]string{"", "r1", "r3"}[len(moves)%3]))
		for _, move := range moves {
			pod := podAs(string("pq"[move>>2&1]), string("uv"[move>>3&1]), []string{"", "r1", "r2", "r3"}[move&3])
			switch move >> 5 {
			case 0, 1:
				handler.OnUpdate(pod, pod)
			case 2:
				handler.OnDelete(pod)
			case 3, 4, 5:
				_ = pods.AssumePod(logger, pod) // refused if it is there
			default:
				_ = pods.ForgetPod(logger, pod) // refused if it is not assumed there
			}
			for uid := range pods.Dump().AssumedPods {
				_, err := pods.GetPod(podAs("", uid, ""))
				require.NoError(t, err, "what is assumed is there")
			}
		}
	})
}
