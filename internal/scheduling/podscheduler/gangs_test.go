package podscheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/ptr"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins/coscheduling"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// newGangs returns a tenant whose control plane serves PodGroups, with two super clusters.
func newGangs(t *testing.T) *tenantControlPlane {
	t.Helper()
	read, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	require.NoError(t, err)
	for i := range read.Profiles {
		if read.Profiles[i].SchedulerName == "gang" {
			read.Profiles[i].Plugins.PreEnqueue.Enabled = append(read.Profiles[i].Plugins.PreEnqueue.Enabled, config.Plugin{Name: holder{}.Name()})
		}
	}
	groups := cachetesting.NewFakeControllerSource()
	t.Cleanup(groups.Shutdown)
	c := newTenantWith(t, func(c *tenantControlPlane) {
		c.groups, c.config = groups, read
		c.outOfTree = frameworkruntime.Registry{holder{}.Name(): func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			return holder{}, nil
		}}
	})
	c.cluster("r1")
	c.cluster("r2")
	return c
}

// holder keeps pods with label held out of the queue: they are there, and nobody judges them.
type holder struct{}

// Name implements fwk.Plugin.
func (holder) Name() string { return "Holder" }

// PreEnqueue implements fwk.PreEnqueuePlugin.
func (holder) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if _, held := pod.Labels["held"]; held {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "held")
	}
	return nil
}

// group makes a PodGroup of namespace web.
func (c *tenantControlPlane) group(name string, minMember int32, change ...func(*podgroupv1alpha1.PodGroup)) {
	group := &podgroupv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		Spec:       podgroupv1alpha1.PodGroupSpec{MinMember: minMember},
	}
	for _, f := range change {
		f(group)
	}
	c.groups.Add(group)
}

// anywhere lets the members of a group be in several super clusters.
func anywhere(group *podgroupv1alpha1.PodGroup) {
	group.Annotations = map[string]string{schedulerv1alpha1.AnnotationGangSuperClusters: schedulerv1alpha1.GangAnySuperCluster}
}

// memberOf makes a pod a member of a group, for the profile gang.
func memberOf(group string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{podgroupv1alpha1.PodGroupLabel: group}
		pod.Spec.SchedulerName = "gang"
	}
}

// members makes pods NAME-FROM to NAME-TO of a group.
func (c *tenantControlPlane) members(group string, from, to int, cpu string) {
	for i := from; i <= to; i++ {
		c.create("web", fmt.Sprintf("%s-%d", group, i), cpu, memberOf(group))
	}
}

// wantNowhere checks that none of the members of a group has a super cluster once nothing is left to do in the bubble.
func (c *tenantControlPlane) wantNowhere(group string, from, to int) {
	c.t.Helper()
	synctest.Wait()
	for i := from; i <= to; i++ {
		pod := c.get("web", fmt.Sprintf("%s-%d", group, i))
		require.NotContains(c.t, pod.Labels, schedulerv1alpha1.LabelSuperCluster, pod.Name)
	}
}

// wasRefused returns whether a member has a refusal with a text.
func (c *tenantControlPlane) wasRefused(name, text string) bool {
	_, condition := podutil.GetPodCondition(&c.get("web", name).Status, corev1.PodScheduled)
	return condition != nil && strings.Contains(condition.Message, text)
}

// wantTogether checks that members of a group get one super cluster.
func (c *tenantControlPlane) wantTogether(group string, from, to int, superCluster string) {
	c.t.Helper()
	for i := from; i <= to; i++ {
		c.wantIn("web", fmt.Sprintf("%s-%d", group, i), superCluster)
	}
}

// TestGangIsPlacedWhole: the members of a group go to one super cluster once all that it needs are there.
func TestGangIsPlacedWhole(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.place("web", "r1", "200m")
		c.place("web", "r2", "400m")
		c.group("mpi", 3)
		c.members("mpi", 1, 2, "100m")
		// Events try one of them: the first that was tried after its PodGroup was known.
		require.Eventually(t, func() bool {
			return c.wasRefused("mpi-1", "2 of 3 members are here") || c.wasRefused("mpi-2", "2 of 3 members are here")
		}, patience, 5*time.Millisecond)
		c.wantNowhere("mpi", 1, 2)
		c.members("mpi", 3, 3, "100m")
		c.wantTogether("mpi", 1, 3, "r2")
		c.members("mpi", 4, 4, "100m")
		c.wantTogether("mpi", 4, 4, "r2")
		c.members("mpi", 5, 5, "100m")
		c.wantRefused("web", "mpi-5", "super clusters are available")
	})
}

// TestGangRefused: a gang that cannot be placed whole says why, and none of its members starts.
func TestGangRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*podgroupv1alpha1.PodGroup)
		make   func(*tenantControlPlane)
		want   string
	}{
		"no super cluster has the room": {
			make: func(c *tenantControlPlane) { c.members("mpi", 1, 3, "150m") },
			want: "gang mpi: no super cluster has room for 3 members (annotation scheduler.tenancy.x-k8s.io/gang-super-clusters: Any on the PodGroup lets it be in several)",
		},
		"all together have too little": {
			change: anywhere,
			make:   func(c *tenantControlPlane) { c.members("mpi", 1, 3, "250m") },
			want:   "gang mpi: its namespace has too little room for 3 members: 750m of 700m cpu",
		},
		"together they have the sum, and no room for each": {
			change: anywhere,
			make:   func(c *tenantControlPlane) { c.members("mpi", 1, 3, "220m") },
			want:   "at most 180m free in one",
		},
		"minResources": {
			change: func(group *podgroupv1alpha1.PodGroup) {
				group.Spec.MinResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
			},
			make: func(c *tenantControlPlane) { c.members("mpi", 1, 3, "10m") },
			want: "gang mpi: no super cluster has room for 3 members",
		},
		"scheduling gates": {
			make: func(c *tenantControlPlane) {
				c.members("mpi", 1, 2, "10m")
				c.create("web", "mpi-3", "10m", memberOf("mpi"), func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} })
			},
			want: "gang mpi: 2 of 3 members are here, and 1 with scheduling gates",
		},
		"another profile": {
			make: func(c *tenantControlPlane) {
				c.members("mpi", 1, 2, "10m")
				c.create("web", "mpi-3", "10m", memberOf("mpi"), func(pod *corev1.Pod) { pod.Spec.SchedulerName = "other" })
			},
			want: "gang mpi: 2 of 3 members are here, and 1 of another schedulerName",
		},
		"a value that is none": {
			change: func(group *podgroupv1alpha1.PodGroup) {
				group.Annotations = map[string]string{schedulerv1alpha1.AnnotationGangSuperClusters: "Two"}
			},
			make: func(c *tenantControlPlane) { c.members("mpi", 1, 3, "10m") },
			want: `gang mpi: annotation scheduler.tenancy.x-k8s.io/gang-super-clusters of the PodGroup is "Two": want One or Any`,
		},
		"more than may wait": {
			change: func(group *podgroupv1alpha1.PodGroup) { group.Spec.MinMember = 1_000_000 },
			make:   func(c *tenantControlPlane) { c.members("mpi", 1, 1, "10m") },
			want:   "gang mpi: it needs 1000000 members at once, and ",
		},
		"no PodGroup": {
			make: func(c *tenantControlPlane) { c.members("typo", 1, 1, "10m") },
			want: "gang typo: there is no PodGroup typo",
		},
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c := newGangs(t)
				c.place("web", "r1", "300m")
				c.place("web", "r2", "400m")
				if tc.change == nil {
					tc.change = func(*podgroupv1alpha1.PodGroup) {}
				}
				c.group("mpi", 3, tc.change)
				tc.make(c)
				pods, err := c.api.CoreV1().Pods("web").List(c.ctx, metav1.ListOptions{})
				require.NoError(t, err)
				require.Eventually(t, func() bool {
					for i := range pods.Items {
						_, condition := podutil.GetPodCondition(&c.get("web", pods.Items[i].Name).Status, corev1.PodScheduled)
						if condition != nil && strings.Contains(condition.Message, tc.want) {
							return true
						}
					}
					return false
				}, patience, 5*time.Millisecond, "a member says %q", tc.want)
				for i := range pods.Items {
					require.NotContains(t, c.get("web", pods.Items[i].Name).Labels, schedulerv1alpha1.LabelSuperCluster)
				}
			})
		})
	}
}

// TestGangInSeveral: a PodGroup that says so is placed where its members fit.
func TestGangInSeveral(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.place("web", "r1", "200m")
		c.place("web", "r2", "100m")
		c.group("mpi", 3, anywhere)
		c.members("mpi", 1, 3, "100m")
		require.Eventually(t, func() bool {
			in := map[string]int{}
			for i := 1; i <= 3; i++ {
				in[c.get("web", fmt.Sprintf("mpi-%d", i)).Labels[schedulerv1alpha1.LabelSuperCluster]]++
			}
			return in["r1"] == 2 && in["r2"] == 1
		}, patience, 5*time.Millisecond)
	})
}

// TestGangTriesAnother: a super cluster that has the room and does not take all members is left for another one.
func TestGangTriesAnother(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.cluster("r1", func(node *corev1.Node) { node.Labels["topology.kubernetes.io/zone"] = "a" })
		c.cluster("r2", func(node *corev1.Node) { node.Labels["topology.kubernetes.io/zone"] = "b" })
		c.place("web", "r1", "400m")
		c.place("web", "r2", "300m")
		c.group("mpi", 3)
		c.members("mpi", 1, 2, "100m")
		c.create("web", "mpi-3", "100m", memberOf("mpi"), func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "topology.kubernetes.io/zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "data"}},
			}}}}
		})
		// How many, it says right only once kube-scheduler has forgotten the members that were released.
		c.wantRefused("web", "mpi-1", " super clusters have room for 3 members, and none takes all of them")
		c.wantNowhere("mpi", 1, 3)
		c.create("web", "data", "0", func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "data"}
			pod.Spec.NodeName = "r2.node-1"
			builders.Bind(pod)
		})
		c.wantTogether("mpi", 1, 3, "r2")
	})
}

// TestGangsTakeTurns: of two gangs with room for one, one runs, and the other follows when there is room.
func TestGangsTakeTurns(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.place("web", "r1", "300m")
		c.group("a", 3)
		c.group("b", 3)
		for i := 1; i <= 3; i++ {
			c.members("a", i, i, "100m")
			c.members("b", i, i, "100m")
		}
		whole := func(group string) bool {
			for i := 1; i <= 3; i++ {
				if c.get("web", fmt.Sprintf("%s-%d", group, i)).Labels[schedulerv1alpha1.LabelSuperCluster] == "" {
					return false
				}
			}
			return true
		}
		require.Eventually(t, func() bool { return whole("a") || whole("b") }, patience, 5*time.Millisecond)
		first, second := "a", "b"
		if whole("b") {
			first, second = second, first
		}
		c.wantRefused("web", second+"-1", "gang "+second)
		c.wantNowhere(second, 1, 3)
		for i := 1; i <= 3; i++ {
			require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, fmt.Sprintf("%s-%d", first, i), metav1.DeleteOptions{}))
		}
		c.wantTogether(second, 1, 3, "r1")
	})
}

// TestGangAfterARestart: whatever a process had written of a gang when it ended, the next one places all of it, where
// members ask for or were chosen for. What was chosen stays: it may run already.
func TestGangAfterARestart(t *testing.T) {
	choose := func(c *tenantControlPlane, name string, label bool) {
		pod := c.get("web", name)
		pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"}
		if label {
			pod.Labels[schedulerv1alpha1.LabelSuperCluster] = "r1"
		}
		_, err := c.api.CoreV1().Pods("web").Update(c.ctx, pod, metav1.UpdateOptions{})
		require.NoError(c.t, err)
	}
	other := func(c *tenantControlPlane) {
		c.create("web", "other", "100m", func(pod *corev1.Pod) {
			pod.Spec.NodeName = "r1.node-1"
			builders.Bind(pod)
		})
	}
	for name, tc := range map[string]struct {
		asks, choices []string
		meanwhile     func(c *tenantControlPlane)
		want          string
	}{
		"some ask":                       {asks: []string{"mpi-1"}, want: "r1"},
		"all ask":                        {asks: []string{"mpi-1", "mpi-2", "mpi-3"}, want: "r1"},
		"all ask, some are chosen":       {asks: []string{"mpi-2", "mpi-3"}, choices: []string{"mpi-1"}, want: "r1"},
		"some choices, and room is gone": {asks: []string{"mpi-3"}, choices: []string{"mpi-1", "mpi-2"}, meanwhile: other},
		"all ask, and a member is gone": {
			asks: []string{"mpi-1", "mpi-2", "mpi-3"},
			meanwhile: func(c *tenantControlPlane) {
				require.NoError(c.t, c.api.CoreV1().Pods("web").Delete(c.ctx, "mpi-3", metav1.DeleteOptions{}))
			},
		},
		"its PodGroup is gone": {
			asks: []string{"mpi-3"}, choices: []string{"mpi-1", "mpi-2"},
			meanwhile: func(c *tenantControlPlane) {
				c.groups.Delete(&podgroupv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "mpi"}})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c := newGangs(t)
				c.place("web", "r1", "300m")
				c.group("mpi", 3)
				c.restart(func() {
					c.members("mpi", 1, 3, "100m")
					for _, pod := range tc.asks {
						choose(c, pod, false)
					}
					for _, pod := range tc.choices {
						choose(c, pod, true)
					}
					if tc.meanwhile != nil {
						tc.meanwhile(c)
					}
				})
				if tc.want != "" {
					c.wantTogether("mpi", 1, 3, tc.want)
					return
				}
				for _, name := range []string{"mpi-1", "mpi-2"} {
					want := ""
					if slices.Contains(tc.choices, name) {
						want = "r1"
					}
					c.wantIn("web", name, want)
				}
				if len(tc.choices) > 0 {
					c.wantIn("web", "mpi-3", "")
				}
			})
		})
	}
}

// TestGangWriteFails: while the API server takes the choice of one member not, the others stay where they were chosen
// for. It is tried with kube-scheduler's backoff, and follows there.
func TestGangWriteFails(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		var refuses atomic.Bool
		var tries atomic.Int64
		refuses.Store(true)
		c.api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patch, ok := action.(clienttesting.PatchAction)
			if !ok || patch.GetName() != "mpi-2" || patch.GetSubresource() != "" || !refuses.Load() {
				return false, nil, nil
			}
			refuses.Store(tries.Add(1) < 100) // without backoff no time would pass
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "mpi-2", schedulingtest.ErrDown)
		})
		c.place("web", "r1", "300m")
		c.group("mpi", 3)
		c.members("mpi", 1, 3, "100m")
		c.wantIn("web", "mpi-1", "r1")
		c.wantIn("web", "mpi-3", "r1")
		c.place("web", "r2", "300m") // there is room elsewhere, too
		<-time.After(30 * time.Second)
		c.wantNowhere("mpi", 2, 2)
		// After 1, 2, 4, 8 and 10 s; twice where kube-scheduler finds its own write of the status meanwhile.
		require.GreaterOrEqual(t, tries.Load(), int64(5))
		require.Less(t, tries.Load(), int64(16), "it is tried with backoff")
		refuses.Store(false)
		c.wantIn("web", "mpi-2", "r1")
	})
}

// TestGangWritesFail: while the API server takes no choice of a gang that may have more members than it needs, each is
// tried with kube-scheduler's backoff.
func TestGangWritesFail(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		const all = 12
		c := newGangs(t)
		var tries atomic.Int64
		c.api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetSubresource() != "" || tries.Load() >= 100*all { // without backoff no time would pass
				return false, nil, nil
			}
			tries.Add(1)
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "any", schedulingtest.ErrDown)
		})
		c.place("web", "r1", "1200m")
		c.group("mpi", 3)
		c.members("mpi", 1, all, "100m")
		<-time.After(30 * time.Second)
		c.wantNowhere("mpi", 1, all)
		require.GreaterOrEqual(t, tries.Load(), int64(4*all))
		require.LessOrEqual(t, tries.Load(), int64(16*all), "each is tried with backoff")
	})
}

// slowToUnreserve is a plugin whose Unreserve comes to its end when wait is closed.
type slowToUnreserve struct{ wait chan struct{} }

// Name implements fwk.Plugin.
func (slowToUnreserve) Name() string { return "SlowToUnreserve" }

// Reserve implements fwk.ReservePlugin.
func (slowToUnreserve) Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	return nil
}

// Unreserve implements fwk.ReservePlugin.
func (s slowToUnreserve) Unreserve(context.Context, fwk.CycleState, *corev1.Pod, string) { <-s.wait }

// TestGangOutOfTime: a member that comes when the time of the others is over, and before they know, is placed with them.
func TestGangOutOfTime(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.stop()
		slow := slowToUnreserve{make(chan struct{})}
		for i := range c.config.Profiles {
			if c.config.Profiles[i].SchedulerName == "gang" {
				c.config.Profiles[i].Plugins.Reserve.Enabled = append(c.config.Profiles[i].Plugins.Reserve.Enabled, config.Plugin{Name: slow.Name()})
			}
		}
		c.outOfTree[slow.Name()] = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return slow, nil }
		c.start()
		waitingGang(c, func(group *podgroupv1alpha1.PodGroup) { group.Spec.ScheduleTimeoutSeconds = ptr.To[int32](1) })
		<-time.After(1100 * time.Millisecond)
		synctest.Wait() // both are rejected, and about to be unreserved
		pod := c.get("web", "a-3")
		delete(pod.Labels, "held")
		_, err := c.api.CoreV1().Pods("web").Update(c.ctx, pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.Empty(t, c.get("web", "a-3").Labels[schedulerv1alpha1.LabelSuperCluster])
		close(slow.wait)
		<-time.After(time.Minute) // without an event, kube-scheduler tries them again after five
		synctest.Wait()
		for _, name := range []string{"a-1", "a-2", "a-3"} {
			require.Equal(t, "r1", c.get("web", name).Labels[schedulerv1alpha1.LabelSuperCluster], name)
		}
	})
}

// TestGangLosesAMember: a member that is deleted while the others wait for it releases them.
func TestGangLosesAMember(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.place("web", "r1", "300m")
		c.group("mpi", 3)
		c.members("mpi", 1, 2, "100m")
		c.create("web", "mpi-3", "100m", memberOf("mpi"), func(pod *corev1.Pod) { pod.Spec.SchedulerName = "gang" })
		c.wantTogether("mpi", 1, 3, "r1")
		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "mpi-3", metav1.DeleteOptions{}))
		c.members("mpi", 4, 4, "100m")
		c.wantTogether("mpi", 4, 4, "r1")
	})
}

// TestGangOfMany: more members than binds in flight, and than the pods of the tenant that may wait beside others.
func TestGangOfMany(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.PendingPods = 110 }))
		for i := range 50 {
			c.create("web", fmt.Sprintf("large-%d", i), "10") // they wait, and take most places in the queue
		}
		c.place("web", "r1", "300m")
		c.group("mpi", 110)
		c.members("mpi", 1, 110, "1m")
		c.wantTogether("mpi", 1, 110, "r1")
	})
}

// TestGangForgesNoPostponement: a PodGroup that says what a gang says that is tried later is refused all the same.
func TestGangForgesNoPostponement(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.place("web", "r1", "300m")
		c.group("mpi", 1, func(group *podgroupv1alpha1.PodGroup) {
			group.Annotations = map[string]string{schedulerv1alpha1.AnnotationGangSuperClusters: "it is tried later: x"}
		})
		c.create("web", "seen", "100m", memberOf("mpi"))
		c.wantRefused("web", "seen", "it is tried later: x") // the PodGroup is known
		c.create("web", "mpi-1", "100m", asking("r1"), memberOf("mpi"))
		c.wantEvent(reasonSuperClusterNotGranted, "r1", "it is tried later: x")
	})
}

// waitingGang makes gang a of three members, two of which wait in r1 for the third, which is held.
func waitingGang(c *tenantControlPlane, change ...func(*podgroupv1alpha1.PodGroup)) {
	c.t.Helper()
	c.place("web", "r1", "300m")
	c.group("a", 3, change...)
	c.create("web", "a-3", "100m", memberOf("a"), func(pod *corev1.Pod) { pod.Labels["held"] = "" })
	c.members("a", 1, 2, "100m")
	require.Eventually(c.t, func() bool {
		waiting := 0
		c.sched.Profiles["gang"].IterateOverWaitingPods(func(fwk.WaitingPod) { waiting++ })
		return waiting == 2
	}, patience, 5*time.Millisecond, "two members wait for the third")
}

// TestGangWhoseFirstIsHeld: a gang that can do without a member which nobody can try is tried when its PodGroup changes.
func TestGangWhoseFirstIsHeld(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.place("web", "r1", "300m")
		c.group("a", 4)
		c.create("web", "a-0", "100m", memberOf("a"), func(pod *corev1.Pod) { pod.Labels["held"] = "" })
		c.members("a", 1, 3, "100m")
		require.Eventually(t, func() bool { return c.wasRefused("a-3", "no super cluster has room for 4 members") }, patience, 5*time.Millisecond)
		c.wantNowhere("a", 0, 3)
		c.groups.Modify(&podgroupv1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}, Spec: podgroupv1alpha1.PodGroupSpec{MinMember: 3},
		})
		c.wantTogether("a", 1, 3, "r1")
	})
}

// TestGangThatIsNotJudged: a member that waits for another gang, or for the list of PodGroups, keeps what it asks for.
func TestGangThatIsNotJudged(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		waitingGang(c)
		c.group("b", 1)
		require.Eventually(t, func() bool {
			_, err := c.groupsSeen.Get(types.NamespacedName{Namespace: "web", Name: "b"})
			return err == nil
		}, patience, time.Millisecond, "PodGroup b is seen")
		c.create("web", "b-1", "100m", asking("r1"), memberOf("b"))
		require.Eventually(t, func() bool {
			_, condition := podutil.GetPodCondition(&c.get("web", "b-1").Status, corev1.PodScheduled)
			return condition != nil && strings.Contains(condition.Message, "gang b: it is tried later: gang web/a is being placed or given up")
		}, patience, 5*time.Millisecond)
		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "a-3", metav1.DeleteOptions{}))
		c.wantIn("web", "b-1", "r1")
		for _, line := range c.told() {
			require.NotContains(t, line, reasonSuperClusterNotGranted)
		}
		g := newPodGroups(&cache.ListWatch{})
		_, err := g.Get(types.NamespacedName{Namespace: "web", Name: "mpi"})
		require.ErrorIs(t, err, coscheduling.ErrUnlisted)
	})
}

// TestGangIsReleased: members that wait for another one are released when it is deleted, or does not come in time, and
// hold nothing from then on.
func TestGangIsReleased(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*podgroupv1alpha1.PodGroup)
		end    func(c *tenantControlPlane)
		want   string
	}{
		"a member is deleted": {
			end: func(c *tenantControlPlane) {
				require.NoError(c.t, c.api.CoreV1().Pods("web").Delete(c.ctx, "a-3", metav1.DeleteOptions{}))
			},
			want: "gang a: pod a-3 was deleted",
		},
		"it takes too long": {
			change: func(group *podgroupv1alpha1.PodGroup) { group.Spec.ScheduleTimeoutSeconds = ptr.To[int32](1) },
			want:   "gang a: not all members that it needs found a super cluster within 1s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c := newGangs(t)
				if tc.change == nil {
					tc.change = func(*podgroupv1alpha1.PodGroup) {}
				}
				waitingGang(c, tc.change)
				c.create("web", "plain", "300m")
				if tc.end != nil {
					tc.end(c)
				}
				said := func() string {
					message := ""
					for _, name := range []string{"a-1", "a-2"} {
						if _, condition := podutil.GetPodCondition(&c.get("web", name).Status, corev1.PodScheduled); condition != nil {
							message += condition.Message
						}
					}
					return message
				}
				require.Eventually(t, func() bool { return strings.Contains(said(), tc.want) }, patience, 5*time.Millisecond)
				if tc.end != nil { // it has said so before the others are tried again
					c.wantIn("web", "plain", "r1")
				}
				c.wantNowhere("a", 1, 2)
			})
		})
	}
}
