//go:build drills

package drills_test

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/pool"
)

// away is how long drill away takes a super cluster away: longer than all that the tenant's controllers and our
// programs count meanwhile but the five minutes of what is out of service, which ask for a Cluster that is deleted.
var away = flag.Duration("away", 2*time.Minute, "how long drill away takes a super cluster away")

// bounded returns a context that ends before the test's time does, and at a signal.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	deadline, _ := t.Deadline()
	ctx, stop := pool.Interruptible(t.Context(), deadline)
	t.Cleanup(stop)
	return ctx
}

// TestDrills runs the drills. Each begins where the one before it ends.
func TestDrills(t *testing.T) {
	ctx := bounded(t)
	b := newBed(ctx, t, "")
	step(t, "A tenant places a Deployment over both super clusters")
	b.create(ctx, t, "web.yaml")
	eventually(ctx, t, "the placements", map[string]int{"r1": 1, "r2": 1}, b.placements("web"))
	eventually(ctx, t, "the super clusters of the pods", []string{"r1", "r2"}, b.where)
	service := b.watchService(ctx, t)
	for _, drill := range []struct {
		name string
		run  func(b *bed, ctx context.Context, t *testing.T)
	}{
		{"drain", (*bed).drain},
		{"undrain", (*bed).undrain},
		{"glitch", (*bed).glitch},
		{"kills", (*bed).kills}, // a vc-scheduler takes nothing for lost in its first seconds
		{"loss", (*bed).loss},
		{"node", (*bed).node},
		{"away", (*bed).away},
		{"cut", (*bed).cut},
		{"gone", (*bed).gone},
	} {
		service.begin()
		passed := t.Run(drill.name, func(t *testing.T) {
			defer func() { assert.NoError(t, b.Ended()) }()
			drill.run(b, ctx, t)
		})
		t.Log(service.seen())
		if !passed {
			b.describe(ctx, t)
			t.FailNow()
		}
	}
}

// maintenance is the key of an operator's taint that drains.
const maintenance = "maintenance"

// allow sets how many pods the tenant's budget keeps.
func (b *bed) allow(t *testing.T, minAvailable int) {
	t.Helper()
	t.Logf("$ kubectl -n web patch pdb web: minAvailable %d", minAvailable)
	await.Change(t, b.tenant, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"}}, func(pdb *policyv1.PodDisruptionBudget) {
		pdb.Spec.MinAvailable = ptr.To(intstr.FromInt(minAvailable))
	})
}

func (b *bed) drain(ctx context.Context, t *testing.T) {
	step(t, "Drain r1 while a budget forbids to evict: room elsewhere is reserved, and the pod stays")
	b.taint(t, "r1", maintenance, "kernel")
	eventually(ctx, t, "the placements", map[string]int{"r2": 2}, b.placements("web"))
	eventually(ctx, t, "the Events of evictions that wait", true, b.hasEvent("EvictionBlocked"))
	equal(ctx, t, "the super clusters of the pods", []string{"r1", "r2"}, b.where)
	equal(ctx, t, "what r1 and r2 hold of the namespace", []string{"r1", "r2"}, b.reserved("web"))
	eventually(ctx, t, "whether r1 is drained", corev1.ConditionFalse, b.drained("r1"))

	step(t, "The budget allows one: the pod moves, and r1 is empty")
	b.allow(t, 1)
	eventually(ctx, t, "the super clusters of the pods", []string{"r2", "r2"}, b.where)
	eventually(ctx, t, "the pods in r1", 0, b.inSuper("r1", "web"))
	eventually(ctx, t, "what holds anything of the namespace", []string{"r2"}, b.reserved("web"))
	eventually(ctx, t, "whether r1 is drained", corev1.ConditionTrue, b.drained("r1"))
}

func (b *bed) undrain(ctx context.Context, t *testing.T) {
	step(t, "Take the taint away: nothing moves")
	before := now(ctx, t, b.uids)
	b.untaint(t, "r1", maintenance)
	eventually(ctx, t, "whether r1 says that it is drained", corev1.ConditionStatus(""), b.drained("r1"))
	equal(ctx, t, "the placements", map[string]int{"r2": 2}, b.placements("web"))
	equal(ctx, t, "the pods", before, b.uids)
}

func (b *bed) glitch(ctx context.Context, t *testing.T) {
	step(t, "A namespace in r2 that tolerates no loss; the other one and its pods tolerate an hour")
	b.tolerate(t, "1h")
	b.linger(ctx, t, time.Hour)
	cordon(t, b.meta, "r1", true)
	b.create(ctx, t, "hasty.yaml")
	eventually(ctx, t, "the placements of hasty", map[string]int{"r2": 1}, b.placements("hasty"))
	cordon(t, b.meta, "r1", false)

	step(t, "r2 is away for less than the other one tolerates, however long that takes here: nothing of it moves")
	before := now(ctx, t, b.uids)
	b.stopSuper(t, "r2")
	eventually(ctx, t, "whether the virtual Node is ready", corev1.ConditionUnknown, b.virtualNodeReady("r2"))
	eventually(ctx, t, "the placements of hasty", map[string]int{"r1": 1}, b.placements("hasty"))
	b.startSuper(ctx, t, "r2")
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionTrue, b.nodeReady("r2"))
	eventually(ctx, t, "whether the virtual Node is ready", corev1.ConditionTrue, b.virtualNodeReady("r2"))
	eventually(ctx, t, "the taints of the virtual Node", []string{providerTaint}, b.taints("r2"))
	equal(ctx, t, "the placements", map[string]int{"r2": 2}, b.placements("web"))
	equal(ctx, t, "the pods", before, b.uids)
	b.tolerate(t, "")
	require.NoError(t, b.tenant.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hasty"}}))
}

// kills drains r2, then r1.
func (b *bed) kills(ctx context.Context, t *testing.T) {
	b.drainWithKills(ctx, t, "r2", "r1")
	b.drainWithKills(ctx, t, "r1", "r2")
}

func (b *bed) drainWithKills(ctx context.Context, t *testing.T, from, to string) {
	t.Helper()
	step(t, "Drain "+from+", and kill vc-scheduler at every step: it ends as without")
	b.allow(t, 2)
	b.taint(t, from, maintenance, "kernel")
	b.killScheduler(t)
	eventually(ctx, t, "the placements", map[string]int{to: 2}, b.placements("web"))
	b.killScheduler(t)
	equal(ctx, t, "the super clusters of the pods", []string{from, from}, b.where)
	b.allow(t, 1)
	b.killScheduler(t)
	eventually(ctx, t, "whether a pod has left", true, func(ctx context.Context) (bool, error) {
		where, err := b.where(ctx)
		return !slices.Equal(where, []string{from, from}), err
	})
	b.killScheduler(t)
	eventually(ctx, t, "the super clusters of the pods", []string{to, to}, b.where)
	b.killScheduler(t)
	eventually(ctx, t, "the pods in "+from, 0, b.inSuper(from, "web"))
	eventually(ctx, t, "what holds anything of the namespace", []string{to}, b.reserved("web"))
	eventually(ctx, t, "whether "+from+" is drained", corev1.ConditionTrue, b.drained(from))
	b.untaint(t, from, maintenance)
	eventually(ctx, t, "whether "+from+" says that it is drained", corev1.ConditionStatus(""), b.drained(from))
}

func (b *bed) loss(ctx context.Context, t *testing.T) {
	step(t, "The quota grows: pods that cannot end count in it for minutes, and their successors need room beside them")
	await.Change(t, b.tenant, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"}}, func(quota *corev1.ResourceQuota) {
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m"), corev1.ResourceMemory: resource.MustParse("400Mi")}
	})
	eventually(ctx, t, "the placements", map[string]int{"r2": 4}, b.placements("web"))
	b.loseAndReturn(ctx, t, "r2", "r1", 0)
}

// loseAndReturn takes a super cluster away, all of which runs in the other one then, and back at the earliest after a
// time.
func (b *bed) loseAndReturn(ctx context.Context, t *testing.T, from, to string, after time.Duration) {
	t.Helper()
	step(t, from+" is lost: its slices are placed in "+to+", its nodes become NotReady, and Deployments run again there")
	stopped := time.Now()
	b.stopSuper(t, from)
	eventually(ctx, t, "the placements", map[string]int{to: 4}, b.placements("web"))
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionUnknown, b.nodeReady(from))
	eventually(ctx, t, "the super clusters of the pods", []string{to, to}, b.where)
	b.describe(ctx, t)
	stays(ctx, t, stopped.Add(after), "the super clusters of the pods", []string{to, to}, b.where)

	step(t, from+" is back: what it ran is removed")
	b.startSuper(ctx, t, from)
	// The fake kubelet waits until its Lease has expired, which takes 10 s.
	eventually(ctx, t, "the pods in "+from, 0, b.inSuper(from, "web"))
	eventually(ctx, t, "what holds anything of the namespace", []string{to}, b.reserved("web"))
	equal(ctx, t, "the placements", map[string]int{to: 4}, b.placements("web"))
	equal(ctx, t, "the super clusters of the pods", []string{to, to}, b.where)
	eventually(ctx, t, "the tenant's pods", 2, b.count)
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionTrue, b.nodeReady(from))
}
