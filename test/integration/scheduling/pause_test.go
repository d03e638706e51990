package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/await"
)

// pause pauses the tenant, or lets it go on.
func (w *world) pause(ctx context.Context, t *testing.T, paused bool) {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: w.name}}
	require.NoError(t, w.meta.Get(ctx, types.NamespacedName{Namespace: "default", Name: w.name}, vc))
	await.Change(t, w.meta, vc, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.Paused = paused })
}

// says returns a condition of the VirtualCluster as status/reason, "" for none, and its message.
func (w *world) says(t *testing.T, condition string) (what, message string) {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: w.name}, vc))
	if found := meta.FindStatusCondition(vc.Status.Conditions, condition); found != nil {
		return string(found.Status) + "/" + found.Reason, found.Message
	}
	return "", ""
}

func (w *world) wantSaid(t *testing.T, condition, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		what, _ := w.says(t, condition)
		return what == want
	}, patience, tick, "condition %s: want %q", condition, want)
}

// TestAPausedTenantGivesBackWhatItHas: pods are deleted whatever their budgets say, what they leave is free, and nobody
// is connected to the tenant any more. Afterwards its namespace is where it was.
func TestAPausedTenantGivesBackWhatItHas(t *testing.T) {
	w := shared
	w.run(t)
	const name = "paused"
	const here, there = "r2", "r1" // where it would not be by itself
	w.placeIn(t, here, name, "100m", "100Mi")
	w.superQuota(t, here, name, "100m", "100Mi")
	guarded := w.runs(t, here, name, "guarded", map[string]string{"app": "web"})
	w.budget(t, name, "web", "web", 0)
	t.Cleanup(func() { w.pause(context.WithoutCancel(t.Context()), t, false) })
	w.pause(t.Context(), t, true)
	w.wantSaid(t, tenancyv1alpha1.ConditionPaused, "False/GivingBack")
	require.Equal(t, "Evicted from super cluster "+here+": the operator has paused the tenant", w.eventMessage(t, name, "guarded", "Evicted"))
	require.Eventually(t, func() bool { return isGone(t, w, guarded) }, patience, tick)
	_, message := w.says(t, tenancyv1alpha1.ConditionPaused)
	require.Contains(t, message, "Waiting for namespaces "+name+" ("+here+"): kubectl -n "+w.key+" get nsp")
	w.wantSaid(t, tenancyv1alpha1.ConditionReady, "True/Connected")

	w.superQuota(t, here, name, "0", "0") // the syncer's answer
	require.Never(t, func() bool { return w.reservedIn(t, name, here) != "100m" }, time.Second, tick, "the pod has not ended yet")
	w.inSuperClusters(t, name, func(super client.Client, name string) { empty(t, super, name) })
	w.wantSaid(t, tenancyv1alpha1.ConditionPaused, "True/GivenBack")
	w.wantSaid(t, tenancyv1alpha1.ConditionReady, "False/Paused")
	require.Equal(t, "0", w.reservedIn(t, name, here))
	w.wantCondition(t, name, schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPaused)

	w.pause(t.Context(), t, false)
	w.wantSaid(t, tenancyv1alpha1.ConditionReady, "True/Connected")
	w.wantSaid(t, tenancyv1alpha1.ConditionPaused, "")
	w.wantShown(t, name, `{"`+here+`":1}`)
	require.Equal(t, "0", w.reservedIn(t, name, there))
}
