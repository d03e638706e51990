package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/requests"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// relocationBed is a requestBed whose namespace web has two slices in each of r1 and r2. Pods are in the pod view.
type relocationBed struct{ *requestBed }

func newRelocationBed(t *testing.T) *relocationBed {
	t.Helper()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	b := &relocationBed{&requestBed{tenantBed: newTenantBed(t, web()), config: cfg, evicts: &noted{}}}
	for _, id := range []string{"r1", "r2"} {
		b.nodes = append(b.nodes, builders.VirtualNode(id, "cpu", "4", "pods", "100").Obj())
	}
	b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).DefaultSlice = oneSlice()
	b.quota("web", "4")
	b.settle()
	_, err = b.store.Change(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Granted: map[string]slice.Amounts{"r1": oneSlice().Times(2), "r2": oneSlice().Times(2)}})
		return nil
	})
	require.NoError(t, err)
	b.run()
	b.wants("r1=2 r2=2", `{"r1":2,"r2":2}`)
	b.recorded()
	return b
}

func oneSlice() slice.Amounts { return slice.Of(builders.Resources("cpu", "1", "pods", "10")) }

// pod adds a pod of web to the pod view, bound in a super cluster, or refused since now with "".
func (b *relocationBed) pod(name, cpu, cluster string, change ...func(*corev1.Pod)) {
	b.Helper()
	pod := builders.Pod("web", name, "cpu", cpu).UID(name).Obj()
	pod.CreationTimestamp = metav1.NewTime(b.clock.Now())
	if cluster == "" {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(b.clock.Now()),
		}}
	}
	for _, f := range change {
		f(pod)
	}
	projected, err := view.TenantPod(pod)
	require.NoError(b, err)
	projected.(*corev1.Pod).Spec.NodeName = cluster
	require.NoError(b, b.factory.Core().V1().Pods().Informer().GetIndexer().Add(projected))
}

// look is one request for the requests.RelocationReconciler. It returns after how long there is another.
func (b *relocationBed) look() time.Duration {
	b.Helper()
	r := b.controller.reconcile[dispatch.ConcernRelocation].(*requests.RelocationReconciler)
	r.Clock = b.clock
	r.VirtualNodes = func() map[string]*corev1.Node {
		nodes := map[string]*corev1.Node{}
		for _, node := range b.nodes {
			nodes[node.Name] = node
		}
		return nodes
	}
	b.tenantBed.look()
	result, err := r.Reconcile(b.Context(), dispatch.Request{Concern: dispatch.ConcernRelocation, Namespace: "web"})
	if !b.down {
		require.NoError(b, err)
	}
	return result.RequeueAfter
}

func (b *relocationBed) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// uses says what pods use, and that the quota answers what is decided.
func (b *relocationBed) uses(cluster string, requests slice.Amounts) {
	np := b.stored()["web"]
	hard := slice.Amounts{}
	if part := placements.PlacementIn(np.Status.Placements, cluster); part != nil {
		hard = placement.StayingIn(part)
	}
	b.usage.Set(cluster, "web", placement.Use{Requests: requests, Hard: hard, NamespaceUID: "1", Decision: placement.Decision(np, cluster)})
	b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
}

// claims adds claims to the pod view.
func (b *relocationBed) claims(claims ...*corev1.PersistentVolumeClaim) {
	b.Helper()
	known := b.factory.Core().V1().PersistentVolumeClaims()
	b.controller.reconcile[dispatch.ConcernRelocation].(*requests.RelocationReconciler).Claims = known.Lister()
	for _, claim := range claims {
		require.NoError(b, known.Informer().GetIndexer().Add(claim))
	}
}

func withVolume(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = name }
}

func withClaims(names ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, name := range names {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

// TestRelocationLeavesRoomAtVolumes: what a pod with volumes could use where these are is not moved for another, and a
// pod that nothing has helped asks less and less often.
func TestRelocationLeavesRoomAtVolumes(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.nodes = append(b.nodes, builders.VirtualNode("r3", "cpu", "4", "pods", "100").Obj())
	b.usage.Set("r3", "web", placement.Use{})
	b.claims(schedulingtest.HomelessClaim("a", withVolume("r1.v")), schedulingtest.HomelessClaim("b", withVolume("r3.v")))
	b.pod("a", "2", "", withClaims("a"))
	b.pass(time.Second)
	b.pod("b", "2", "", withClaims("b"))
	b.pass(requests.RelocationDelay)
	r := b.controller.reconcile[dispatch.ConcernRelocation].(*requests.RelocationReconciler)
	r.Attempts["web"] = requests.Attempt{Pod: "b", Clusters: sets.New("r3")}
	b.look()
	const moves = "Normal Moving Moving 2 slices from r2 to r3 for pod b, which requests cpu=2"
	require.Equal(t, []string{moves, moves}, b.recorded())
	require.Equal(t, 10*time.Minute, r.Attempts["web"].Pause)
	require.Equal(t, 10*time.Minute, b.look())
	b.pass(10 * time.Minute)
	b.run()
	b.wants("r1=2 r3=2", `{"r1":2,"r3":2}`)
}

// TestRelocationToVolumes: a pod waits whose volumes are where its namespace holds too little. Slices follow it there,
// although there is room for it elsewhere.
func TestRelocationToVolumes(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.claims(schedulingtest.HomelessClaim("data", withVolume("r3.v")), schedulingtest.HomelessClaim("homeless"), schedulingtest.HomelessClaim("other", withVolume("r1.v")), schedulingtest.HomelessClaim("stranded", schedulingtest.WithHome("r9")))
	b.pod("db", "1", "", withClaims("homeless", "data", "stranded"))
	b.pod("any", "1", "", withClaims("stranded"))
	b.pod("nowhere", "1", "", withClaims("data", "other"))
	b.pass(requests.RelocationDelay)
	b.look()
	const nowhere = "Warning NotMoved No slices are moved for pod db: its volumes are in super cluster r3, where it may not run now, or which vc-scheduler cannot measure"
	require.Equal(t, []string{nowhere, nowhere}, b.recorded())
	b.nodes = append(b.nodes, builders.VirtualNode("r3", "cpu", "4", "pods", "100").Obj())
	b.usage.Set("r3", "web", placement.Use{})
	b.pass(5 * time.Minute)
	b.look()
	const moves = "Normal Moving Moving 1 slice from r1 to r3 for pod db, which requests cpu=1"
	require.Equal(t, []string{moves, moves}, b.recorded())
	b.run()
	b.wants("r1=1 r2=2 r3=1", `{"r1":1,"r2":2,"r3":1}`)
	require.Zero(t, b.controller.reconcile[dispatch.ConcernRelocation].(*requests.RelocationReconciler).Attempts["web"].Pause)
}

const movesToR1 = "Normal Moving Moving 1 slice from r2 to r1 for pod big, which requests cpu=3"

// TestRelocation: a pod is larger than what its namespace has in any one super cluster. After a minute one of them has
// room, and nothing was evicted for it.
func TestRelocation(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.pod("small", "1", "r2")
	b.uses("r2", slice.Of(builders.Resources("cpu", "1", "pods", "1")))
	b.pod("big", "3", "")
	require.Equal(t, requests.RelocationDelay, b.look(), "others may end meanwhile")
	b.pass(requests.RelocationDelay)
	require.Equal(t, 5*time.Minute, b.look())
	require.Equal(t, []string{movesToR1, movesToR1}, b.recorded(), "on the quota and on the pod")
	b.wants("r1=2 r2=2", `{"r1":2,"r2":2}`)
	b.run()
	b.wants("r1=3 r2=2-1(Moved)", `{"r1":3,"r2":1}`)
	b.wantPublished("web")
	require.Nil(t, b.stored()["web"].Status.Requested)
	b.uses("r1", slice.Amounts{})
	b.uses("r2", slice.Of(builders.Resources("cpu", "1", "pods", "1")))
	b.run()
	b.wants("r1=3 r2=1", `{"r1":3,"r2":1}`)
	b.wantPublished("web")
	require.Empty(t, b.evicts.lines)

	// The pod is bound there: nothing is left to do.
	b.recorded()
	b.pod("big", "3", "r1")
	b.pass(5 * time.Minute)
	require.Zero(t, b.look())
	require.Empty(t, b.controller.reconcile[dispatch.ConcernRelocation].(*requests.RelocationReconciler).Attempts)
	require.Empty(t, b.recorded())
}

// TestRelocationThatIsRefused: nothing moves, the Events say why, and it is looked at once in an interval.
func TestRelocationThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set  func(*relocationBed)
		want string
	}{
		"every slice is used": {
			set: func(b *relocationBed) {
				b.pod("a", "600m", "r1")
				b.pod("b", "1100m", "r2")
				b.pod("big", "2", "")
			},
			want: "No slices are moved for pod big: super cluster r1 needs 1 more slices for it, and too few of those elsewhere are free of pods: none is evicted for it",
		},
		"larger than the quota": {
			set:  func(b *relocationBed) { b.pod("big", "5", "") },
			want: "No slices are moved for pod big: it requests cpu=5,pods=1, and the whole quota is cpu=4,pods=40",
		},
		"no node is large enough": {
			set: func(b *relocationBed) {
				b.pod("big", "3", "")
				for _, node := range b.nodes {
					metav1.SetMetaDataAnnotation(&node.ObjectMeta, schedulerv1alpha1.AnnotationNodeGroups, `{"groups":[{"nodes":1,"shapes":[{"cpu":"2"}]}]}`)
				}
			},
			want: "No slices are moved for pod big: it may run in no super cluster",
		},
		"all are cordoned": {
			set: func(b *relocationBed) {
				b.pod("big", "3", "")
				b.nodes[0].Spec.Unschedulable = true
				schedulingtest.Drained(b.nodes[1])
			},
			want: "No slices are moved for pod big: it may run in no super cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRelocationBed(t)
			tc.set(b)
			b.pass(requests.RelocationDelay)
			require.Equal(t, 5*time.Minute, b.look())
			lines := b.recorded()
			require.Len(t, lines, 2)
			for _, line := range lines {
				require.Contains(t, line, "Warning NotMoved "+tc.want)
			}
			b.pass(time.Minute)
			require.Equal(t, 4*time.Minute, b.look())
			b.run()
			b.wants("r1=2 r2=2", `{"r1":2,"r2":2}`)
			require.Empty(t, b.recorded())
			require.Nil(t, b.stored()["web"].Status.LastRequested)
		})
	}
}

// TestRelocationThatWaitsForItsTurn: the tenant has just asked for other placements, so slices that would help a pod
// move later, and the pod says when.
func TestRelocationThatWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.pod("small", "1", "r2")
	b.pod("big", "3", "")
	b.pass(requests.RelocationDelay)
	_, err := b.store.Change(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status.LastRequested = ptr.To(metav1.NewTime(b.clock.Now().Add(-time.Minute)))
		return nil
	})
	require.NoError(t, err)
	require.InDelta(t, 4*time.Minute, b.look(), float64(time.Second), "times are stored in whole seconds")
	want := "Warning NotMoved No slices are moved for pod big: the placements of the namespace change again at " +
		b.clock.Now().Add(4*time.Minute).Truncate(time.Second).UTC().Format(time.RFC3339) + " at the soonest (scheduling.movesPerHour of TenantPolicy default is 12)"
	require.Equal(t, []string{want, want}, b.recorded(), "on the quota and on the pod")
	b.pass(time.Minute)
	b.look()
	require.Empty(t, b.recorded(), "it is told once")
	b.pass(3*time.Minute + time.Second)
	b.look()
	require.Equal(t, []string{movesToR1, movesToR1}, b.recorded())
}

// TestRelocationTriesAnotherSuperCluster: the pool has no room for the first, so after the interval the second is
// tried.
func TestRelocationTriesAnotherSuperCluster(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.nodes[0].Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2")
	b.pod("big", "3", "")
	b.pass(requests.RelocationDelay)
	b.look()
	b.run()
	b.wants("r1=2 r2=2", `{"r1":2,"r2":2}`)
	require.Contains(t, strings.Join(b.recorded(), "\n"), "Warning NotMoved No slices are moved for pod big: super cluster r1: has too little free cpu")
	require.Nil(t, b.stored()["web"].Status.Requested)
	require.Positive(t, b.look(), "not within the interval")
	b.pass(5 * time.Minute)
	b.look()
	b.run()
	b.wants("r1=1 r2=3", `{"r1":1,"r2":3}`)
	require.Empty(t, b.evicts.lines)
}

// TestRelocationIsNotForEveryPod: what waits for something else, or may not wait, moves nothing.
func TestRelocationIsNotForEveryPod(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*relocationBed){
		"it has room somewhere": func(b *relocationBed) { b.pod("big", "2", "") },
		"it is not refused":     func(b *relocationBed) { b.pod("big", "3", "", func(p *corev1.Pod) { p.Status.Conditions = nil }) },
		"it is gated": func(b *relocationBed) {
			b.pod("big", "3", "", func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated })
		},
		"it is deleted": func(b *relocationBed) {
			b.pod("big", "3", "", func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) })
		},
		"it is elsewhere than where there was no volume": func(b *relocationBed) { b.pod("big", "3", "r2", b.withoutVolume("r1")) },
		"there was no volume long ago": func(b *relocationBed) {
			b.pod("big", "3", "r1", b.withoutVolume("r1"))
			b.pass(20 * time.Minute)
		},
		"the policy allows no moves": func(b *relocationBed) {
			b.pod("big", "3", "")
			b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.MovesPerHour = 0 })
		},
		"there is no namespace": func(b *relocationBed) {
			b.pod("big", "3", "")
			require.NoError(b, b.factory.Core().V1().Namespaces().Informer().GetIndexer().Replace(nil, ""))
			require.NoError(b, b.api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "web"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRelocationBed(t)
			set(b)
			b.pass(requests.RelocationDelay)
			b.look()
			require.Empty(t, b.recorded())
			require.Nil(t, b.stored()["web"].Status.Requested)
		})
	}
}

// delayedQueue notes what is to be done later.
type delayedQueue struct {
	workqueue.TypedRateLimitingInterface[dispatch.Request]
	items sets.Set[dispatch.Request]
}

func (q *delayedQueue) AddAfter(item dispatch.Request, _ time.Duration) { q.items.Insert(item) }

// TestRelocationCostsOneLook: a thousand pods of a namespace are one request of the queue, one move and two Events.
func TestRelocationCostsOneLook(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	for i := range 1_000 {
		b.pod(fmt.Sprintf("big-%d", i), "3", "")
	}
	queue := &delayedQueue{items: sets.New[dispatch.Request]()}
	handler := podHandler(queue, b.controller.choices, b.clock)
	for _, pod := range b.factory.Core().V1().Pods().Informer().GetIndexer().List() {
		handler.OnAdd(pod, true)
	}
	require.Equal(t, sets.New(dispatch.Request{Concern: dispatch.ConcernRelocation, Namespace: "web"}), queue.items)
	b.pass(requests.RelocationDelay)
	writes := len(b.meta.Writes)
	require.Equal(t, 5*time.Minute, b.look())
	require.Len(t, b.meta.Writes, writes+1)
	require.Len(t, b.recorded(), 2)
	for range 10 {
		require.Greater(t, b.look(), 4*time.Minute, "it is not looked at again")
	}
	require.Empty(t, b.recorded())
}

// TestRelocationsOfDifferentPods: a pod that nothing helps does not keep others waiting.
func TestRelocationsOfDifferentPods(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.pod("first", "5", "", func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](10) })
	b.pod("big", "3", "")
	b.pass(requests.RelocationDelay)
	b.look()
	require.Equal(t, []string{movesToR1, movesToR1}, b.recorded())
}

// TestRelocationWhileEveryWriteIsLost loses each write of a move, with the process, and starts another: the pod has
// room in the end, and slices have moved once.
func TestRelocationWhileEveryWriteIsLost(t *testing.T) {
	t.Parallel()
	life := func(b *relocationBed) {
		b.pod("big", "3", "")
		b.pass(requests.RelocationDelay)
		b.look()
		b.run()
	}
	whole := newRelocationBed(t)
	first := len(whole.meta.Writes)
	life(whole)
	whole.wants("r1=3 r2=1", `{"r1":3,"r2":1}`)
	require.Greater(t, len(whole.meta.Writes), first)
	for n := first; n < len(whole.meta.Writes); n++ {
		for _, happens := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%s/happens=%v", n-first, whole.meta.Writes[n], happens), func(t *testing.T) {
				t.Parallel()
				b := newRelocationBed(t)
				b.loseWrite, b.happens = n, happens
				life(b)
				require.True(t, b.down, "the write was lost")
				b.loseWrite, b.down = -1, false
				b.process()
				b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).DefaultSlice = oneSlice()
				b.run()
				b.pod("big", "3", "") // the informer lists it again
				b.pass(5 * time.Minute)
				b.look()
				b.run()
				b.wants("r1=3 r2=1", `{"r1":3,"r2":1}`)
				b.wantPublished("web")
				require.Nil(t, b.stored()["web"].Status.Requested)
				require.Empty(t, b.evicts.lines)
			})
		}
	}
}

// zoned lets nodes of a super cluster be in a zone.
func (b *relocationBed) zoned(cluster int, zone string) {
	metav1.SetMetaDataAnnotation(&b.nodes[cluster].ObjectMeta, schedulerv1alpha1.AnnotationNodeGroups, fmt.Sprintf(
		`{"groups":[{"nodes":2,"labels":{"topology.kubernetes.io/zone":%q},"shapes":[{"cpu":"4"}]}]}`, zone))
}

// withoutVolume lets a pod go round among super clusters that have no volume for it.
func (b *relocationBed) withoutVolume(superClusters ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SuperClusterFailed"}}
		failures := failedchoice.Failures{}
		for range 3 {
			for _, name := range superClusters {
				failures = failures.Plus(name, failedchoice.NoVolume, b.clock.Now())
			}
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, schedulerv1alpha1.AnnotationFailedSuperClusters, failures.String())
	}
}

func inZone(zone string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone} }
}

// TestRelocationToDemands: a pod that no super cluster of its namespace can run has unused slices moved to one that
// can, though it has room where they are.
func TestRelocationToDemands(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*relocationBed){
		"its zone": func(b *relocationBed) { b.pod("small", "1", "", inZone("c")) },
		"its node affinity": func(b *relocationBed) {
			b.pod("small", "1", "", func(pod *corev1.Pod) {
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a", "b"}},
					}}},
				}}}
			})
		},
		"taints": func(b *relocationBed) {
			b.pod("small", "1", "")
			for _, node := range b.nodes[:2] {
				node.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			}
		},
		"taints, and they are cordoned": func(b *relocationBed) {
			b.pod("small", "1", "")
			for _, node := range b.nodes[:2] {
				node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, {Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			}
		},
		"a class": func(b *relocationBed) {
			b.pod("small", "1", "", withClaims("data"))
			b.claims(schedulingtest.HomelessClaim("data"))
			b.class("fast", "r3")
		},
		"a volume": func(b *relocationBed) {
			b.pod("small", "1", "r1", b.withoutVolume("r1", "r2"))
		},
		"a volume, and it uses the last slice": func(b *relocationBed) {
			b.pod("a", "1", "r1")
			b.pod("b", "2", "r2")
			b.pod("small", "1", "r1", b.withoutVolume("r1", "r2"))
			b.uses("r1", slice.Of(builders.Resources("cpu", "2", "pods", "2")))
			b.uses("r2", slice.Of(builders.Resources("cpu", "2", "pods", "1")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRelocationBed(t)
			b.nodes = append(b.nodes, builders.VirtualNode("r3", "cpu", "4", "pods", "100").Obj())
			for i, zone := range []string{"a", "b", "c"} {
				b.zoned(i, zone)
			}
			b.usage.Set("r3", "web", placement.Use{})
			set(b)
			b.pass(requests.RelocationDelay)
			require.Equal(t, 5*time.Minute, b.look())
			b.run()
			got := b.stored()["web"].Status.Placements
			require.Len(t, got, 3)
			require.Equal(t, "r3", got[2].Cluster)
			require.Equal(t, int32(1), got[2].Slices)
			require.Contains(t, strings.Join(b.recorded(), "\n"), "to r3 for pod small, which requests cpu=1 and demands what the super clusters lack where the namespace has room for it")
			require.Empty(t, b.evicts.lines)
		})
	}
}

// TestRelocationsThatContradict: of two pods that want the same slice in two places, and that neither place helps, the
// slice does not go to and fro for ever. A pod whose demands nothing meets moves nothing, and is told so by its
// condition alone.
func TestRelocationsThatContradict(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.zoned(0, "a")
	b.zoned(1, "b")
	b.pod("used-a", "1500m", "r1")
	b.pod("used-b", "500m", "r2")
	b.uses("r1", slice.Of(builders.Resources("cpu", "1500m", "pods", "1")))
	b.uses("r2", slice.Of(builders.Resources("cpu", "500m", "pods", "1")))
	b.pod("never", "1", "", inZone("nowhere"))
	b.pod("to-a", "1", "", inZone("a"))
	b.pod("to-b", "1", "", inZone("b"))
	moves := 0
	for range 12 * 12 {
		b.pass(5 * time.Minute)
		b.look()
		b.run()
		for _, p := range b.stored()["web"].Status.Placements { // pods stay where they are
			b.uses(p.Cluster, slice.Of(builders.Resources("cpu", map[string]string{"r1": "1500m", "r2": "500m"}[p.Cluster], "pods", "1")))
		}
		b.run()
		for _, line := range b.recorded() {
			require.NotContains(t, line, "never")
			if strings.Contains(line, "Normal Moving") && strings.Contains(line, "for pod to-") {
				moves++
			}
		}
	}
	require.GreaterOrEqual(t, moves, 2*12, "neither waits for ever while it could be helped")
	require.LessOrEqual(t, moves, 2*30, "two Events each: twice in an hour at most after the first ones")
}

// TestRelocationsAreBounded: a tenant has so many super clusters looked at in a second for all its pods.
func TestRelocationsAreBounded(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.zoned(0, "a")
	b.zoned(1, "a")
	b.nodes = append(b.nodes, builders.VirtualNode("r3", "cpu", "4", "pods", "100").Obj())
	b.zoned(2, "c")
	b.usage.Set("r3", "web", placement.Use{})
	r := b.controller.reconcile[dispatch.ConcernRelocation].(*requests.RelocationReconciler)
	r.Judgements = rate.NewLimiter(rate.Every(time.Hour), len(b.nodes))
	b.pod("a", "1", "", inZone("nowhere"))
	b.pod("b", "1", "", inZone("c"))
	b.pass(requests.RelocationDelay)
	require.Equal(t, 5*time.Minute, b.look())
	require.Empty(t, b.recorded(), "the first pod has used it up")
	r.Judgements = rate.NewLimiter(rate.Every(time.Second), 2*len(b.nodes))
	require.True(t, r.Judgements.AllowN(b.clock.Now().Add(5*time.Minute), len(b.nodes)+1))
	b.pass(5 * time.Minute)
	require.Equal(t, time.Duration(len(b.nodes)+1)*time.Second, b.look(), "others have used it up: their turn comes when both pods can be judged")
	require.Equal(t, time.Duration(len(b.nodes)+1)*time.Second, b.look(), "which uses nothing up")
	require.Empty(t, b.recorded())
	b.pass(time.Duration(len(b.nodes)+1) * time.Second)
	require.Equal(t, 5*time.Minute, b.look())
	require.Contains(t, strings.Join(b.recorded(), "\n"), "to r3 for pod b")
}

// TestRelocationOfReplicas: replicas whose claims have failed at different times are one kind of pod, and others have
// their turn.
func TestRelocationOfReplicas(t *testing.T) {
	t.Parallel()
	b := newRelocationBed(t)
	b.class("fast", "r1", "r2")
	for i := range requests.MaxWishes + 1 {
		name := fmt.Sprintf("replica-%02d", i)
		failures := failedchoice.Failures{}.Plus("r1", failedchoice.NoVolume, b.clock.Now()).Plus("r2", failedchoice.NoVolume, b.clock.Now())
		failures["r3"] = failedchoice.Failure{At: metav1.NewTime(b.clock.Now().Add(-time.Hour)), Count: int32(i + 1), Reason: failedchoice.NoVolume}
		b.claims(schedulingtest.HomelessClaim(name, func(claim *corev1.PersistentVolumeClaim) {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, schedulerv1alpha1.AnnotationFailedSuperClusters, failures.String())
		}))
		b.pod(name, "1", "", withClaims(name))
		b.pass(time.Second)
	}
	b.pod("big", "3", "")
	b.pass(requests.RelocationDelay)
	b.look()
	require.Equal(t, []string{movesToR1, movesToR1}, b.recorded())
}

// class adds a StorageClass that a super cluster offers.
func (b *relocationBed) class(name string, offering ...string) {
	b.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, id := range offering {
		metav1.SetMetaDataAnnotation(&class.ObjectMeta, tenancyv1alpha1.AnnotationPrefixOfferedBy+id, "true")
	}
	known := b.factory.Storage().V1().StorageClasses()
	b.controller.reconcile[dispatch.ConcernRelocation].(*requests.RelocationReconciler).Classes = known.Lister()
	require.NoError(b, known.Informer().GetIndexer().Add(class))
}
