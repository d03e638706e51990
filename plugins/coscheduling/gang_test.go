package coscheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/superpool/superpool/test/builders"
)

// permits is a fwk.Handle in which members wait in Permit.
type permits struct {
	fwk.Handle
	waiting   []*corev1.Pod
	rejected  map[types.UID]int
	activated []string
}

func (p *permits) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for _, pod := range pods {
		p.activated = append(p.activated, pod.Name)
	}
}

func (p *permits) IterateOverWaitingPods(f func(fwk.WaitingPod)) {
	for _, pod := range p.waiting {
		f(&permit{pod: pod, handle: p})
	}
}

type permit struct {
	fwk.WaitingPod
	pod    *corev1.Pod
	handle *permits
}

func (p *permit) GetPod() *corev1.Pod { return p.pod }

func (p *permit) Allow(string) {}

func (p *permit) Reject(string, string) bool {
	p.handle.rejected[p.pod.UID]++
	return true
}

func (p *permit) Preempt(string, string) bool { return false }

// oneGroup is the group mpi, of 3 members.
type oneGroup struct{}

func (oneGroup) Get(group types.NamespacedName) (*podgroupv1alpha1.PodGroup, error) {
	if group != mpi {
		return nil, errors.New("there is none")
	}
	return &podgroupv1alpha1.PodGroup{Spec: podgroupv1alpha1.PodGroupSpec{MinMember: 3}}, nil
}

func (oneGroup) OnChange(func(types.NamespacedName)) {}

// placing returns a plugin that knows so many members of group mpi, of which the first two are reserved.
func placing(t *testing.T, count int) (*Coscheduling, *permits, []*corev1.Pod) {
	t.Helper()
	handle := &permits{rejected: map[types.UID]int{}}
	pl := &Coscheduling{
		options: Options{Groups: oneGroup{}}, handle: handle,
		pods: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{groupIndex: indexByGroup}),
	}
	pl.forget()
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, member("mpi", fmt.Sprintf("mpi-%d", i+1)))
		pods[i].Spec.SchedulerName = "gang"
		require.NoError(t, pl.pods.Add(pods[i]))
	}
	for _, pod := range pods[:min(2, count)] {
		pl.gangs.reserve(pod, "r1")
		handle.waiting = append(handle.waiting, pod)
	}
	return pl, handle, pods
}

// forget has the plugin begin anew: no gang is being placed.
func (pl *Coscheduling) forget() {
	pl.gangs = NewState()
	pl.gangs.follow(pl.pods)
}

// TestRefusedBeforeCoscheduling: a member that another plugin refuses before PreFilter is one that does not fit.
func TestRefusedBeforeCoscheduling(t *testing.T) {
	t.Run("the gang is given up", func(t *testing.T) {
		pl, handle, pods := placing(t, 3)
		pl.PostFilter(t.Context(), framework.NewCycleState(), pods[2], nil)
		require.Equal(t, map[types.UID]int{"mpi-1": 1, "mpi-2": 1}, handle.rejected)
		require.True(t, pl.gangs.tried[mpi].Has("r1"), "it is not tried there again before something changes")
	})
	t.Run("the others are enough", func(t *testing.T) {
		pl, handle, pods := placing(t, 4)
		pl.PostFilter(t.Context(), framework.NewCycleState(), pods[3], nil)
		require.Empty(t, handle.rejected)
		pl.PostFilter(t.Context(), framework.NewCycleState(), pods[2], nil)
		require.Equal(t, map[types.UID]int{"mpi-1": 1, "mpi-2": 1}, handle.rejected)
	})
	t.Run("a reserved member is not refused", func(t *testing.T) {
		pl, handle, pods := placing(t, 3)
		pl.PostFilter(t.Context(), framework.NewCycleState(), pods[0], nil)
		require.Empty(t, handle.rejected)
	})
	t.Run("a pod of another gang changes nothing", func(t *testing.T) {
		pl, handle, _ := placing(t, 3)
		pl.PostFilter(t.Context(), framework.NewCycleState(), member("other", "other"), nil)
		require.Empty(t, handle.rejected)
	})
	t.Run("those that came to wait after they were released are released again", func(t *testing.T) {
		pl, handle, pods := placing(t, 3)
		pl.gangs.lose(mpi, true, true)
		_, status := pl.PreFilter(t.Context(), framework.NewCycleState(), pods[2], nil)
		require.Equal(t, fwk.Unschedulable, status.Code())
		require.Equal(t, map[types.UID]int{"mpi-1": 1, "mpi-2": 1}, handle.rejected)
	})
}

// TestHint: an event tries as many members as may stay behind, and one more: the first ones, but for those that are kept
// out of the queue or wait for their backoff.
func TestHint(t *testing.T) {
	pl, _, pods := placing(t, 3)
	hints := func() (queued []string) {
		for _, pod := range pods {
			hint, err := pl.hint(klog.Background(), pod, nil, &corev1.Node{})
			require.NoError(t, err)
			if hint == fwk.Queue {
				queued = append(queued, pod.Name)
			}
		}
		return queued
	}
	require.Equal(t, []string{"mpi-1", "mpi-2", "mpi-3"}, hints(), "it is being placed")
	pl.forget()
	require.Equal(t, []string{"mpi-1"}, hints())
	pl.gangs.KeptOut(pods[0])
	require.Equal(t, []string{"mpi-2"}, hints(), "the first is kept out of the queue")
	pl.gangs.begins(pods[0], false)
	require.Equal(t, []string{"mpi-1"}, hints(), "and let in")
	pods = append(pods, member("mpi", "mpi-4"))
	pods[3].Spec.SchedulerName = "gang"
	require.NoError(t, pl.pods.Add(pods[3]))
	pl.gangs.changed(mpi)
	require.Equal(t, []string{"mpi-1", "mpi-2"}, hints(), "one may stay behind")
	for _, pod := range pods[:3] {
		placed := pod.DeepCopy()
		placed.Spec.NodeName = "r1"
		require.NoError(t, pl.pods.Update(placed))
		pl.gangs.changed(mpi, pod.UID)
	}
	require.Contains(t, hints(), "mpi-4", "the gang is whole")

	gone := member("mpi", "mpi-5")
	hint, err := pl.hint(klog.Background(), pods[3], gone, nil)
	require.NoError(t, err)
	require.Equal(t, fwk.Queue, hint, "a member was deleted")
	require.NoError(t, pl.pods.Add(gone))
	hint, err = pl.hint(klog.Background(), pods[3], gone, nil)
	require.NoError(t, err)
	require.Equal(t, fwk.QueueSkip, hint, "a member was given up")
}

// TestPodGroupThatComes: each member that was refused for the lack of a PodGroup is tried when that comes, also where
// another one was tried before, and then one of them for all.
func TestPodGroupThatComes(t *testing.T) { synctest.Test(t, testPodGroupThatComes) }

func testPodGroupThatComes(t *testing.T) {
	pl, handle, pods := placing(t, 3)
	pl.forget()
	groups := &comingGroups{}
	pl.options.Groups = groups
	require.NoError(t, pl.follow(t.Context(), cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil)))
	try := func(tried ...int) {
		t.Helper()
		for _, i := range tried {
			_, status := pl.PreFilter(t.Context(), framework.NewCycleState(), pods[i], nil)
			require.False(t, status.IsSuccess(), "there is no super cluster")
		}
	}
	settle := func() {
		time.Sleep(changesPeriod) //nolint:forbidigo // in a bubble
		synctest.Wait()
	}
	step := func(what string, there bool, tried []int, want ...string) {
		t.Helper()
		groups.there, handle.activated = there, nil
		try(tried...)
		groups.changed(mpi)
		settle()
		slices.Sort(handle.activated)
		require.Equal(t, want, handle.activated, what)
	}
	try(0, 1, 2)
	step("it is not there yet", false, nil, "mpi-1")
	step("one is tried before all others are activated", true, []int{0}, "mpi-1", "mpi-2", "mpi-3")
	step("all were", true, []int{1, 2}, "mpi-1")
	step("it is gone, as none knows of", false, nil, "mpi-1")
	step("and back", true, nil, "mpi-1")
	groups.there = false
	try(1)
	step("as another one knows of than the first", true, nil, "mpi-1", "mpi-2")
	try(0, 1)
	groups.there, groups.comes, handle.activated = false, true, nil
	try(2)
	settle()
	slices.Sort(handle.activated)
	require.Equal(t, []string{"mpi-1", "mpi-3"}, handle.activated, "it comes while the third asks")
	try(2)
	pl.gangs.KeptOut(pods[0])
	step("the first is kept out", true, nil, "mpi-2")
	for _, pod := range pods {
		require.NoError(t, pl.pods.Delete(pod))
		pl.shrunk(t.Context(), pod)
	}
	require.Empty(t, pl.gangs.notes)
}

// following is an informer whose events the test makes.
type following struct {
	cache.SharedIndexInformer
	cache.ResourceEventHandler
}

func (f *following) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.ResourceEventHandler = handler
	return nil, nil //nolint:nilnil // nobody asks
}

// TestGrowthIsOneChange: for members that come together the first of the gang are tried, each once.
func TestGrowthIsOneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 100
		pl, handle, pods := placing(t, count)
		pl.forget()
		lists, events := &counting{Indexer: pl.pods}, &following{}
		pl.gangs.follow(lists)
		require.NoError(t, pl.follow(t.Context(), events))
		for _, pod := range pods {
			events.OnAdd(pod, true)
		}
		require.Zero(t, lists.lists.Load())
		time.Sleep(changesPeriod) //nolint:forbidigo // in a bubble
		synctest.Wait()
		require.EqualValues(t, 1, lists.lists.Load())
		require.Len(t, handle.activated, count-2)
		require.Empty(t, pl.gangs.due)
	})
}

// TestLetGoBeforeTheInformerShowsIt: who was let go is not tried, and is forgotten when it is bound, also under another
// label.
func TestLetGoBeforeTheInformerShowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pl, handle, pods := placing(t, 5) // it needs three
		events := &following{}
		require.NoError(t, pl.follow(t.Context(), events))
		stripped := pods[1].DeepCopy()
		stripped.Labels = nil
		require.NoError(t, pl.pods.Update(stripped))
		events.OnUpdate(pods[1], stripped)
		state, node := framework.NewCycleState(), framework.NewNodeInfo()
		node.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}})
		_, status := pl.PreFilter(t.Context(), state, pods[2], []fwk.NodeInfo{node})
		require.True(t, status.IsSuccess(), status.Message())
		require.Nil(t, pl.Reserve(t.Context(), state, pods[2], "r1"))
		status, _ = pl.Permit(t.Context(), state, pods[2], "r1")
		require.True(t, status.IsSuccess(), status.Message())
		require.Equal(t, map[types.UID]*note{"mpi-1": {in: "r1", letGo: true}, "mpi-3": {in: "r1", letGo: true}}, pl.gangs.notes)

		handle.activated = nil
		pl.changed(t.Context(), mpi)
		time.Sleep(changesPeriod) //nolint:forbidigo // in a bubble
		synctest.Wait()
		require.ElementsMatch(t, []string{"mpi-4", "mpi-5"}, handle.activated, "the first of those that wait")
		pl.gangs.begins(pods[3], false)
		pl.gangs.begins(pods[4], false)

		for _, pod := range []*corev1.Pod{pods[0], pods[2]} {
			bound := pod.DeepCopy()
			bound.Spec.NodeName = "r1"
			require.NoError(t, pl.pods.Update(bound))
			events.OnUpdate(pod, bound)
		}
		require.Empty(t, pl.gangs.notes)
	})
}

// TestUnreserveOfAMemberLetGo: kube-scheduler tries a member whose choice was not written again after its backoff, and
// no other member brings it into the active queue before.
func TestUnreserveOfAMemberLetGo(t *testing.T) {
	pl, handle, pods := placing(t, 3)
	code, _, _ := pl.gangs.permit(mpi, 2)
	require.Equal(t, fwk.Success, code)
	pl.Unreserve(t.Context(), framework.NewCycleState(), pods[0], "r1")
	require.Equal(t, map[types.UID]*note{"mpi-1": {unwritten: true}, "mpi-2": {in: "r1", letGo: true}}, pl.gangs.notes)
	require.Empty(t, handle.rejected, "the others stay where they are")
	pl.activate(t.Context(), pods...)
	require.ElementsMatch(t, []string{"mpi-2", "mpi-3"}, handle.activated)

	handle.activated = nil
	pl.gangs.begins(pods[0], false)
	pl.activate(t.Context(), pods[0])
	require.Equal(t, []string{"mpi-1"}, handle.activated, "it was tried since")
	pl.Unreserve(t.Context(), framework.NewCycleState(), pods[1], "r1")
	require.True(t, pl.gangs.notes["mpi-2"].unwritten)
	pl.gangs.changed(mpi, pods[1].UID)
	require.NotContains(t, pl.gangs.notes, pods[1].UID)
}

// TestTimeOfAGang: with the time of its first member a gang is given up as a whole, and only the gang whose time it is.
func TestTimeOfAGang(t *testing.T) {
	whole := sets.New[types.UID]("mpi-1", "mpi-2")
	one, two := member("mpi", "mpi-1"), member("mpi", "mpi-2")
	for name, tc := range map[string]struct {
		meanwhile func(s *State)
		want      sets.Set[types.UID]
		code      fwk.Code
	}{
		"too few":          {meanwhile: func(*State) {}, want: whole, code: fwk.Unschedulable},
		"placed":           {meanwhile: func(s *State) { s.permit(mpi, 2) }, code: fwk.Unschedulable},
		"given up":         {meanwhile: func(s *State) { s.lose(mpi, true, true) }, code: fwk.Unschedulable},
		"tried anew since": {meanwhile: func(s *State) { s.permit(mpi, 2); s.reserve(one, "r1") }, code: fwk.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newState(t, one, two)
				var released sets.Set[types.UID]
				release := func(members sets.Set[types.UID]) { released = members }
				require.Zero(t, s.expireAfter(mpi, time.Minute, nil), "nothing is being placed")
				s.reserve(one, "r1")
				require.Equal(t, time.Minute, s.expireAfter(mpi, time.Minute, release))
				<-time.After(20 * time.Second)
				s.reserve(two, "r1")
				require.Equal(t, 40*time.Second, s.expireAfter(mpi, time.Second, nil), "the time of the first one is the gang's")
				before := s.placing
				tc.meanwhile(s)
				<-time.After(40 * time.Second)
				synctest.Wait()
				require.Equal(t, tc.want, released)
				require.Empty(t, s.expire(before))
				code, _, _ := s.permit(mpi, 2)
				require.Equal(t, tc.code, code)
				if tc.want != nil {
					s.unreserve(one)
					s.unreserve(two)
					_, again := s.end(mpi)
					require.True(t, again)
				}
			})
		})
	}
}

// TestPodMadeAnew: of a pod whose deletion no watch told of, before another one of its name, nothing is kept.
func TestPodMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := member("mpi", "mpi-1"), member("mpi", "mpi-1")
		after.UID = "anew"
		watched := watch.NewFake()
		informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.PodList{Items: []corev1.Pod{*before}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watched, nil },
		}, builders.Clientset()), &corev1.Pod{}, 0, cache.Indexers{groupIndex: indexByGroup})
		pl := &Coscheduling{handle: &permits{}, pods: informer.GetIndexer()}
		pl.forget()
		require.NoError(t, pl.follow(t.Context(), informer))
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); informer.RunWithContext(ctx) }()
		synctest.Wait()
		_, status := pl.PreFilter(ctx, framework.NewCycleState(), before, nil)
		require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
		require.True(t, pl.gangs.notes[before.UID].missed)
		watched.Modify(after)
		synctest.Wait()
		require.Empty(t, pl.gangs.notes)
		stop()
		<-stopped
	})
}

// comingGroups has the group mpi when that is there, which it is from the next answer on when it comes.
type comingGroups struct {
	there, comes bool
	changed      func(types.NamespacedName)
}

func (g *comingGroups) Get(group types.NamespacedName) (*podgroupv1alpha1.PodGroup, error) {
	if g.there {
		return oneGroup{}.Get(group)
	}
	if g.comes {
		g.there, g.comes = true, false
		g.changed(group)
	}
	return nil, errors.New("there is none")
}

func (g *comingGroups) OnChange(changed func(types.NamespacedName)) { g.changed = changed }

// TestFirstsOfAGang: for a change as many members are tried as may stay behind, and one more: any of the first ones may
// be one that nobody can try. One that fits nowhere tries no other: they are tried as it is.
func TestFirstsOfAGang(t *testing.T) {
	for name, tc := range map[string]struct {
		// members there are, of which the gang needs three, and so many are placed.
		members, placed int
		want            []string
	}{
		"too few":               {members: 2, want: []string{"mpi-1"}},
		"all are needed":        {members: 3, want: []string{"mpi-1"}},
		"two may stay behind":   {members: 5, want: []string{"mpi-1", "mpi-2", "mpi-3"}},
		"and some are placed":   {members: 5, placed: 2, want: []string{"mpi-3", "mpi-4", "mpi-5"}},
		"it needs nobody":       {members: 5, placed: 3, want: []string{"mpi-4"}},
		"nobody waits any more": {members: 3, placed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			pl, handle, pods := placing(t, tc.members)
			pl.forget()
			for _, pod := range pods[:tc.placed] {
				pod.Spec.NodeName = "r1"
			}
			var firsts []string
			for _, pod := range pl.gangs.firsts(mpi, pl.wanted(mpi), true) {
				firsts = append(firsts, pod.Name)
			}
			require.Equal(t, tc.want, firsts)
			_, status := pl.PostFilter(t.Context(), framework.NewCycleState(), pods[0], nil)
			require.Equal(t, fwk.Unschedulable, status.Code())
			require.Empty(t, handle.activated)
		})
	}
}

// counting is an Indexer that counts how often the members of a group are listed.
type counting struct {
	cache.Indexer
	lists atomic.Int64
}

func (c *counting) ByIndex(name, value string) ([]any, error) {
	c.lists.Add(1)
	return c.Indexer.ByIndex(name, value) //nolint:wrapcheck // it is a test's
}

// TestDeletedMembers: the deletion of a member has its gang listed only while that is being placed. A gang that is
// deleted pod by pod would cost the square of its size otherwise.
func TestDeletedMembers(t *testing.T) {
	pl, handle, pods := placing(t, 4)
	lists := &counting{Indexer: pl.pods}
	pl.pods = lists
	pl.gangs.follow(lists)
	end := func(pod *corev1.Pod) {
		require.NoError(t, pl.pods.Delete(pod))
		pl.shrunk(t.Context(), pod)
	}
	end(pods[3])
	require.EqualValues(t, 1, lists.lists.Load(), "it is being placed")
	require.Empty(t, handle.rejected, "three are enough")
	end(pods[2])
	require.Equal(t, map[types.UID]int{"mpi-1": 1, "mpi-2": 1}, handle.rejected)

	lists.lists.Store(0)
	pl.forget()
	pl.gangs.begins(pods[0], true)
	require.NotEmpty(t, pl.gangs.notes)
	end(pods[0])
	end(pods[1])
	require.Zero(t, lists.lists.Load())
	require.Empty(t, pl.gangs.notes, "what is known of a member goes with it")
}

// TestOfAMemberThatEnds: what is noted of a gang goes with its members, also of one that is deleted while it is tried:
// the informer has forgotten it before that is said.
func TestOfAMemberThatEnds(t *testing.T) {
	pl, handle, pods := placing(t, 1)
	pl.forget()
	require.NoError(t, pl.pods.Delete(pods[0]))
	pl.gangs.changed(mpi, pods[0].UID)
	pl.gangs.begins(pods[0], true)
	pl.gangs.KeptOut(pods[0])
	pl.activate(t.Context(), pods[0])
	pl.gangs.reserve(pods[0], "r1")
	code, _, _ := pl.gangs.permit(mpi, 1)
	require.Equal(t, fwk.Success, code)
	require.Equal(t, []string{"mpi-1"}, handle.activated)
	require.Empty(t, pl.gangs.notes)
}

// TestTooManyMembers: pods that name one group have a bound, which what they cost grows with.
func TestTooManyMembers(t *testing.T) {
	pl := &Coscheduling{}
	require.Empty(t, pl.tooFew(&members{placed: maxMembers}, 3))
	require.Equal(t, "2001 pods name it, and 2000 may", pl.tooFew(&members{placed: maxMembers, gated: 1}, 3))
}

// TestPatience: a tenant only shortens the time that members wait in Permit.
func TestPatience(t *testing.T) {
	pl := &Coscheduling{wait: 10 * time.Second}
	for seconds, want := range map[int32]time.Duration{3: 3 * time.Second, 10: 10 * time.Second, 600: 10 * time.Second, 0: time.Second, -5: time.Second} {
		require.Equal(t, want, pl.patience(&seconds), seconds)
	}
	require.Equal(t, 10*time.Second, pl.patience(nil))
}

// BenchmarkPreFilterOfAMember is one member of a gang that fits nowhere, as each of its members is tried once.
func BenchmarkPreFilterOfAMember(b *testing.B) {
	for _, count := range []int{10, 2000} {
		b.Run(fmt.Sprintf("members=%d", count), func(b *testing.B) {
			group := &podgroupv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: mpi.Namespace, Name: mpi.Name}}
			group.Spec.MinMember = int32(count) //nolint:gosec // it is small
			pl := &Coscheduling{
				options: Options{Groups: always{group}},
				pods:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{groupIndex: indexByGroup}),
			}
			pl.forget()
			pods := make([]*corev1.Pod, count)
			for i := range pods {
				pods[i] = member("mpi", fmt.Sprintf("mpi-%d", i))
				pods[i].Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu.slice.tenancy.x-k8s.io/web": *resource.NewQuantity(int64(100+i), resource.DecimalSI)},
				}}}
				if err := pl.pods.Add(pods[i]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, status := pl.PreFilter(b.Context(), framework.NewCycleState(), pods[i%count], nil); status.IsSuccess() {
					b.Fatal("it fits")
				}
			}
		})
	}
}

// always is the one PodGroup there is.
type always struct{ group *podgroupv1alpha1.PodGroup }

func (a always) Get(types.NamespacedName) (*podgroupv1alpha1.PodGroup, error) { return a.group, nil }

func (always) OnChange(func(types.NamespacedName)) {}
