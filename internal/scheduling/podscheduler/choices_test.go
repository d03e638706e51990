package podscheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/plugins/superclusterbinder"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// asking writes what a tenant writes onto a pod that it wants in a super cluster.
func asking(superCluster string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: superCluster}
		p.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: superCluster}
		// Nor does a forged condition help.
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: superclusterbinder.ReasonSuperClusterChosen}}
	}
}

// wantEvent waits for an Event of vc-scheduler with that reason, which must contain all texts. Those with other reasons
// may come before: several pods wait.
func (c *tenantControlPlane) wantEvent(reason string, texts ...string) {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case event := <-c.recorder.Events:
			if !strings.Contains(event, " "+reason+" ") {
				continue
			}
			for _, text := range texts {
				require.Contains(c.t, event, text)
			}
			return
		case <-deadline:
			require.Fail(c.t, "no Event", "%s %v", reason, texts)
		}
	}
}

// wantGranted waits until kube-scheduler counts a pod in a super cluster, as confirmed by the informer.
func (c *tenantControlPlane) wantGranted(namespace, name, superCluster string) {
	c.t.Helper()
	c.wantIn(namespace, name, superCluster)
	require.Eventually(c.t, func() bool {
		pod, err := c.sched.Cache.GetPod(podOf(namespace, name, "1m"))
		if err != nil || pod.Spec.NodeName != superCluster {
			return false
		}
		assumed, err := c.sched.Cache.IsAssumedPod(pod)
		return err == nil && !assumed
	}, patience, 5*time.Millisecond, "pod %s: want it counted in %s", name, superCluster)
}

// TestSelfChosenSuperCluster: a pod gets the super cluster that its tenant wrote onto it if the scheduler's filters let
// it stand, and is scheduled like any other if not.
func TestSelfChosenSuperCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		r1     func(*corev1.Node)
		policy func(*tenancyv1alpha1.TenantPolicySpec)
		cpu    string
		asks   string
		change func(*corev1.Pod)
		// want is where the pod goes, "" if it waits. event is what the tenant is told, "" for nothing.
		want, event string
	}{
		"it fits":                  {cpu: "1", asks: "r2", want: "r2"},
		"it fits, cordoned beside": {cpu: "1", asks: "r2", r1: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: "r2"},
		"cordoned": {
			cpu: "1", asks: "r1", r1: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: "r2", event: "1 cordoned",
		},
		"tainted": {
			cpu: "1", asks: "r1", want: "r2", event: "1 tainted by the operator (maintenance)",
			r1: func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule})
			},
		},
		"no room":          {cpu: "3", asks: "r1", want: "r2", event: "1 holds no room of namespace web: 0 of 2 cpu used"},
		"no room anywhere": {cpu: "5", asks: "r1", event: "cpu"},
		"a profile that is not allowed": {
			cpu: "1", asks: "r1", event: "is not allowed",
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.PodSchedulers = []string{"packing"} },
		},
		"a scheduler of the tenant": {
			cpu: "1", asks: "r1", event: `schedulerName "own"`, change: func(p *corev1.Pod) { p.Spec.SchedulerName = "own" },
		},
		"no pod may wait": {
			cpu: "1", asks: "r1", want: "r1", policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.PendingPods = 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c := newTenant(t)
				if tc.r1 == nil {
					tc.r1 = func(*corev1.Node) {}
				}
				if tc.policy != nil {
					c.policy.Set(schedulingtest.PolicyWith(t, tc.policy))
				}
				c.cluster("r1", tc.r1)
				c.cluster("r2")
				c.place("web", "r1", "2")
				c.place("web", "r2", "4")
				change := func(*corev1.Pod) {}
				if tc.change != nil {
					change = tc.change
				}
				c.create("web", "pod", tc.cpu, asking(tc.asks), change)
				if tc.event != "" {
					c.wantEvent(reasonSuperClusterNotGranted, tc.asks, tc.event)
				}
				if tc.want == "" {
					c.wantIn("web", "pod", "")
					return
				}
				c.wantGranted("web", "pod", tc.want)
				require.Empty(t, c.told())
			})
		})
	}
}

// TestSelfChosenSuperClusterEvictsNobody: a pod that asks for a full super cluster evicts no pod of lower priority
// there while another super cluster has room.
func TestSelfChosenSuperClusterEvictsNobody(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1")
		c.place("web", "r1", "1")
		c.create("web", "low", "1")
		c.wantGranted("web", "low", "r1")
		c.cluster("r2")
		c.place("web", "r2", "1")
		high := int32(1000)
		c.create("web", "high", "1", asking("r1"), func(p *corev1.Pod) { p.Spec.Priority = &high })
		c.wantGranted("web", "high", "r2")
		c.get("web", "low")
	})
}

// TestChoicesOfAWaitingPod: what a tenant writes onto a pod that was scheduled, or refused, is judged anew.
func TestChoicesOfAWaitingPod(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1")
		c.cluster("r2")
		c.place("web", "r1", "1")
		c.place("web", "r2", "1")
		c.create("web", "moves", "1")
		c.wantGranted("web", "moves", "r1")
		write := func(name, superCluster string) {
			pod := c.get("web", name)
			asking(superCluster)(pod)
			_, err := c.api.CoreV1().Pods("web").Update(c.ctx, pod, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		write("moves", "r2")
		c.wantGranted("web", "moves", "r2")
		c.create("web", "other", "1")
		c.wantGranted("web", "other", "r1")
		write("other", "r2")
		c.wantEvent(reasonSuperClusterNotGranted)
		c.wantGranted("web", "other", "r1")
		write("other", "r2")
		c.wantEvent(reasonSuperClusterNotGranted)
		c.wantGranted("web", "other", "r1")
	})
}

// TestRestartKeepsSuperClusters: pods that wait for a node of their super cluster, and may run there, stay there with a
// new process, also where the super cluster takes no new pods any more. So do pods that are bound.
func TestRestartKeepsSuperClusters(t *testing.T) {
	for name, cordoned := range map[string]bool{"as before": false, "cordoned meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c := newTenant(t)
				c.cluster("r1")
				c.cluster("r2")
				c.place("web", "r1", "2")
				c.create("web", "waits", "1")
				c.create("web", "bound", "1")
				c.wantGranted("web", "waits", "r1")
				c.wantGranted("web", "bound", "r1")
				c.place("web", "r2", "3")
				c.restart(func() {
					bound := c.get("web", "bound")
					bound.Spec.NodeName = "r1.node-1"
					builders.Bind(bound)
					_, err := c.api.CoreV1().Pods("web").Update(c.ctx, bound, metav1.UpdateOptions{})
					require.NoError(t, err)
					c.create("web", "late", "2")
					c.virtual["r1"].Spec.Unschedulable = cordoned
					c.setPendingPods(1)
				})
				c.wantGranted("web", "late", "r2")
				c.wantGranted("web", "waits", "r1")
				c.wantGranted("web", "bound", "r1")
				require.Empty(t, c.told())
			})
		})
	}
}

// TestChoicesOfTheProcessBefore: what label and annotation of a pod that was there before name is chosen, as long as
// this process has not chosen for it.
func TestChoicesOfTheProcessBefore(t *testing.T) {
	t.Parallel()
	labeled := func(superCluster, label string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
		if superCluster != "" {
			pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: superCluster}
			pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: label}
		}
		return pod
	}
	for _, tc := range []struct {
		name string
		// first is the pod as it was listed first, nil if it came later; does is what happens then.
		first *corev1.Pod
		does  func(*Choices)
		now   *corev1.Pod
		want  bool
	}{
		{name: "it came later", now: labeled("r1", "r1")},
		{name: "the list has it", first: labeled("r1", "r1"), now: labeled("r1", "r1"), want: true},
		{name: "it only asks", first: labeled("r1", ""), now: labeled("r1", "")},
		{name: "it asks for another one", first: labeled("r1", "r2"), now: labeled("r1", "r2")},
		{name: "what was written is late", first: labeled("", ""), now: labeled("r1", "r1"), want: true},
		{name: "the tenant changes it", first: labeled("r1", "r1"), now: labeled("r2", "r2")},
		{name: "this process chose another one", first: labeled("", ""), does: func(c *Choices) { c.Chose(labeled("", ""), "r2") }, now: labeled("r1", "r1")},
		{name: "this process has taken it back", first: labeled("r1", "r1"), does: func(c *Choices) { c.takeOff("1") }, now: labeled("r1", "r1")},
		{name: "it was bound", first: labeled("r1", "r1"), does: func(c *Choices) { c.forget(labeled("", "")) }, now: labeled("r1", "r1")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := NewChoices()
			if tc.first != nil {
				c.isChosen(tc.first, tc.first.Annotations[schedulerv1alpha1.AnnotationSuperCluster])
			}
			c.Listed()
			if tc.does != nil {
				tc.does(c)
			}
			require.Equal(t, tc.want, c.isChosen(tc.now, tc.now.Annotations[schedulerv1alpha1.AnnotationSuperCluster]))
		})
	}
}

// deaf returns a clientset whose watch of pods tells of none that has a super cluster and no node, as if each such
// state was over before a list: API servers end watches whenever they like.
func deaf() *fake.Clientset {
	api := newAPI()
	api.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		all, err := api.Tracker().Watch(action.GetResource(), action.GetNamespace())
		return true, watch.Filter(all, func(event watch.Event) (watch.Event, bool) {
			pod, isPod := event.Object.(*corev1.Pod)
			return event, !isPod || event.Type == watch.Deleted || pod.Labels[schedulerv1alpha1.LabelSuperCluster] == ""
		}), err
	})
	return api
}

// TestChoiceThatNobodySaw: a choice that is taken off again before the informer has seen it leaves no pod behind, which
// would wait for ever, and no room that nobody has.
func TestChoiceThatNobodySaw(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenantWith(t, func(c *tenantControlPlane) { c.api = deaf() })
		c.cluster("r1")
		c.cluster("r2")
		c.place("web", "r1", "1")
		c.create("web", "pod", "1")
		c.wantIn("web", "pod", "r1")
		c.place("web", "r2", "1")
		c.takenBack("web", "pod", "r1")
		c.wantIn("web", "pod", "r2")
		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "pod", metav1.DeleteOptions{}))
		c.create("web", "one", "1")
		c.create("web", "two", "1")
		c.wantChosen("web", "one")
		c.wantChosen("web", "two")
	})
}

// TestMissedChoices: which choices of this process the informer has missed, and which the binder learns to be void, in
// any order of the answer to the write and of what the informer sees.
func TestMissedChoices(t *testing.T) {
	t.Parallel()
	pod := func(version, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: version, Labels: map[string]string{schedulerv1alpha1.LabelSuperCluster: node}},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	type world struct {
		*Choices
		// settle are those of the choices, in their order.
		settle []func(*corev1.Pod) bool
		// undo is that of takeOff.
		undo func()
	}
	type step func(*world) string
	chose := func(superCluster string) step {
		return func(w *world) string {
			w.settle = append(w.settle, w.Chose(pod("1", ""), superCluster))
			return ""
		}
	}
	answer := func(i int, version string) step {
		return func(w *world) string {
			written := pod(version, "")
			if version == "" {
				written = nil
			}
			if w.settle[i](written) {
				return "stands"
			}
			return "void"
		}
	}
	// sees lets the informer pass on a pod without a super cluster that had none before, and loses one that had r1.
	sees := func(version string) step {
		return func(w *world) string {
			defer w.seen(pod(version, ""))
			return w.missed(pod("1", ""), pod(version, ""))
		}
	}
	loses := func(w *world) string {
		defer w.seen(pod("12", ""))
		return w.missed(pod("10", "r1"), pod("12", ""))
	}
	gone := func(w *world) string {
		defer w.forget(pod("1", ""))
		return w.missed(pod("1", ""), nil)
	}
	bound := func(w *world) string {
		w.forget(pod("1", ""))
		return ""
	}
	shows := func(w *world) string {
		w.seen(pod("10", "r1"))
		return ""
	}
	asks := func(w *world) string {
		asking := pod("10", "r1")
		asking.Labels = nil
		w.seen(asking)
		return ""
	}
	ends := func(w *world) string {
		defer w.forget(pod("10", "r1"))
		return w.missed(pod("10", "r1"), nil)
	}
	comesBack := func(w *world) string {
		w.seen(pod("12", ""))
		return ""
	}
	takesOff := func(w *world) string {
		w.undo = w.takeOff("1")
		return ""
	}
	fallsShort := func(w *world) string {
		w.undo()
		return ""
	}
	writes, succeeds, fails := chose("r1"), answer(0, "10"), answer(0, "")
	for _, tc := range []struct {
		name  string
		steps []step
		want  []string
	}{
		{name: "the informer is behind", steps: []step{writes, succeeds, sees("9")}, want: []string{"", "stands", ""}},
		{name: "it has missed the choice", steps: []step{writes, succeeds, sees("12"), sees("13")}, want: []string{"", "stands", "r1", ""}},
		{name: "it has seen it", steps: []step{writes, succeeds, loses, sees("13")}, want: []string{"", "stands", "", ""}},
		{name: "the pod is gone", steps: []step{writes, succeeds, gone, gone}, want: []string{"", "stands", "r1", ""}},
		{name: "the pod was gone before", steps: []step{gone, writes, succeeds, fails, gone}, want: []string{"", "", "stands", "void", ""}},
		{name: "the answer is late, what was seen is older", steps: []step{writes, sees("9"), succeeds}, want: []string{"", "", "stands"}},
		{name: "the answer is late, it was taken off", steps: []step{writes, sees("12"), succeeds, sees("13")}, want: []string{"", "", "void", ""}},
		{name: "the answer is late, that was seen", steps: []step{writes, loses, succeeds}, want: []string{"", "", "stands"}},
		{name: "the answer is late, the pod is gone", steps: []step{writes, gone, succeeds, gone}, want: []string{"", "", "void", ""}},
		{name: "the answer is late, the pod has a node", steps: []step{writes, bound, succeeds}, want: []string{"", "", "stands"}},
		{name: "the write fails, the pod is gone", steps: []step{writes, gone, fails, gone}, want: []string{"", "", "void", ""}},
		{
			name: "an answer to the choice before", steps: []step{writes, loses, chose("r2"), succeeds, sees("13"), answer(1, "14"), sees("15")},
			want: []string{"", "", "", "stands", "", "stands", "r2"},
		},
		{
			name: "a failure of the choice before", steps: []step{writes, loses, chose("r2"), fails, answer(1, "14"), gone},
			want: []string{"", "", "", "stands", "stands", "r2"},
		},
		{name: "it is taken off before the answer", steps: []step{writes, takesOff, succeeds}, want: []string{"", "", "void"}},
		{name: "it is taken off before it is seen", steps: []step{writes, succeeds, takesOff, sees("9"), sees("10")}, want: []string{"", "stands", "", "", "r1"}},
		{name: "it is taken off once it was seen", steps: []step{writes, succeeds, takesOff, loses, sees("13")}, want: []string{"", "stands", "", "", ""}},
		{name: "the answer is lost, the pod has a node", steps: []step{writes, bound, fails}, want: []string{"", "", "stands"}},
		{name: "the answer is late, the pod has ended on a node", steps: []step{writes, bound, gone, succeeds, fails}, want: []string{"", "", "", "stands", "stands"}},
		{name: "the answer is lost, that was seen", steps: []step{writes, shows, fails, loses, sees("13")}, want: []string{"", "", "stands", "", ""}},
		{name: "it fails, the pod only asks", steps: []step{writes, asks, fails}, want: []string{"", "", "void"}},
		{name: "the answer is lost, the pod has ended", steps: []step{writes, shows, ends, fails, gone}, want: []string{"", "", "", "stands", ""}},
		{name: "the pod comes back without it", steps: []step{gone, writes, comesBack, succeeds}, want: []string{"", "", "", "void"}},
		{name: "it is not taken off after all", steps: []step{writes, succeeds, takesOff, fallsShort, sees("10"), sees("12")}, want: []string{"", "stands", "", "", "", "r1"}},
		{name: "versions that say nothing", steps: []step{writes, answer(0, "x"), sees("y"), gone}, want: []string{"", "stands", "", "r1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := &world{Choices: NewChoices()}
			var got []string
			for _, step := range tc.steps {
				got = append(got, step(w))
			}
			require.Equal(t, tc.want, got)
		})
	}
}
