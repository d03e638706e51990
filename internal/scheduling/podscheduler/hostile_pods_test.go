package podscheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

// hostileServer is an API server of a tenant's own: what it lists of pods, and says of them in watches, need not fit
// together. All else is that of a clientset.
type hostileServer struct {
	mu      sync.Mutex
	pods    []corev1.Pod
	watcher *watch.RaceFreeFakeWatcher
}

// newHostile returns a tenant with such an API server, whose namespace web has room in r1 and r2, and calm in r1. The
// test fails when kube-scheduler ends the process, or one of its handlers panics.
func newHostile(t testing.TB) (*tenantControlPlane, *hostileServer) {
	t.Helper()
	before := klog.OsExit
	klog.OsExit = func(int) { t.Error("kube-scheduler ends the process") }
	t.Cleanup(func() { klog.OsExit = before })
	server := &hostileServer{watcher: watch.NewRaceFreeFake()}
	c := newTenantWith(t, func(c *tenantControlPlane) {
		c.api = newAPI()
		c.api.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			server.mu.Lock()
			defer server.mu.Unlock()
			return true, &corev1.PodList{Items: slices.Clone(server.pods)}, nil
		})
		c.api.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			server.mu.Lock()
			defer server.mu.Unlock()
			return true, server.watcher, nil
		})
	})
	for _, id := range []string{"r1", "r2"} {
		c.cluster(id)
		c.place("web", id, "1")
	}
	c.place("calm", "r1", "1")
	return c, server
}

// said is a watch event.
func (s *hostileServer) said(kind watch.EventType, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watcher.IsStopped() {
		s.watcher.Action(kind, pod.DeepCopy())
	}
}

// lists ends the watch, so that these pods are listed.
func (s *hostileServer) lists(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = nil
	for _, pod := range pods {
		s.pods = append(s.pods, *pod)
	}
	if !s.watcher.IsStopped() {
		expired := apierrors.NewResourceExpired("the watch is too old").Status()
		s.watcher.Error(&expired)
	}
	s.watcher = watch.NewRaceFreeFake()
}

// schedules fails if a pod that comes now goes nowhere. The server lists it from now on.
func (s *hostileServer) schedules(c *tenantControlPlane, name string) {
	c.t.Helper()
	c.create("calm", name, "1m")
	pod := c.get("calm", name)
	s.mu.Lock()
	s.pods = append(s.pods, *pod)
	s.mu.Unlock()
	s.said(watch.Added, pod)
	c.wantIn("calm", name, "r1")
}

// hostilePod returns a pod of namespace web that was bound to a node, and started there, if node is not "".
func hostilePod(name, uid, node string) *corev1.Pod {
	pod := builders.Pod("web", name, "cpu", "1m").UID(uid).SchedulerName(corev1.DefaultSchedulerName).Obj()
	if pod.Spec.NodeName = node; node != "" {
		builders.Bind(pod).Status.StartTime = &metav1.Time{}
	}
	return pod
}

// namedIn makes a pod one that names a super cluster.
func namedIn(pod *corev1.Pod, superCluster string) *corev1.Pod {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, schedulerv1alpha1.AnnotationSuperCluster, superCluster)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, schedulerv1alpha1.LabelSuperCluster, superCluster)
	return pod
}

// TestHostilePods is the table of docs/security.md: what a tenant's API server says of pods, each of which ended
// vc-scheduler before.
func TestHostilePods(t *testing.T) {
	const added, modified, deleted = watch.Added, watch.Modified, watch.Deleted
	for name, say := range map[string]func(c *tenantControlPlane, s *hostileServer){
		"a pod moves to another super cluster": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			s.said(modified, hostilePod("p", "u", "r2.n"))
		},
		"a pod moves to a node of nobody and back": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			s.said(modified, hostilePod("p", "u", "ghost"))
			s.said(modified, hostilePod("p", "u", "r1.n"))
		},
		"two pods of one UID, and one is changed": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			s.said(added, hostilePod("q", "u", "r2.n"))
			s.said(modified, hostilePod("q", "u", "r2.n"))
		},
		"two pods of one UID, and one is deleted": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			s.said(added, hostilePod("q", "u", "r2.n"))
			s.said(deleted, hostilePod("q", "u", "r2.n"))
		},
		"a pod is made anew in another super cluster while the watch is broken": func(c *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			require.Eventually(t, func() bool { pods, _ := c.sched.Cache.PodCount(); return pods == 1 }, patience, time.Millisecond)
			s.lists(hostilePod("p", "v", "r2.n"))
		},
		"a deletion names another super cluster": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			s.said(deleted, hostilePod("p", "u", "r2.n"))
		},
		"a deletion names no node, and the pod comes back elsewhere": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			s.said(deleted, hostilePod("p", "u", ""))
			s.said(added, hostilePod("p", "u", "r2.n"))
			s.said(modified, hostilePod("p", "u", "r2.n"))
		},
		"a deletion names another pod": func(_ *tenantControlPlane, s *hostileServer) {
			for i := range 20 {
				s.said(added, hostilePod("p", fmt.Sprint("u", i), "r1.n"))
				s.said(deleted, hostilePod("p", "x", "r1.n"))
			}
		},
		"a node of nobody has another pod": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", "r1.n"))
			s.said(added, hostilePod("q", "v", "ghost"))
			s.said(added, hostilePod("r", "u", "ghost"))
			s.said(modified, hostilePod("r", "u", "r1.n"))
		},
		"a pod gets another scheduler": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "u", ""))
			other := hostilePod("p", "u", "")
			other.Spec.SchedulerName = "x"
			s.said(modified, other)
			s.said(deleted, other)
		},
		"pods without UID": func(_ *tenantControlPlane, s *hostileServer) {
			s.said(added, hostilePod("p", "", "r1.n"))
			s.said(added, hostilePod("q", "", ""))
			s.said(deleted, hostilePod("p", "", "r2.n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c, server := newHostile(t)
				say(c, server)
				server.schedules(c, "after")
				pods, err := c.sched.Cache.PodCount()
				require.NoError(t, err)
				require.LessOrEqual(t, pods, 4, "what is gone is not kept")
			})
		})
	}
}

// TestBoundByTenant: the tenant binds a pod itself that was sent to r1 and is not bound there yet. It goes to r2, where
// its namespace has room, and the tenant is told what to turn off.
func TestBoundByTenant(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenantWith(t, func(c *tenantControlPlane) {
			c.api = newAPI()
		})
		for _, id := range []string{"r1", "r2"} {
			c.cluster(id)
			c.place("web", id, "1")
		}
		c.create("web", "p", "100m")
		c.wantChosen("web", "p")
		chosen := c.get("web", "p").Labels[schedulerv1alpha1.LabelSuperCluster]
		other := map[string]string{"r1": "r2", "r2": "r1"}[chosen]
		pod := c.get("web", "p")
		pod.Spec.NodeName = other + ".node-1"
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		_, err := c.api.CoreV1().Pods("web").Update(c.ctx, pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			pod := c.get("web", "p")
			return pod.Labels[schedulerv1alpha1.LabelSuperCluster] == other && pod.Annotations[tenancyv1alpha1.AnnotationBoundBy] == tenancyv1alpha1.BoundByTenant
		}, patience, 5*time.Millisecond)
		require.Contains(t, <-c.recorder.Events, reasonBoundByTenant)
	})
}

// FuzzHostilePods lets kube-scheduler's cache, queue and handlers look at a tenant's API server that says anything.
func FuzzHostilePods(f *testing.F) {
	random := rand.New(rand.NewPCG(26, 11))
	for range 6 {
		seed := make([]byte, 120)
		for i := range seed {
			seed[i] = byte(random.UintN(256))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, moves []byte) {
		schedulertest.Bubble(t, func(t *testing.T) {
			c, server := newHostile(t)
			last := map[string]*corev1.Pod{}
			for i := 0; i+2 < len(moves) && i < 600; i += 3 {
				pod := anyPod(moves[i], moves[i+1])
				switch move := moves[i+2]; {
				case move < 80:
					server.said(watch.Added, pod)
				case move < 180:
					server.said(watch.Modified, pod)
				case move < 240:
					server.said(watch.Deleted, pod)
				default:
					var listed []*corev1.Pod
					for _, name := range []string{"p", "q", "r"} {
						if last[name] != nil {
							listed = append(listed, last[name])
						}
					}
					server.lists(listed...)
				}
				last[pod.Name] = pod
			}
			server.schedules(c, "after")
		})
	})
}

// anyPod returns one of 65,536 pods, of which few can be of one API server.
func anyPod(who, what byte) *corev1.Pod {
	nodes := []string{"", "r1.n", "r2.n", "ghost", "r1.", "r2.m"}
	pod := hostilePod(string("pqr"[who%3]), []string{"", "u", "v", "w"}[who>>2&3], nodes[int(what&7)%len(nodes)])
	if who&0x10 != 0 {
		pod.Status.StartTime = nil
	}
	if who&0x20 != 0 {
		delete(pod.Annotations, tenancyv1alpha1.AnnotationBoundBy)
	}
	if who&0x40 != 0 {
		pod.Status.Conditions = nil
	}
	if who&0x80 != 0 {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	if what&0x08 != 0 {
		namedIn(pod, "r1")
	}
	if what&0x10 != 0 {
		namedIn(pod, "r2")
	}
	if what&0x18 == 0x18 {
		pod.Spec.SchedulerName = "x"
	}
	if what&0x20 != 0 {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("-5"), corev1.ResourceMemory: resource.MustParse("1e18")}
	}
	if what&0x40 != 0 {
		pod.Spec.Priority, pod.Status.NominatedNodeName = new(int32), "r2"
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("o"), Controller: new(bool)}}
	}
	if what&0x80 != 0 {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Foo"}}},
		}}}}
	}
	return pod
}

// TestHandlersRecover: a handler of kube-scheduler's that panics, or ends the process, ends the tenant's connection.
func TestHandlersRecover(t *testing.T) {
	before := klog.OsExit
	kubescheduler.RecoverExits()
	t.Cleanup(func() { klog.OsExit = before })
	for name, handle := range map[string]func(any){
		"a panic": func(any) { panic("a bug") },
		"an exit": func(any) { klog.FlushAndExit(klog.ExitFlushTimeout, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 10)
			factory := NewInformers(t.Context(), builders.Clientset(hostilePod("p", "u", "r1.n")), view.NewNodeSource(), NewChoices(), nil, func(err error) { failed <- err })
			_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: handle})
			require.NoError(t, err)
			factory.StartWithContext(t.Context())
			var failure *engage.Failure
			require.ErrorAs(t, <-failed, &failure)
			require.Equal(t, engage.ReasonPanicked, failure.Reason.Reason)
		})
	}
}
