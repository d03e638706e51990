package pods_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestNothingIsHeldOfWhatIsGone: a pod that was refused, and that its tenant deletes, leaves nothing: what is held is
// bounded by the objects in the caches.
func TestNothingIsHeldOfWhatIsGone(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	c.refuse = apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New("exceeded quota: superpool, requested: pods=1"))
	_, err := c.wait(time.Second)
	require.Error(t, err)
	pod := c.tenantPod()
	require.True(t, c.Env.Said(c.key, pod, kind.ReasonFailedCreate))
	require.NotEmpty(t, choice.UntakenOf(c.Env).Of(c.key).Message)

	c.TenantCache[kind.Pod] = nil
	_, err = c.reconcile()
	require.NoError(t, err)
	require.False(t, c.Env.Said(c.key, pod, kind.ReasonFailedCreate))
	require.Empty(t, choice.UntakenOf(c.Env).Of(c.key))
	_, waits := c.Env.QuotaWaiters.Next(c.key.Tenant, c.key.Namespace)
	require.False(t, waits)
}

// chosen is a pool with patience of a minute and a pod that names it. The caches show what the API servers hold when
// refresh is called.
type chosen struct {
	*kindtest.Pool
	t     *testing.T
	clock *testingclock.FakePassiveClock
	key   engine.Key
	pods  engine.Kind
	// refuse is what the super cluster answers to a create of a pod.
	refuse error
}

func newChosen(t *testing.T) *chosen {
	t.Helper()
	c := &chosen{t: t, clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	c.Pool = kindtest.Governed(t, interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, ok := object.(*corev1.Pod); ok && c.refuse != nil {
				return c.refuse
			}
			object.SetUID("super-" + object.GetUID())
			return to.Create(ctx, object, options...)
		},
		Delete: deleteChecked,
	})
	c.Env.Clock, c.Env.PodPatience = c.clock, time.Minute
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.CreationTimestamp = metav1.NewTime(c.clock.Now())
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"}
	})
	c.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build(), kindtest.TenantUID)
	c.key = engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: pod.Namespace, Name: pod.Name}
	c.pods = c.Kind(kind.Pod)
	c.refresh()
	return c
}

// deleteChecked checks preconditions as an API server does.
func deleteChecked(ctx context.Context, to client.WithWatch, object client.Object, options ...client.DeleteOption) error {
	all := &client.DeleteOptions{}
	all.ApplyOptions(options)
	live := &corev1.Pod{}
	if err := to.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
		return err
	}
	conditions := all.Preconditions
	if conditions == nil || ptr.Deref(conditions.UID, live.UID) != live.UID || ptr.Deref(conditions.ResourceVersion, live.ResourceVersion) != live.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("pods"), live.Name, errors.New("precondition"))
	}
	return to.Delete(ctx, object)
}

// refresh lets the caches show what the API servers hold. That of the tenant has pods with the label only.
func (c *chosen) refresh() {
	c.t.Helper()
	c.TenantCache[kind.Pod], c.SuperCache[kind.Pod] = nil, nil
	if pod := c.tenantPod(); pod.Labels[schedulerv1alpha1.LabelSuperCluster] == "r1" {
		c.TenantCache[kind.Pod] = []client.Object{pod}
	}
	if pod := c.superPod(); pod != nil {
		c.SuperCache[kind.Pod] = []client.Object{pod}
	}
}

func (c *chosen) tenantPod() *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(c.t, c.Tenant.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.key.Namespace, Name: c.key.Name}, pod))
	return pod
}

// superPod returns nil if there is none.
func (c *chosen) superPod() *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{}
	err := c.SuperClient.Get(c.t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: c.key.Name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.t, err)
	return pod
}

// reconcile reconciles the pod with caches as they are.
func (c *chosen) reconcile() (time.Duration, error) {
	return c.pods.Reconcile(c.t.Context(), c.key, 20*time.Second)
}

// wait lets time pass, with fresh caches, and reconciles.
func (c *chosen) wait(passes time.Duration) (time.Duration, error) {
	c.clock.SetTime(c.clock.Now().Add(passes))
	c.refresh()
	return c.reconcile()
}

// change writes to the super pod.
func (c *chosen) change(change func(pod *corev1.Pod)) {
	c.t.Helper()
	pod := c.superPod()
	change(pod)
	status := pod.Status
	require.NoError(c.t, c.SuperClient.Update(c.t.Context(), pod))
	pod.Status = status
	require.NoError(c.t, c.SuperClient.Status().Update(c.t.Context(), pod))
}

func unschedulable(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient cpu.",
	}}
}

// wantTakenBack checks what a take-back leaves.
func (c *chosen) wantTakenBack(reason, text string) {
	c.t.Helper()
	pod := c.tenantPod()
	require.NotContains(c.t, pod.Labels, schedulerv1alpha1.LabelSuperCluster)
	require.NotContains(c.t, pod.Annotations, schedulerv1alpha1.AnnotationSuperCluster)
	failure := failedchoice.Of(pod)["r1"]
	require.Equal(c.t, reason, failure.Reason)
	require.True(c.t, failure.At.Time.Equal(c.clock.Now()))
	require.Equal(c.t, int32(1), failure.Count)
	require.Contains(c.t, c.Told(), "Warning SuperClusterFailed Super cluster r1 has not taken the pod for 1m0s, the pod scheduler chooses another one if there is any: "+text)
	require.Equal(c.t, kind.ReasonSuperClusterFailed, pod.Status.Conditions[0].Reason)
	require.Contains(c.t, pod.Status.Conditions[0].Message, text)
	require.Nil(c.t, c.superPod())
}

// TestPodWithoutNode: a super pod that gets no node for a minute is deleted, and then the choice is taken back. However
// long the cache of the tenant's pods is behind that, no other super pod is created.
func TestPodWithoutNode(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	_, err := c.reconcile()
	require.NoError(t, err)
	c.change(unschedulable)
	after, err := c.wait(time.Second)
	require.NoError(t, err)
	require.Equal(t, time.Minute, after)
	after, err = c.wait(59 * time.Second)
	require.NoError(t, err)
	require.Equal(t, time.Second, after)
	require.NotNil(t, c.superPod())

	_, err = c.wait(time.Second)
	require.NoError(t, err)
	require.Nil(t, c.superPod())
	require.Contains(t, c.tenantPod().Labels, schedulerv1alpha1.LabelSuperCluster, "not before the super pod is gone")
	behind := c.TenantCache[kind.Pod]
	_, err = c.wait(0)
	require.NoError(t, err)
	c.wantTakenBack(failedchoice.Unschedulable, "no node takes the pod now: too little cpu is free")

	c.TenantCache[kind.Pod] = []client.Object{behind[0]} // as it was patched
	for range 3 {
		_, err = c.reconcile()
		require.NoError(t, err)
		require.Nil(t, c.superPod())
	}
}

// TestPodOfALeavingNamespace: once all that a namespace has here leaves, what has no node loses its choice, with no
// failure noted, and what has one is bound: nobody else can know that it runs.
func TestPodOfALeavingNamespace(t *testing.T) {
	t.Parallel()
	leaves := assign.Assignment{State: assign.Placed, UID: "ns-uid"}
	for name, tc := range map[string]struct {
		created, runs bool
		patience      time.Duration
	}{
		"not created":            {patience: time.Minute},
		"not created, patient":   {},
		"has no node":            {created: true, patience: time.Minute},
		"has no node, patient":   {created: true},
		"runs, and is not bound": {created: true, runs: true, patience: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChosen(t)
			c.Env.PodPatience = tc.patience
			if tc.created {
				_, err := c.reconcile()
				require.NoError(t, err)
			}
			if tc.runs {
				c.change(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" })
			}
			c.Env.Assignments = kindtest.Assigned{Cached: leaves, Live: leaves}
			for range 3 {
				_, err := c.wait(0)
				require.Equal(t, tc.runs, err != nil, "the super cluster has no such node: %v", err)
			}
			pod := c.tenantPod()
			require.Equal(t, tc.runs, pod.Labels[schedulerv1alpha1.LabelSuperCluster] == "r1")
			require.Equal(t, tc.runs, c.superPod() != nil)
			require.Empty(t, failedchoice.Of(pod))
			if !tc.runs {
				require.Contains(t, c.Told(), "Warning SuperClusterNotPlaced Namespace web leaves super cluster r1: the pod scheduler chooses another one if there is any")
			}
		})
	}
}

// TestLongReasons: of what is said about pods that are not taken no more is kept than an Event has.
func TestLongReasons(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	_, err := c.reconcile()
	require.NoError(t, err)
	c.change(func(pod *corev1.Pod) {
		unschedulable(pod)
		pod.Status.Conditions[0].Message = "0/1 nodes are available: 1 Insufficient " + strings.Repeat("x", 200000)
	})
	for _, after := range []time.Duration{time.Second, time.Minute, 0} {
		_, err = c.wait(after)
		require.NoError(t, err)
	}
	message := c.tenantPod().Status.Conditions[0].Message
	require.Contains(t, message, "no node takes the pod now: too little x")
	require.Less(t, len(message), 2*tenancy.MaxEventNote)
}

// TestPodThatIsTaken: what shows that a pod is taken, or will be, ends the wait.
func TestPodThatIsTaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(pod *corev1.Pod){
		"bound":                         func(pod *corev1.Pod) { pod.Spec.NodeName = "n1" },
		"others are evicted for it":     func(pod *corev1.Pod) { pod.Status.NominatedNodeName = "n1" },
		"held by a gate":                func(pod *corev1.Pod) { pod.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated },
		"nobody has looked at it again": func(pod *corev1.Pod) { pod.Status.Conditions = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChosen(t)
			_, err := c.reconcile()
			require.NoError(t, err)
			c.change(unschedulable)
			_, err = c.wait(time.Second)
			require.NoError(t, err)
			c.change(change)
			_, _ = c.wait(2 * time.Minute) // the fakes know no Bindings
			require.NotNil(t, c.superPod())
			require.Contains(t, c.tenantPod().Labels, schedulerv1alpha1.LabelSuperCluster)
			require.NotContains(t, strings.Join(c.Told(), " "), kind.ReasonSuperClusterFailed)
		})
	}
}

// TestBindIsFaster lets a super pod be bound when it is given up, before the cache shows it.
func TestBindIsFaster(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	_, err := c.reconcile()
	require.NoError(t, err)
	c.change(unschedulable)
	_, err = c.wait(time.Second)
	require.NoError(t, err)
	c.clock.SetTime(c.clock.Now().Add(2 * time.Minute))
	c.change(func(pod *corev1.Pod) { pod.Spec.NodeName = "n1" })
	_, err = c.reconcile()
	wait := &engine.WaitError{}
	require.ErrorAs(t, err, &wait)
	require.NotNil(t, c.superPod())
	c.change(func(pod *corev1.Pod) { pod.Spec.NodeName = "" }) // which nobody can: the wait began anew
	c.SuperCache[kind.Pod] = []client.Object{func() *corev1.Pod { pod := c.superPod(); pod.Spec.NodeName = "n1"; return pod }()}
	_, _ = c.reconcile()
	after, err := c.wait(0)
	require.NoError(t, err)
	require.Equal(t, time.Minute, after)
}

// TestPodThatIsRefused: each refusal that another super cluster may not have moves the pod, and no other.
func TestPodThatIsRefused(t *testing.T) {
	t.Parallel()
	forbidden := func(text string) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New(text))
	}
	for name, tc := range map[string]struct {
		refuse error
		policy func(spec *tenancyv1alpha1.TenantPolicySpec)
		node   *corev1.Node
		// want is the reason, "" if the pod stays.
		want, text string
	}{
		"quota":     {refuse: forbidden("exceeded quota: superpool, requested: pods=1"), want: failedchoice.Quota, text: `pods "web-1" is forbidden: exceeded quota: superpool, requested: pods=1`},
		"admission": {refuse: forbidden("the webhook of super says no"), want: failedchoice.Refused, text: `pods "web-1" is forbidden: the webhook of super says no`},
		"a limit": {
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "pods", Count: 0}}
			}, want: failedchoice.Limit, text: "a limit of the tenant is reached there",
		},
		"cordoned":  {node: &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, want: failedchoice.Closed, text: "it is cordoned"},
		"no answer": {refuse: errors.New("connection refused")},
		"a TenantPolicy": {policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.RuntimeClass = "gvisor"
			spec.Pods.SecurityLevel = "restricted"
		}},
		"none, in a wink": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChosen(t)
			c.refuse = tc.refuse
			if tc.policy != nil {
				c.Tenant.Policy.Set(kindtest.PolicyWith(t, tc.policy))
			}
			c.Env.VirtualNode = func() *corev1.Node { return tc.node }
			after, _ := c.reconcile()
			if tc.want == "" {
				require.Zero(t, after)
				_, _ = c.wait(2 * time.Minute)
				_, _ = c.wait(0)
				require.Contains(t, c.tenantPod().Labels, schedulerv1alpha1.LabelSuperCluster)
				return
			}
			require.Equal(t, time.Minute, after)
			_, err := c.wait(time.Minute)
			require.NoError(t, err)
			c.wantTakenBack(tc.want, tc.text)
		})
	}
}

// TestAnotherProcess: a process whose list of the tenant's pods is older than the take-back of the one before creates
// no super pod, nor does one that reads a pod that is bound by now.
func TestAnotherProcess(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	c.refuse = apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New("no"))
	_, err := c.reconcile()
	require.Error(t, err)
	_, err = c.wait(time.Minute)
	require.NoError(t, err)
	c.refuse = nil
	stale := c.tenantPod()
	stale.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
	stale.ResourceVersion = "1"

	next := newChosen(t)
	next.Tenant.Client, next.clock = c.Tenant.Client, c.clock
	next.Env.Clock = c.clock
	next.TenantCache[kind.Pod] = []client.Object{stale}
	_, err = next.reconcile()
	require.ErrorContains(t, err, "the cache of the tenant's pods")
	require.Nil(t, next.superPod())
}

// TestChoiceIsReadLive: a pod that another process may have known is read before it gets a super pod, however many wait
// before it; one that was created since this process watches the tenant is not, however long it has waited.
func TestChoiceIsReadLive(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// watched is how long before the pod was created this process began to watch the tenant, and waited how old the
		// pod is.
		watched, waited time.Duration
		want            int
	}{
		"young, and older than the watch":    {watched: -time.Second, waited: 2 * time.Second},
		"old, and older than the watch":      {watched: -time.Second, waited: 3 * time.Second, want: 1},
		"old, and hardly younger":            {watched: 9 * time.Second, waited: time.Minute, want: 1},
		"old, and younger than the watch":    {watched: 10 * time.Second, waited: time.Minute},
		"from the future, and younger, too":  {watched: time.Minute, waited: -time.Second, want: 1},
		"nobody knows since when it watches": {waited: time.Minute, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChosen(t)
			if tc.watched != 0 {
				c.Tenant.Since = c.clock.Now().Add(-tc.watched)
			}
			c.clock.SetTime(c.clock.Now().Add(tc.waited))
			reads := 0
			c.Tenant.Client = interceptor.NewClient(c.Tenant.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, ok := object.(*corev1.Pod); ok {
						reads++
					}
					return to.Get(ctx, name, object, options...)
				},
			})
			_, err := c.reconcile()
			require.NoError(t, err)
			require.Equal(t, tc.want, reads)
			require.NotNil(t, c.superPod())
		})
	}
}

// TestBindingIsCreatedOnce: a super pod that changes before the tenant's cache shows the Binding does not lead to
// another one, until that takes too long; a pod of the same name that is created since is bound.
func TestBindingIsCreatedOnce(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	_, err := c.reconcile()
	require.NoError(t, err)
	c.refresh()
	bound := 0
	c.Tenant.Client = interceptor.NewClient(c.Tenant.Client.(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			bound++
			return nil
		},
	})
	c.SuperCache[kind.Node] = []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	want := func(passes time.Duration, want int) {
		t.Helper()
		c.clock.SetTime(c.clock.Now().Add(passes))
		_, err := c.reconcile()
		require.NoError(t, err)
		require.Equal(t, want, bound)
	}
	c.change(func(pod *corev1.Pod) { pod.Spec.NodeName = "n1" })
	c.refresh()
	want(0, 1)
	want(4*time.Second, 1)
	want(time.Second, 2)
	c.Env.Forget(kindtest.ClusterKey)
	want(0, 3)
	other := c.tenantPod()
	other.UID = "another"
	super := c.superPod()
	tenancy.SetOwner(super, kindtest.OwnerOf(other.UID))
	c.TenantCache[kind.Pod], c.SuperCache[kind.Pod] = []client.Object{other}, []client.Object{super}
	want(0, 4)
}

// TestClockOfTheTenantIsAhead: the age of a pod by the clock of the tenant's API server proves nothing, so a pod that
// seems to come from the future is read before it gets a super pod.
func TestClockOfTheTenantIsAhead(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	pod := c.tenantPod()
	pod.CreationTimestamp = metav1.NewTime(c.clock.Now().Add(time.Hour))
	c.TenantCache[kind.Pod] = []client.Object{pod.DeepCopy()}
	delete(pod.Labels, schedulerv1alpha1.LabelSuperCluster) // taken back since
	require.NoError(t, c.Tenant.Client.Update(t.Context(), pod))
	_, err := c.reconcile()
	require.ErrorContains(t, err, "the cache of the tenant's pods")
	require.Nil(t, c.superPod())
}

// TestChosenAgainAfterALostAnswer: the answer to a take-back is lost, and the pod names this super cluster again before
// the process sees it without. It is another choice, which the super cluster may take.
func TestChosenAgainAfterALostAnswer(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	c.refuse = apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New("no"))
	_, err := c.reconcile()
	require.Error(t, err)
	answers := c.Tenant.Client
	c.Tenant.Client = interceptor.NewClient(answers.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, to client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			require.NoError(t, to.Patch(ctx, object, patch, options...))
			return errors.New("connection lost")
		},
	})
	_, err = c.wait(time.Minute)
	require.ErrorContains(t, err, "connection lost")
	require.NotContains(t, c.tenantPod().Labels, schedulerv1alpha1.LabelSuperCluster)

	c.Tenant.Client, c.refuse = answers, nil
	again := c.tenantPod()
	again.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
	again.Annotations[schedulerv1alpha1.AnnotationSuperCluster] = "r1"
	require.NoError(t, answers.Update(t.Context(), again))
	_, err = c.wait(time.Second)
	require.NoError(t, err)
	require.NotNil(t, c.superPod())
	require.Contains(t, c.tenantPod().Labels, schedulerv1alpha1.LabelSuperCluster)
}

// TestPatienceGrows: a pod that has failed before waits longer, and a tenant's pods are taken back one by one.
func TestPatienceGrows(t *testing.T) {
	t.Parallel()
	c := newChosen(t)
	pod := c.tenantPod()
	pod.Annotations[schedulerv1alpha1.AnnotationFailedSuperClusters] = failedchoice.Failures(nil).Plus("r2", failedchoice.Quota, c.clock.Now()).String()
	require.NoError(t, c.Tenant.Client.Update(t.Context(), pod))
	c.refresh()
	c.refuse = apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New("no"))
	after, err := c.reconcile()
	require.Error(t, err)
	require.Equal(t, 2*time.Minute, after)
	_, err = c.wait(2 * time.Minute)
	require.NoError(t, err)
	require.Len(t, failedchoice.Of(c.tenantPod()), 2)
}
