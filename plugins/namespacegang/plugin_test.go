package namespacegang_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders"
)

// notebook is a Committer that notes what it is told.
type notebook struct {
	mu    sync.Mutex
	lines []string
	// fail is the outcome of each commit in turn; nil once it is used up.
	fail []error
}

func (n *notebook) Commit(_ context.Context, gang string, assignments []namespacegang.Assignment) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := gang + ":"
	for _, a := range assignments {
		line += fmt.Sprintf(" %s=%s", a.Pod.Name, a.Cluster)
	}
	n.lines = append(n.lines, line)
	if len(n.fail) == 0 {
		return nil
	}
	err := n.fail[0]
	n.fail = n.fail[1:]
	return err
}

func (n *notebook) want(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if diff := cmp.Diff(want, n.lines); diff != "" {
		t.Errorf("commits (-want +got):\n%s", diff)
	}
}

// scheduler is a framework runtime with the plugin, stepped by the test as kube-scheduler would.
type scheduler struct {
	*plugintest.Framework
	t     *testing.T
	book  *notebook
	gangs *namespacegang.State
}

func newScheduler(t *testing.T, pods []*corev1.Pod, nodes ...*corev1.Node) *scheduler {
	t.Helper()
	s := &scheduler{t: t, book: &notebook{}, gangs: namespacegang.NewState()}
	s.Framework = plugintest.NewStandaloneFramework(t, namespacegang.Name, namespacegang.New(s.book, s.gangs), pods, nodes)
	return s
}

// assume runs Reserve and Permit and returns the code of Permit.
func (s *scheduler) assume(pod *corev1.Pod, cluster string) fwk.Code {
	s.t.Helper()
	state := framework.NewCycleState()
	require.True(s.t, s.RunReservePluginsReserve(s.t.Context(), state, pod, cluster).IsSuccess())
	waits, status := s.RunPermitPlugins(s.t.Context(), state, pod, cluster)
	if status.IsWait() {
		s.AddWaitingPod(pod, waits)
	}
	return status.Code()
}

// bind runs the binding cycle: it waits on Permit, then binds, and unreserves after a failure.
func (s *scheduler) bind(pod *corev1.Pod, cluster string) *fwk.Status {
	state := framework.NewCycleState()
	status := s.WaitOnPermit(s.t.Context(), pod)
	if status.IsSuccess() {
		status = s.RunBindPlugins(s.t.Context(), state, pod, cluster)
	}
	if !status.IsSuccess() {
		s.RunReservePluginsUnreserve(s.t.Context(), state, pod, cluster)
	}
	return status
}

// waiting returns the names of the slices that were not let go.
func (s *scheduler) waiting() map[string]bool {
	names := map[string]bool{}
	s.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
		if len(waiting.GetPendingPlugins()) > 0 {
			names[waiting.GetPod().Name] = true
		}
	})
	return names
}

func sliceOf(gang, size, name string) *corev1.Pod {
	return st.MakePod().Namespace("tenant").Name(name).UID(gang+"/"+name).
		Annotation(slicepod.AnnotationGang, gang).Annotation(slicepod.AnnotationGangSize, size).Obj()
}

func TestNewWithoutACommitter(t *testing.T) {
	_, err := namespacegang.New(nil, namespacegang.NewState())(t.Context(), &config.NamespaceGangArgs{PermitWaitingTimeSeconds: 30}, nil)
	require.ErrorContains(t, err, "namespace scheduler only")
}

func TestLess(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	later := metav1.NewTime(now.Add(time.Second))
	pod := func(namespace, name string, created metav1.Time, priority *int32) *corev1.Pod {
		p := st.MakePod().Namespace(namespace).Name(name).CreationTimestamp(created).Obj()
		p.Spec.Priority = priority
		return p
	}
	tests := map[string]struct{ first, second *corev1.Pod }{
		"the higher priority, though younger and last by name": {pod("b", "b", later, ptr.To[int32](1)), pod("a", "a", now, nil)},
		"no priority is zero":                       {pod("b", "b", later, nil), pod("a", "a", now, ptr.To[int32](-1))},
		"the older namespace, though last by name":  {pod("b", "b", now, nil), pod("a", "a", later, nil)},
		"the tenant, so that namespaces do not mix": {pod("a", "z", now, nil), pod("b", "a", now, nil)},
		"slices by their number":                    {pod("a", "web.slice.0002", now, nil), pod("a", "web.slice.0010", now, nil)},
		"namespaces of a tenant do not mix":         {pod("a", "db.slice.0009", now, nil), pod("a", "web.slice.0000", now, nil)},
	}
	less := newScheduler(t, nil).QueueSortFunc()
	queued := func(p *corev1.Pod) fwk.QueuedEntityInfo {
		info, err := framework.NewPodInfo(p)
		require.NoError(t, err)
		return &framework.QueuedPodInfo{PodInfo: info}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			first, second := queued(tc.first), queued(tc.second)
			require.True(t, less(first, second))
			require.False(t, less(second, first))
			require.False(t, less(first, first), "nothing comes before itself")
		})
	}
}

func TestPreFilter(t *testing.T) {
	type resources = map[corev1.ResourceName]string
	node := func(name string, r resources) *st.NodeWrapper { return st.MakeNode().Name(name).Capacity(r) }
	two := []*corev1.Node{
		node("r1", resources{"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1"}).Obj(),
		node("r2", resources{"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1"}).Obj(),
	}
	refused := func(what string) *fwk.Status {
		return fwk.NewStatus(fwk.Unschedulable, namespacegang.ErrReasonNoFreeCapacity+": "+what).WithPlugin(namespacegang.Name)
	}
	tests := map[string]struct {
		total    string // "": no annotation
		selector map[string]string
		pods     []*corev1.Pod
		nodes    []*corev1.Node
		want     *fwk.Status
		wantErr  string
	}{
		"exactly what is free":  {total: "cpu=4000,memory=2147483648,ephemeral-storage=2147483648,nvidia.com%2Fgpu=2", nodes: two},
		"no total":              {nodes: two},
		"an empty total":        {total: "", nodes: two},
		"a thousandth too much": {total: "cpu=4001", nodes: two, want: refused("4001m cpu")},
		"a byte too much":       {total: "memory=2147483649", nodes: two, want: refused("2147483649 memory")},
		"all that is short, by name": {
			total: "nvidia.com%2Fgpu=3,memory=1073741824,cpu=5000,ephemeral-storage=3221225472", nodes: two,
			want: refused("5 cpu, 3Gi ephemeral-storage, 3 nvidia.com/gpu"),
		},
		"a resource that no cluster has": {
			total: "example.com%2Funknown=1", nodes: two, want: refused("1 example.com/unknown"),
		},
		"no cluster": {total: "cpu=1", want: refused("1m cpu")},
		"what is reserved is not free": {
			total: "cpu=4000", nodes: two, pods: []*corev1.Pod{st.MakePod().Name("held").Node("r1").Req(resources{"cpu": "1500m"}).Obj()},
			want: refused("4 cpu"),
		},
		"a cluster that shrank below its reservations takes nothing from others": {
			total: "cpu=2000", nodes: two, pods: []*corev1.Pod{st.MakePod().Name("held").Node("r1").Req(resources{"cpu": "100"}).Obj()},
		},
		"a cordoned cluster does not count": {
			total: "cpu=3000", nodes: []*corev1.Node{two[0], node("r2", resources{"cpu": "2"}).Unschedulable(true).Obj()},
			want: refused("3 cpu"),
		},
		"a cluster that is not selected does not count": {
			total: "cpu=3000", selector: map[string]string{"region": "eu"}, nodes: []*corev1.Node{two[0], node("r2", resources{"cpu": "2"}).Label("region", "eu").Obj()},
			want: refused("3 cpu"),
		},
		"one that is selected does": {
			total: "cpu=2000", selector: map[string]string{"region": "eu"}, nodes: []*corev1.Node{two[0], node("r2", resources{"cpu": "2"}).Label("region", "eu").Obj()},
		},
		"monstrous clusters have room": {
			total: "memory=1073741824", nodes: []*corev1.Node{node("r1", resources{"memory": "5E"}).Obj(), node("r2", resources{"memory": "5E"}).Obj()},
		},
		"no name":     {total: "=1", nodes: two, wantErr: "reading the total of gang tenant/web@1"},
		"no quantity": {total: "cpu=four", nodes: two, wantErr: "reading the total of gang tenant/web@1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, tc.pods, tc.nodes...)
			pod := sliceOf("tenant/web@1", "3", "web.slice.0000")
			pod.Spec.NodeSelector = tc.selector
			if tc.total != "" {
				pod.Annotations[slicepod.AnnotationGangTotal] = tc.total
			}
			_, status, _ := s.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), pod)
			if tc.wantErr != "" {
				require.Equal(t, fwk.Error, status.Code())
				require.Contains(t, status.Message(), tc.wantErr)
				return
			}
			if diff := cmp.Diff(tc.want, status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// The total was checked with the first slice, whose reservation is no longer free for the second.
func TestPreFilterChecksTheFirstSliceOnly(t *testing.T) {
	nodes := []*corev1.Node{st.MakeNode().Name("r1").Capacity(map[corev1.ResourceName]string{"cpu": "1"}).Obj()}
	s := newScheduler(t, nil, nodes...)
	first, second := sliceOf("a", "2", "0"), sliceOf("a", "2", "1")
	for _, pod := range []*corev1.Pod{first, second} {
		pod.Annotations[slicepod.AnnotationGangTotal] = "cpu=2000"
	}
	check := func(pod *corev1.Pod) fwk.Code {
		_, status, _ := s.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), pod)
		return status.Code()
	}
	require.Equal(t, fwk.Unschedulable, check(second), "nothing of the gang is reserved")
	s.assume(first, "r1")
	require.Equal(t, fwk.Success, check(second))
	require.Equal(t, fwk.Unschedulable, check(func() *corev1.Pod {
		other := sliceOf("b", "2", "1")
		other.Annotations[slicepod.AnnotationGangTotal] = "cpu=2000"
		return other
	}()), "another gang has its own first slice")
}

func TestHints(t *testing.T) {
	tests := map[string]struct {
		event   fwk.ClusterEvent
		want    plugintest.Hint
		spreads bool
	}{
		"a cluster came":                           {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, want: plugintest.Queues},
		"a cluster's capacity changed":             {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, want: plugintest.Queues},
		"a cluster was uncordoned":                 {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeTaint}, want: plugintest.Queues},
		"a cluster's labels changed":               {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeLabel}, want: plugintest.Queues},
		"a reservation went":                       {event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, want: plugintest.Queues},
		"a reservation shrank":                     {event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodScaleDown}, want: plugintest.Queues},
		"a reservation came":                       {event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add}, want: plugintest.Sleeps},
		"what a cluster's nodes have free changed": {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, want: plugintest.Queues},
		"a cluster went":                           {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Delete}, want: plugintest.Skips},
		"a topology went":                          {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Delete}, want: plugintest.Queues, spreads: true},
		"a cluster's conditions changed":           {event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeCondition}, want: plugintest.Sleeps},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sliceOf := func(gang, size, name string) *corev1.Pod {
				pod := sliceOf(gang, size, name)
				if tc.spreads {
					pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{}}
				}
				return pod
			}
			got := newScheduler(t, nil).Hint(t, namespacegang.Name, tc.event, sliceOf("a", "2", "0"), nil, nil)
			if got != tc.want {
				t.Errorf("want that the slice %s, it %s", tc.want, got)
			}
			later := tc.want
			if later == plugintest.Queues {
				later = plugintest.Skips
			}
			if got := newScheduler(t, nil).Hint(t, namespacegang.Name, tc.event, sliceOf("a", "2", "1"), nil, nil); got != later {
				t.Errorf("want that a later slice %s, it %s", later, got)
			}
			begun := newScheduler(t, nil)
			begun.reserve(sliceOf("a", "2", "0"), "r1")
			if got := begun.Hint(t, namespacegang.Name, tc.event, sliceOf("a", "2", "1"), nil, nil); got != tc.want {
				t.Errorf("want that a slice of a gang that has begun %s, it %s", tc.want, got)
			}
		})
	}
}

// TestReserveWakesTheOthers: the slices that slept while the first one was tried are tried once it has a super cluster.
func TestReserveWakesTheOthers(t *testing.T) {
	factory := informers.NewSharedInformerFactory(builders.Clientset(), 0)
	slices := []*corev1.Pod{sliceOf("a", "3", "0"), sliceOf("a", "3", "1"), sliceOf("a", "3", "2"), sliceOf("b", "1", "other")}
	for _, pod := range slices {
		require.NoError(t, factory.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	}
	woken := plugintest.Activated{}
	f := plugintest.NewStandaloneFramework(t, namespacegang.Name, namespacegang.New(&notebook{}, namespacegang.NewState()), nil, nil,
		runtime.WithInformerFactory(factory), runtime.WithPodActivator(woken))
	reserve := func(pod *corev1.Pod) {
		require.True(t, f.RunReservePluginsReserve(t.Context(), framework.NewCycleState(), pod, "r1").IsSuccess())
	}
	reserve(slices[3])
	require.Empty(t, woken, "a gang of one wakes nobody")
	reserve(slices[0])
	require.Empty(t, cmp.Diff(plugintest.Activated{"1": true, "2": true}, woken))
	clear(woken)
	reserve(slices[1])
	require.Empty(t, woken, "they are awake")
}

func TestReserve(t *testing.T) {
	s := newScheduler(t, nil)
	pods := []*corev1.Pod{sliceOf("a", "9", "0"), sliceOf("a", "9", "1"), sliceOf("a", "9", "2"), sliceOf("b", "9", "0")}
	steps := []struct {
		name      string
		do        func(pod *corev1.Pod, cluster string)
		pod       *corev1.Pod
		cluster   string
		wantA     map[string]int64
		wantOther map[string]int64
	}{
		{"the first", s.reserve, pods[0], "r1", map[string]int64{"r1": 1}, map[string]int64{}},
		{"another cluster", s.reserve, pods[1], "r2", map[string]int64{"r1": 1, "r2": 1}, map[string]int64{}},
		{"another gang", s.reserve, pods[3], "r1", map[string]int64{"r1": 1, "r2": 1}, map[string]int64{"r1": 1}},
		{"the same slice again counts once", s.reserve, pods[0], "r2", map[string]int64{"r2": 2}, map[string]int64{"r1": 1}},
		{"a slice that was not reserved", s.unreserve, pods[2], "r1", map[string]int64{"r2": 2}, map[string]int64{"r1": 1}},
		{"taken back", s.unreserve, pods[1], "r2", map[string]int64{"r2": 1}, map[string]int64{"r1": 1}},
		{"taken back twice", s.unreserve, pods[1], "r2", map[string]int64{"r2": 1}, map[string]int64{"r1": 1}},
		{"the last", s.unreserve, pods[0], "r2", map[string]int64{}, map[string]int64{"r1": 1}},
		{"of a gang that is gone", s.unreserve, pods[0], "r2", map[string]int64{}, map[string]int64{"r1": 1}},
	}
	for _, step := range steps {
		step.do(step.pod, step.cluster)
		if diff := cmp.Diff(step.wantA, s.gangs.Assigned(pods[2])); diff != "" {
			t.Errorf("%s: gang a (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.wantOther, s.gangs.Assigned(pods[3])); diff != "" {
			t.Errorf("%s: gang b (-want +got):\n%s", step.name, diff)
		}
	}
}

func (s *scheduler) reserve(pod *corev1.Pod, cluster string) {
	require.True(s.t, s.RunReservePluginsReserve(s.t.Context(), framework.NewCycleState(), pod, cluster).IsSuccess())
}

func (s *scheduler) unreserve(pod *corev1.Pod, cluster string) {
	s.RunReservePluginsUnreserve(s.t.Context(), framework.NewCycleState(), pod, cluster)
}

func TestPermitHoldsUntilTheGangIsWhole(t *testing.T) {
	s := newScheduler(t, nil)
	a := []*corev1.Pod{sliceOf("a", "3", "a0"), sliceOf("a", "3", "a1"), sliceOf("a", "3", "a2")}
	b := sliceOf("b", "2", "b0")
	require.Equal(t, fwk.Wait, s.assume(a[2], "r1"))
	require.Equal(t, fwk.Wait, s.assume(b, "r1"))
	require.Equal(t, fwk.Wait, s.assume(a[0], "r2"))
	s.book.want(t)
	require.Equal(t, fwk.Success, s.assume(a[1], "r1"))
	if diff := cmp.Diff(map[string]bool{"b0": true}, s.waiting()); diff != "" {
		t.Errorf("still held (-want +got):\n%s", diff)
	}
	for i, cluster := range []string{"r2", "r1", "r1"} {
		require.True(t, s.bind(a[i], cluster).IsSuccess())
	}
	s.book.want(t, "a: a0=r2 a1=r1 a2=r1")
	require.Empty(t, s.gangs.Assigned(a[0]), "what is committed is no decision in the making")
}

func TestPermitOfOneSlice(t *testing.T) {
	for name, size := range map[string]string{
		"one": "1", "none": "0", "negative": "-3", "no number": "all", "empty": "", "beyond 64 bits": "99999999999999999999",
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, nil)
			pod := sliceOf("a", size, "a0")
			require.Equal(t, fwk.Success, s.assume(pod, "r1"))
			require.True(t, s.bind(pod, "r1").IsSuccess())
			s.book.want(t, "a: a0=r1")
		})
	}
}

func TestTheGangIsReleased(t *testing.T) {
	for name, lose := range map[string]func(s *scheduler, last *corev1.Pod){
		"by a slice that fits nowhere": func(s *scheduler, last *corev1.Pod) {
			_, status := s.RunPostFilterPlugins(s.t.Context(), framework.NewCycleState(), last, framework.NewDefaultNodeToStatus())
			require.Equal(s.t, fwk.Unschedulable, status.Code())
		},
		"by a slice that is taken back": func(s *scheduler, last *corev1.Pod) {
			s.reserve(last, "r1")
			s.unreserve(last, "r1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, nil)
			a := []*corev1.Pod{sliceOf("a", "3", "a0"), sliceOf("a", "3", "a1"), sliceOf("a", "3", "a2")}
			b := sliceOf("b", "2", "b0")
			for _, pod := range []*corev1.Pod{a[0], a[1], b} {
				require.Equal(t, fwk.Wait, s.assume(pod, "r1"))
			}
			lose(s, a[2])
			want := fwk.NewStatus(fwk.Unschedulable, namespacegang.ErrReasonReleased).WithPlugin(namespacegang.Name)
			for _, pod := range a[:2] {
				if diff := cmp.Diff(want, s.bind(pod, "r1")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", pod.Name, diff)
				}
			}
			s.book.want(t)
			require.Empty(t, s.gangs.Assigned(a[0]))

			last := sliceOf("b", "2", "b1")
			require.Equal(t, fwk.Success, s.assume(last, "r1"))
			for _, pod := range []*corev1.Pod{b, last} {
				status := s.bind(pod, "r1")
				require.True(t, status.IsSuccess(), "another gang: %s", status.Message())
			}
			s.book.want(t, "b: b0=r1 b1=r1")
		})
	}
}

// TestSettle: what is tried next waits for slices of gangs that are not placed, as long as they count, and for no
// others.
func TestSettle(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(s *scheduler, a []*corev1.Pod)
		want map[string]bool
	}{
		"a gang that waits": {end: func(*scheduler, []*corev1.Pod) {}},
		"a slice fits nowhere": {
			end: func(s *scheduler, a []*corev1.Pod) {
				_, status := s.RunPostFilterPlugins(s.t.Context(), framework.NewCycleState(), a[2], framework.NewDefaultNodeToStatus())
				require.Equal(s.t, fwk.Unschedulable, status.Code())
			},
			want: map[string]bool{"a0": true, "a1": true},
		},
		"a slice is taken back": {
			end:  func(s *scheduler, a []*corev1.Pod) { s.unreserve(a[0], "r1") },
			want: map[string]bool{"a0": true, "a1": true},
		},
		"the decision cannot be written": {
			end: func(s *scheduler, a []*corev1.Pod) {
				s.book.fail = []error{errors.New("lost")}
				require.Equal(s.t, fwk.Success, s.assume(a[2], "r1"))
				require.Equal(s.t, fwk.Error, s.bind(a[1], "r1").Code())
			},
			want: map[string]bool{"a0": true, "a1": true, "a2": true},
		},
		"the decision is written": {
			end: func(s *scheduler, a []*corev1.Pod) {
				require.Equal(s.t, fwk.Success, s.assume(a[2], "r1"))
				for _, pod := range a {
					require.True(s.t, s.bind(pod, "r1").IsSuccess())
				}
			},
		},
		"a slice of it is tried again": {
			end: func(s *scheduler, a []*corev1.Pod) {
				s.unreserve(a[0], "r1")
				s.unreserve(a[1], "r1")
				require.Equal(s.t, fwk.Wait, s.assume(a[0], "r1"))
			},
			want: map[string]bool{"a1": true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, nil)
			a := []*corev1.Pod{sliceOf("a", "3", "a0"), sliceOf("a", "3", "a1"), sliceOf("a", "3", "a2")}
			for _, pod := range a[:2] {
				require.Equal(t, fwk.Wait, s.assume(pod, "r1"))
			}
			tc.end(s, a)
			var asked map[string]bool
			left := 3
			s.gangs.Settle(t.Context(), func(pod *corev1.Pod) bool {
				if asked == nil {
					asked = map[string]bool{}
				}
				asked[pod.Name] = true
				left--
				return left > 0
			})
			require.Equal(t, tc.want, asked)
			require.True(t, left <= 0 || tc.want == nil, "it waits until none counts")
			s.gangs.Settle(t.Context(), func(pod *corev1.Pod) bool {
				t.Errorf("%s was forgotten", pod.Name)
				return false
			})
		})
	}
}

// TestSettleGivesUp: a slice that counts for ever holds nobody up for longer than a second, and once.
func TestSettleGivesUp(t *testing.T) {
	s := newScheduler(t, nil)
	pod := sliceOf("a", "2", "a0")
	require.Equal(t, fwk.Wait, s.assume(pod, "r1"))
	s.unreserve(pod, "r1")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		forever := func(*corev1.Pod) bool { return true }
		s.gangs.Settle(t.Context(), forever)
		require.Equal(t, time.Second, time.Since(begin))
		s.gangs.Settle(t.Context(), forever)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// A slice that was not reserved must not tear down its gang.
func TestUnreserveOfASliceThatWasNotReserved(t *testing.T) {
	s := newScheduler(t, nil)
	first, second := sliceOf("a", "2", "a0"), sliceOf("a", "2", "a1")
	require.Equal(t, fwk.Wait, s.assume(first, "r1"))
	s.unreserve(second, "r1")
	require.Equal(t, fwk.Success, s.assume(second, "r1"))
	for _, pod := range []*corev1.Pod{first, second} {
		status := s.bind(pod, "r1")
		require.True(t, status.IsSuccess(), status.Message())
	}
	s.book.want(t, "a: a0=r1 a1=r1")
}

func TestBindCommitsOnce(t *testing.T) {
	const size = 50
	s := newScheduler(t, nil)
	var pods []*corev1.Pod
	want := "a:"
	for i := range size {
		pods = append(pods, sliceOf("a", fmt.Sprint(size), fmt.Sprintf("a%02d", i)))
		want += fmt.Sprintf(" a%02d=r%d", i, i%3)
	}
	for i := range pods {
		s.assume(pods[i], fmt.Sprintf("r%d", i%3))
	}
	statuses := make([]*fwk.Status, size)
	var binding sync.WaitGroup
	for i := range pods {
		binding.Go(func() { statuses[i] = s.bind(pods[i], fmt.Sprintf("r%d", i%3)) })
	}
	binding.Wait()
	for i := range statuses {
		require.True(t, statuses[i].IsSuccess(), statuses[i].Message())
	}
	s.book.want(t, want)
}

func TestBindAfterALostWrite(t *testing.T) {
	lost := errors.New("the write was lost")
	s := newScheduler(t, nil)
	s.book.fail = []error{lost}
	a := []*corev1.Pod{sliceOf("a", "2", "a0"), sliceOf("a", "2", "a1")}
	require.Equal(t, fwk.Wait, s.assume(a[0], "r1"))
	require.Equal(t, fwk.Success, s.assume(a[1], "r2"))
	for i, cluster := range []string{"r1", "r2"} {
		status := s.bind(a[i], cluster)
		require.Equal(t, fwk.Error, status.Code())
		require.ErrorIs(t, status.AsError(), lost, "each slice learns the outcome")
	}
	s.book.want(t, "a: a0=r1 a1=r2")
	require.Empty(t, s.gangs.Assigned(a[0]), "a lost decision holds nothing")

	require.Equal(t, fwk.Wait, s.assume(a[1], "r3"))
	require.Equal(t, fwk.Success, s.assume(a[0], "r3"))
	for _, pod := range a {
		require.True(t, s.bind(pod, "r3").IsSuccess())
	}
	s.book.want(t, "a: a0=r1 a1=r2", "a: a0=r3 a1=r3")
}

// A slice can be lost after Permit let its gang go, for instance to another plugin's PreBind.
func TestBindOfAGangThatLostASlice(t *testing.T) {
	s := newScheduler(t, nil)
	a := []*corev1.Pod{sliceOf("a", "2", "a0"), sliceOf("a", "2", "a1")}
	require.Equal(t, fwk.Wait, s.assume(a[0], "r1"))
	require.Equal(t, fwk.Success, s.assume(a[1], "r2"))
	s.unreserve(a[1], "r2")
	status := s.bind(a[0], "r1")
	require.Equal(t, fwk.Error, status.Code())
	require.Contains(t, status.Message(), "1 slices of the gang were released")
	s.book.want(t)
	require.Empty(t, s.gangs.Assigned(a[0]))
}

func TestBindWithoutReserve(t *testing.T) {
	s := newScheduler(t, nil)
	status := s.bind(sliceOf("a", "1", "a0"), "r1")
	require.Equal(t, fwk.Error, status.Code())
	require.Contains(t, status.Message(), "slice a0 is not reserved")
	s.book.want(t)
}
