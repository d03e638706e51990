package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"
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
	"github.com/superpool/superpool/test/builders/kindtest"
)

// chosenClaim is a pool with patience of a minute and a claim whose home is it, and that has the claim's StorageClass.
// The caches show what the API servers hold when refresh is called.
type chosenClaim struct {
	*kindtest.Pool
	t     *testing.T
	clock *testingclock.FakePassiveClock
	// refuse is what the super cluster answers to a create of a claim.
	refuse error
}

var (
	claimKey  = engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: "data"}
	superData = client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "data"}
	errQuota  = apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New("exceeded quota: operators, requested: requests.storage=1Gi"))
)

func newChosenClaim(t *testing.T, change ...kindtest.ClaimChange) *chosenClaim {
	t.Helper()
	c := &chosenClaim{t: t, clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	c.Pool = kindtest.Governed(t, interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, ok := object.(*corev1.PersistentVolumeClaim); ok && c.refuse != nil {
				return c.refuse
			}
			object.SetUID("super-uid")
			return to.Create(ctx, object, options...)
		},
	})
	c.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.PersistentVolumeClaims, spec.Pods.StorageClasses = 1, []string{"fast"}
		spec.Limits.Storage = resource.MustParse("1Gi")
		spec.Limits.Objects = append(spec.Limits.Objects, tenancyv1alpha1.ObjectLimit{
			Resource: "persistentvolumeclaims", Count: 1, Bytes: resource.MustParse("1Mi"),
		})
		spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim")
	}))
	c.Env.Clock, c.Env.PodPatience, c.Env.Resync = c.clock, time.Minute, func([]engine.Key) {}
	require.NoError(t, c.SuperClient.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}))
	claim := kindtest.TenantClaim("uid", append([]kindtest.ClaimChange{kindtest.Home("r1")}, change...)...)
	c.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(claim).Build(), kindtest.TenantUID)
	c.refresh()
	return c
}

// refresh lets the caches show what the API servers hold.
func (c *chosenClaim) refresh() {
	c.t.Helper()
	claimShown(c.t, c.Pool)
	c.SuperCache[kind.Claim], c.SuperCache[kind.StorageClass] = nil, nil
	if claim := c.superClaim(); claim != nil {
		c.SuperCache[kind.Claim] = []client.Object{claim}
	}
	class := &storagev1.StorageClass{}
	if c.SuperClient.Get(c.t.Context(), client.ObjectKey{Name: "fast"}, class) == nil {
		c.SuperCache[kind.StorageClass] = []client.Object{class}
	}
}

// superClaim returns nil if there is none.
func (c *chosenClaim) superClaim() *corev1.PersistentVolumeClaim {
	c.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	err := c.SuperClient.Get(c.t.Context(), superData, claim)
	require.NoError(c.t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return claim
}

// wait lets time pass, with fresh caches, and reconciles. A refusal and a wait are no failures.
func (c *chosenClaim) wait(passes time.Duration) time.Duration {
	c.t.Helper()
	c.clock.SetTime(c.clock.Now().Add(passes))
	c.refresh()
	after, err := c.Kind(kind.Claim).Reconcile(c.t.Context(), claimKey, time.Minute)
	wait := &engine.WaitError{}
	require.True(c.t, err == nil || engine.IsRefusal(err) || errors.As(err, &wait), "%v", err)
	return after
}

// withoutClass takes the StorageClass from the super cluster.
func (c *chosenClaim) withoutClass() {
	c.t.Helper()
	require.NoError(c.t, c.SuperClient.Delete(c.t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}))
}

// changeClass changes the StorageClass of the super cluster.
func (c *chosenClaim) changeClass(change func(class *storagev1.StorageClass)) {
	c.t.Helper()
	class := &storagev1.StorageClass{}
	require.NoError(c.t, c.SuperClient.Get(c.t.Context(), client.ObjectKey{Name: "fast"}, class))
	change(class)
	require.NoError(c.t, c.SuperClient.Update(c.t.Context(), class))
}

// wantTakenBack checks what a take-back leaves, and that the finalizer goes after it.
func (c *chosenClaim) wantTakenBack(reason, text string) {
	c.t.Helper()
	claim := claimShown(c.t, c.Pool)
	require.NotContains(c.t, claim.Annotations, schedulerv1alpha1.AnnotationSuperCluster)
	failure := failedchoice.Of(claim)["r1"]
	require.Equal(c.t, reason, failure.Reason)
	require.True(c.t, failure.At.Time.Equal(c.clock.Now()))
	require.Contains(c.t, c.Told(), "Warning SuperClusterFailed Super cluster r1 has not taken the claim for 1m0s, the pod scheduler chooses another one if there is any: "+text)
	require.Nil(c.t, c.superClaim())
	c.wait(0)
	require.Empty(c.t, claimShown(c.t, c.Pool).Finalizers)
}

// TestClaimThatIsRefused: a claim that the super cluster has not made for a minute has no home then, whoever refuses
// it, and one that the tenant's policy forbids keeps it: it is forbidden everywhere.
func TestClaimThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change       kindtest.ClaimChange
		spoil        func(c *chosenClaim)
		reason, text string
	}{
		"quota": {
			spoil: func(c *chosenClaim) { c.refuse = errQuota }, reason: failedchoice.Quota,
			text: `persistentvolumeclaims "data" is forbidden: exceeded quota: operators, requested: requests.storage=1Gi`,
		},
		"admission": {
			spoil: func(c *chosenClaim) {
				c.refuse = apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New("no claims here"))
			},
			reason: failedchoice.Refused, text: `persistentvolumeclaims "data" is forbidden: no claims here`,
		},
		"a limit": {
			spoil: func(c *chosenClaim) {
				other := kindtest.SuperClaim("other")
				other.Name = "other"
				c.Env.Changed(kind.Change{Kind: kind.Claim, Side: kind.SuperSide, Current: other})
			},
			reason: failedchoice.Limit, text: "a limit of the tenant is reached there",
		},
		"no class":             {spoil: (*chosenClaim).withoutClass, reason: failedchoice.NoClass, text: "it has no StorageClass fast"},
		"what it cannot reach": {spoil: func(c *chosenClaim) { c.refuse = errors.New("no answer") }},
		"policy": {
			change: func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = ptr.To("other") },
			spoil: func(c *chosenClaim) {
				require.NoError(t, c.SuperClient.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}}))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChosenClaim(t, tc.change)
			tc.spoil(c)
			if tc.reason == "" {
				for range 3 {
					c.clock.SetTime(c.clock.Now().Add(time.Minute))
					c.refresh()
					after, _ := c.Kind(kind.Claim).Reconcile(t.Context(), claimKey, time.Minute)
					require.Zero(t, after)
				}
				require.Contains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
				return
			}
			require.Equal(t, time.Minute, c.wait(0))
			require.Equal(t, time.Second, c.wait(59*time.Second))
			require.Contains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
			c.wait(time.Second)
			c.wantTakenBack(tc.reason, tc.text)
		})
	}
}

// TestClaimThatIsMadeAfterAll: what is there is not taken back, whatever was refused before, and it has all its time
// again if it is lost before it has a volume.
func TestClaimThatIsMadeAfterAll(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t)
	c.refuse = errQuota
	c.wait(0)
	c.wait(30 * time.Second)
	c.refuse = nil
	require.Zero(t, c.wait(29*time.Second))
	require.NotNil(t, c.superClaim())
	for range 3 {
		require.Zero(t, c.wait(time.Minute))
	}
	require.NotNil(t, c.superClaim())
	require.NoError(t, c.SuperClient.Delete(t.Context(), c.superClaim()))
	c.refuse = errQuota
	require.Equal(t, time.Minute, c.wait(0))

	// The last look, which the cache does not show, finds it.
	behind := c.SuperCache[kind.Claim]
	c.refuse = nil
	require.NoError(t, c.SuperClient.Create(t.Context(), kindtest.SuperClaim("uid", func(claim *corev1.PersistentVolumeClaim) { claim.ResourceVersion = "" })))
	c.clock.SetTime(c.clock.Now().Add(time.Minute))
	c.SuperCache[kind.Claim] = behind
	_, err := c.Kind(kind.Claim).Reconcile(t.Context(), claimKey, time.Minute)
	wait := &engine.WaitError{}
	require.ErrorAs(t, err, &wait)
	require.Contains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
}

// TestClaimWithoutItsClass: a super claim that waits for a StorageClass which is gone is deleted, and then the home is
// taken back. One that has a volume stays, and so does one of a class that is there.
func TestClaimWithoutItsClass(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t)
	c.wait(0)
	require.NotNil(t, c.superClaim())
	c.withoutClass()
	require.Equal(t, time.Minute, c.wait(0))
	c.wait(time.Minute)
	require.Nil(t, c.superClaim())
	require.Contains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster, "not before the super claim is gone")
	c.wait(0)
	c.wantTakenBack(failedchoice.NoClass, "it has no StorageClass fast")

	// Bound, or in a cache that is behind.
	for name, change := range map[string]func(c *chosenClaim){
		"bound": func(c *chosenClaim) {
			claim := c.superClaim()
			claim.Spec.VolumeName = "pv"
			require.NoError(t, c.SuperClient.Update(t.Context(), claim))
		},
		"the class is there": func(c *chosenClaim) {
			require.NoError(t, c.SuperClient.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}))
		},
	} {
		c := newChosenClaim(t)
		c.wait(0)
		c.withoutClass()
		c.wait(0)
		behind := kindtest.Cache{kind.Claim: c.SuperCache[kind.Claim]}
		change(c)
		c.clock.SetTime(c.clock.Now().Add(time.Minute))
		c.SuperCache[kind.Claim], c.SuperCache[kind.StorageClass] = behind[kind.Claim], nil
		_, _ = c.Kind(kind.Claim).Reconcile(t.Context(), claimKey, time.Minute)
		require.NotNil(t, c.superClaim(), name)
	}
}

// TestClaimThatGoesSlowly: one whose super claim others hold while it is being deleted was given up, and has no time
// again once that is gone.
func TestClaimThatGoesSlowly(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t)
	c.wait(0)
	held := c.superClaim()
	held.Finalizers = []string{"kubernetes.io/pvc-protection"}
	require.NoError(t, c.SuperClient.Update(t.Context(), held))
	c.withoutClass()
	c.wait(0)
	c.wait(time.Minute)
	require.NotNil(t, c.superClaim().DeletionTimestamp)
	require.Zero(t, c.wait(0), "its end enqueues the key")
	held = c.superClaim()
	held.Finalizers = nil
	require.NoError(t, c.SuperClient.Update(t.Context(), held))
	require.Nil(t, c.superClaim())
	c.wait(0)
	c.wantTakenBack(failedchoice.NoClass, "it has no StorageClass fast")
}

// TestClassThatNobodyLists: what a tenant writes into its claim costs the super cluster no read.
func TestClassThatNobodyLists(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]int{"other": 0, "fast": 1} {
		c := newChosenClaim(t, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &class })
		c.withoutClass()
		reads := 0
		super, ok := c.Env.Super.(client.WithWatch)
		require.True(t, ok)
		c.Env.Super = interceptor.NewClient(super, interceptor.Funcs{
			Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, ok := object.(*storagev1.StorageClass); ok {
					reads++
				}
				return to.Get(ctx, name, object, options...)
			},
		})
		c.wait(0)
		require.Equal(t, want, reads, class)
		require.Nil(t, c.superClaim(), class)
	}
}

// TestClaimOfALeavingNamespace: once all that a namespace has here leaves, or has left, a claim without volume has no
// home, whether or not it is here.
func TestClaimOfALeavingNamespace(t *testing.T) {
	t.Parallel()
	stays := assign.Assignment{State: assign.Placed, UID: "ns-uid", Reserved: corev1.ResourceList{}}
	for name, tc := range map[string]struct{ cached, live assign.Assignment }{
		"all leaves":        {cached: assign.Assignment{State: assign.Placed, UID: "ns-uid"}, live: assign.Assignment{State: assign.Placed, UID: "ns-uid"}},
		"all has left":      {cached: assign.Assignment{State: assign.Leaving, UID: "ns-uid"}},
		"Services stay":     {cached: assign.Assignment{State: assign.ServicesOnly, UID: "ns-uid"}},
		"the rest has gone": {cached: assign.Assignment{State: assign.Placed, UID: "ns-uid"}},
	} {
		for _, made := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, made %t", name, made), func(t *testing.T) {
				t.Parallel()
				c := newChosenClaim(t)
				c.Env.PodPatience = 0
				if made {
					c.wait(0)
				}
				before := c.superClaim()
				require.Equal(t, made, before != nil)
				known := c.Env.Assignments
				c.Env.Assignments = kindtest.Assigned{Assignments: known, Cached: tc.cached, Live: stays}
				c.wait(0)
				require.Contains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster, "the cache is behind")
				require.Equal(t, made, c.superClaim() != nil, "the cache is behind")
				c.Env.Assignments = kindtest.Assigned{Assignments: known, Cached: tc.cached, Live: tc.live}
				c.wait(0)
				c.wait(0)
				require.Nil(t, c.superClaim())
				require.NotContains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
				require.Empty(t, failedchoice.Of(claimShown(t, c.Pool)))
				require.Contains(t, c.Told(), "Warning SuperClusterNotPlaced Namespace web leaves super cluster r1: the pod scheduler chooses another one if there is any")
			})
		}
	}
}

// TestHomeIsReadLive: however far behind the cache of the tenant's claims is, nothing is made for one whose home was
// taken back, by this process or the one before it.
func TestHomeIsReadLive(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t)
	c.refuse = errQuota
	c.wait(0)
	c.wait(time.Minute)
	c.refuse = nil
	require.NotContains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
	behind := kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.Witnessed)
	for _, process := range []string{"this one", "the next"} {
		c.TenantCache[kind.Claim] = []client.Object{behind}
		_, err := c.Kind(kind.Claim).Reconcile(t.Context(), claimKey, time.Minute)
		wait := &engine.WaitError{}
		require.ErrorAs(t, err, &wait, process)
		require.Nil(t, c.superClaim(), process)
		c.Env.Forget(kindtest.ClusterKey)
	}
}

// TestClaimOfASnapshot: where its snapshot is, a claim stays.
func TestClaimOfASnapshot(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"}
	})
	c.withoutClass()
	for range 3 {
		require.Zero(t, c.wait(time.Minute))
	}
	require.Contains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
}

// podOf lets the tenant have a pod of its claim, too, which failed before in another super cluster: its patience is two
// minutes. It returns what reconciles that, and returns the pod.
func (c *chosenClaim) podOf() func() (*corev1.Pod, error) {
	c.t.Helper()
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.CreationTimestamp = metav1.NewTime(c.clock.Now().Add(-time.Hour))
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Annotations = map[string]string{
			schedulerv1alpha1.AnnotationSuperCluster:        "r1",
			schedulerv1alpha1.AnnotationFailedSuperClusters: failedchoice.Failures(nil).Plus("r2", failedchoice.Quota, c.clock.Now()).String(),
		}
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	})
	claim := claimShown(c.t, c.Pool)
	claim.ResourceVersion = ""
	c.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(pod, claim).WithStatusSubresource(pod).Build(), kindtest.TenantUID)
	podKey := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
	pods := c.Kind(kind.Pod)
	return func() (*corev1.Pod, error) {
		c.t.Helper()
		shown := &corev1.Pod{}
		require.NoError(c.t, c.Tenant.Client.Get(c.t.Context(), client.ObjectKeyFromObject(pod), shown))
		c.TenantCache[kind.Pod] = []client.Object{shown}
		_, err := pods.Reconcile(c.t.Context(), podKey, time.Minute)
		live := &corev1.Pod{}
		require.NoError(c.t, c.Tenant.Client.Get(c.t.Context(), client.ObjectKeyFromObject(pod), live))
		return live, err
	}
}

// superPod returns nil if there is none.
func (c *chosenClaim) superPod() *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{}
	if c.SuperClient.Get(c.t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "web-1"}, pod) != nil {
		return nil
	}
	return pod
}

// says lets the super cluster's scheduler say why it finds no node for the super pod.
func (c *chosenClaim) says(message string) {
	c.t.Helper()
	pod := c.superPod()
	require.NotNil(c.t, pod)
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
	require.NoError(c.t, c.SuperClient.Status().Update(c.t.Context(), pod))
}

// turn reconciles the pod of podOf and then the claim, both with fresh caches. It returns the pod.
func (c *chosenClaim) turn(reconcile func() (*corev1.Pod, error)) *corev1.Pod {
	c.t.Helper()
	c.SuperCache[kind.Pod] = nil
	if pod := c.superPod(); pod != nil {
		c.SuperCache[kind.Pod] = []client.Object{pod}
	}
	live, err := reconcile()
	wait := &engine.WaitError{}
	require.True(c.t, err == nil || errors.As(err, &wait), "%v", err)
	c.wait(0)
	return live
}

// TestPodOfAClaimThatIsNotMade: a pod whose claim the super cluster does not make is not taken there either. It is
// taken back for the reason of its claim, and once that has no home, without waiting for as long again.
func TestPodOfAClaimThatIsNotMade(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t)
	c.refuse = errQuota
	reconcile := c.podOf()
	c.wait(0)
	live, err := reconcile()
	require.ErrorContains(t, err, "claim data, which it does not make: ")
	require.Equal(t, "r1", live.Labels[schedulerv1alpha1.LabelSuperCluster])
	c.wait(time.Minute)
	c.refresh()
	require.NotContains(t, claimShown(t, c.Pool).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
	live, err = reconcile()
	require.NoError(t, err)
	require.NotContains(t, live.Labels, schedulerv1alpha1.LabelSuperCluster)
	require.Equal(t, failedchoice.Quota, failedchoice.Of(live)["r1"].Reason)
	require.True(t, failedchoice.Of(live).Keeps("r1", c.clock.Now()))
}

// TestPodOfAClaimThatIsOnItsWay: a pod that was seen before the home of its claim does not lose its choice for that,
// once the claim has one.
func TestPodOfAClaimThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t, kindtest.Home(""))
	reconcile := c.podOf()
	_, err := reconcile()
	require.ErrorContains(t, err, "claim data, for which no super cluster is chosen")
	claim := claimShown(t, c.Pool)
	kindtest.Home("r1")(claim)
	require.NoError(t, c.Tenant.Client.Update(t.Context(), claim))
	c.refresh()
	for range 3 {
		live, err := reconcile()
		require.ErrorContains(t, err, "claim data, which is not there yet")
		require.Equal(t, "r1", live.Labels[schedulerv1alpha1.LabelSuperCluster])
		c.clock.SetTime(c.clock.Now().Add(2 * time.Minute))
	}
}

// TestClaimGoesWithItsPod: a claim without volume is here for its pods alone. When one is taken back it loses its home
// first, whole, so that the next choice is free; and where the super cluster says that it has no volume for the claim,
// both go within seconds. One that has a volume, or for which one is being made, stays.
func TestClaimGoesWithItsPod(t *testing.T) {
	t.Parallel()
	const noVolume = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind. no new claims to deallocate"
	const unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
	for name, tc := range map[string]struct {
		message string
		change  func(claim *corev1.PersistentVolumeClaim) // of the super claim, nil for none
		after   time.Duration
		reason  string
		stays   bool
		class   func(class *storagev1.StorageClass) // of WaitForFirstConsumer, nil for no change
	}{
		"no volume":            {message: noVolume, after: 6 * time.Second, reason: failedchoice.NoVolume},
		"not enough free":      {message: "0/1 nodes are available: 1 node(s) did not have enough free storage.", after: 6 * time.Second, reason: failedchoice.NoVolume},
		"no class":             {message: `running PreFilter plugin "VolumeBinding": storageclass.storage.k8s.io "fast" not found`, after: 6 * time.Second, reason: failedchoice.NoVolume},
		"no volume and no cpu": {message: "0/2 nodes are available: 1 Insufficient cpu, " + noVolume[len("0/1 nodes are available: "):], after: 2 * time.Minute, reason: failedchoice.Unschedulable},
		"no cpu":               {message: "0/1 nodes are available: 1 Insufficient cpu.", after: 2 * time.Minute, reason: failedchoice.Unschedulable},
		"has a volume": {message: noVolume, after: 6 * time.Second, reason: failedchoice.NoVolume, stays: true, change: func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.VolumeName = "pv"
		}},
		"no volume, and a taint":  {message: noVolume[:len("0/1 nodes are available: ")] + "1 node(s) had untolerated taint {a: b}, " + noVolume[len("0/1 nodes are available: "):], after: 2 * time.Minute, reason: failedchoice.Unschedulable},
		"no volume, and too many": {message: "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, 1 node(s) exceed max volume count. preemption: none", after: 2 * time.Minute, reason: failedchoice.Unschedulable},
		"gets a volume": {message: noVolume, after: 6 * time.Second, reason: failedchoice.NoVolume, stays: true, change: func(claim *corev1.PersistentVolumeClaim) {
			claim.Annotations[volumehelper.AnnSelectedNode] = "node-1"
		}},
		"may get a volume at once": {message: unbound, after: 2 * time.Minute, reason: failedchoice.Unschedulable, stays: true, class: func(class *storagev1.StorageClass) {
			class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		}},
		"may get a volume at once, as a class that does not say": {message: unbound, after: 2 * time.Minute, reason: failedchoice.Unschedulable, stays: true, class: func(class *storagev1.StorageClass) {
			class.VolumeBindingMode = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChosenClaim(t)
			if tc.class != nil {
				c.changeClass(tc.class)
			}
			reconcile := c.podOf()
			c.wait(0)
			c.refresh()
			_, err := reconcile()
			require.NoError(t, err)
			c.says(tc.message)
			if tc.change != nil {
				claim := c.superClaim()
				tc.change(claim)
				require.NoError(t, c.SuperClient.Update(t.Context(), claim))
			}
			turn := func() *corev1.Pod { return c.turn(reconcile) }
			require.Contains(t, turn().Labels, schedulerv1alpha1.LabelSuperCluster)
			c.clock.SetTime(c.clock.Now().Add(tc.after - time.Second))
			turn()
			require.NotNil(t, c.superPod(), "not before its time")
			c.clock.SetTime(c.clock.Now().Add(time.Second))
			var live *corev1.Pod
			for range 6 {
				live = turn()
			}
			require.Nil(t, c.superPod())
			require.NotContains(t, live.Labels, schedulerv1alpha1.LabelSuperCluster)
			require.Equal(t, tc.reason, failedchoice.Of(live)["r1"].Reason)
			claim := claimShown(t, c.Pool)
			if tc.stays {
				require.Equal(t, "r1", claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster])
				require.NotNil(t, c.superClaim())
				return
			}
			require.NotContains(t, claim.Annotations, schedulerv1alpha1.AnnotationSuperCluster)
			require.Equal(t, tc.reason, failedchoice.Of(claim)["r1"].Reason)
			require.Empty(t, claim.Finalizers)
			require.Nil(t, c.superClaim())
		})
	}
}

// TestClaimThatComesBack: the pod scheduler chooses this super cluster again for a claim that went with its pod, before
// the choice of the pod is taken back, as where no other one has the class. The claim does not go again with that.
func TestClaimThatComesBack(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t)
	reconcile := c.podOf()
	c.wait(0)
	c.refresh()
	_, err := reconcile()
	require.NoError(t, err)
	c.says("0/1 nodes are available: 1 Insufficient cpu.")
	c.turn(reconcile)
	c.clock.SetTime(c.clock.Now().Add(2 * time.Minute))
	var live *corev1.Pod
	for range 8 {
		live = c.turn(reconcile)
		claim := claimShown(t, c.Pool)
		if claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == "" && live.Labels[schedulerv1alpha1.LabelSuperCluster] != "" {
			kindtest.Home("r1")(claim)
			require.NoError(t, c.Tenant.Client.Update(t.Context(), claim))
			c.refresh()
		}
	}
	require.NotContains(t, live.Labels, schedulerv1alpha1.LabelSuperCluster)
	claim := claimShown(t, c.Pool)
	require.Equal(t, "r1", claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster])
	require.Equal(t, int32(1), failedchoice.Of(claim)["r1"].Count)
	require.NotNil(t, c.superClaim())
}

// TestNoVolumeAfterAnotherReason: a super cluster that has lacked something else has the volume's time from when the
// volume alone is lacking.
func TestNoVolumeAfterAnotherReason(t *testing.T) {
	t.Parallel()
	c := newChosenClaim(t)
	reconcile := c.podOf()
	c.wait(0)
	c.refresh()
	_, err := reconcile()
	require.NoError(t, err)
	c.says("0/1 nodes are available: 1 Insufficient cpu.")
	c.turn(reconcile)
	c.clock.SetTime(c.clock.Now().Add(time.Minute))
	c.says("0/1 nodes are available: 1 node(s) did not have enough free storage.")
	c.turn(reconcile)
	c.clock.SetTime(c.clock.Now().Add(5 * time.Second))
	c.turn(reconcile)
	require.NotNil(t, c.superPod())
	c.clock.SetTime(c.clock.Now().Add(time.Second))
	c.turn(reconcile)
	require.Nil(t, c.superPod())
}
